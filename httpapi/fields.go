package httpapi

import (
	"bytes"
	"strings"
	"time"
)

// fieldReader reads the value of one field of an object.
type fieldReader func(j *jsonReader, name string) error

// fields lists the fields that an object may have. Each field has the function that reads its value.
type fields []struct {
	name string
	read fieldReader
}

func (f fields) names() string {
	var names []string
	for _, known := range f {
		names = append(names, known.name)
	}
	return strings.Join(names, ", ")
}

// parseFields reads an object whose fields are all optional. An empty text is read as {}. The parameter what
// names the object in errors.
func parseFields(text []byte, what string, known fields) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	j, err := newJSONReader(text)
	if err != nil {
		return err
	}
	err = j.object(what, func(name []byte) error {
		for _, f := range known {
			if string(name) == f.name {
				return f.read(j, f.name)
			}
		}
		if len(known) == 0 {
			return invalid("leave it out", "%s has an unknown field %q at byte %d", what, name, j.at)
		}
		return j.unknown(what, name, known.names())
	})
	if err != nil {
		return err
	}
	return j.end()
}

// durationInto reads a duration, such as 30s, and stores it in d. If the value is null, d does not change.
func durationInto(d **time.Duration) fieldReader {
	return func(j *jsonReader, name string) error {
		s, err := j.stringOf(name, aDuration)
		if s == nil || err != nil {
			return err
		}
		given, err := ParseDuration(string(s))
		if err != nil {
			return invalid("write a duration such as 500ms, 30s, 12h or 7d", "invalid %s %.100q", name, s)
		}
		*d = &given
		return nil
	}
}

// countInto reads an integer from 1 to most, and stores it in n. If the value is null, n does not change.
func countInto(n **int, most int64) fieldReader {
	return func(j *jsonReader, name string) error {
		got, given, err := j.integer(name, 1, most)
		if given {
			*n = new(int(got))
		}
		return err
	}
}

// boolInto reads true or false, and stores it in b. If the value is null, b does not change.
func boolInto(b **bool) fieldReader {
	return func(j *jsonReader, name string) error {
		switch {
		case j.null():
		case j.word("true"):
			*b = new(true)
		case j.word("false"):
			*b = new(false)
		default:
			return j.mistyped(name, "true or false")
		}
		return nil
	}
}

// textInto reads a string, and stores it in to. The value null is stored as "".
func textInto(to *string) fieldReader {
	return func(j *jsonReader, name string) error {
		s, err := j.string(name)
		*to = string(s)
		return err
	}
}

// givenTextInto reads a string, and stores it in to. If the value is null, to does not change.
func givenTextInto(to **string) fieldReader {
	return func(j *jsonReader, name string) error {
		s, err := j.string(name)
		if s != nil {
			*to = new(string(s))
		}
		return err
	}
}

// textsInto reads an object of strings, and stores it in to. If the value is null, to does not change.
func textsInto(to *map[string]string) fieldReader {
	return func(j *jsonReader, name string) error {
		if j.null() {
			return nil
		}
		*to = map[string]string{}
		return j.object(name, func(field []byte) error {
			one := string(field)
			s, err := j.string(one + " of " + name)
			if err == nil && s == nil {
				err = invalid("leave it out", "%s of %s is null", one, name)
			}
			(*to)[one] = string(s)
			return err
		})
	}
}
