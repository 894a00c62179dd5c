package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// writeJSON answers with v on one line.
func writeJSON(w *response, status int, v any) error {
	body, err := marshal(v)
	if err != nil {
		return fmt.Errorf("encode the response: %w", err)
	}
	return writeBody(w, status, typeJSON, append(body, '\n'))
}

// marshal is json.Marshal without the escaping of &, < and >: people read the result, and no
// browser treats an answer as HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func writeBody(w *response, status int, contentType string, body []byte) error {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		return fmt.Errorf("write the response: %w", err)
	}
	return nil
}

// jsonDepthMax is how deep a value that raw reads may be nested.
const jsonDepthMax = 1000

// jsonReader reads JSON that a client sent. It decodes strings in place, and returns slices of the
// text, so no body needs memory for a second copy.
//
// jsonReader is stricter than encoding/json: a name must match exactly and occur once, and the callers of
// jsonReader refuse unknown names. It refuses text that encoding/json would alter: bytes that are
// not UTF-8, and unpaired surrogates.
type jsonReader struct {
	text []byte
	at   int // the index of the next byte
}

// newJSONReader returns a reader of text, which the reader may overwrite. It returns an error if text
// is not UTF-8.
func newJSONReader(text []byte) (*jsonReader, error) {
	if i := invalidUTF8(text); i >= 0 {
		return nil, invalid("send bytes that are not UTF-8 as value_base64", "the JSON is not UTF-8 at byte %d", i)
	}
	return &jsonReader{text: text}, nil
}

func (j *jsonReader) malformed(why string) error {
	return invalid("", "malformed JSON at byte %d: %s", j.at, why)
}

// peek skips white space and returns the next byte, or 0 at the end of the text.
func (j *jsonReader) peek() byte {
	for j.at < len(j.text) {
		switch c := j.text[j.at]; c {
		case ' ', '\t', '\r', '\n':
			j.at++
		default:
			return c
		}
	}
	return 0
}

// take skips white space. If c follows, take reads c and returns true.
func (j *jsonReader) take(c byte) bool {
	if j.peek() != c || j.at == len(j.text) {
		return false
	}
	j.at++
	return true
}

// null skips white space. If the word null follows, null reads the word and returns true.
func (j *jsonReader) null() bool { return j.word("null") }

// word skips white space. If the given word follows, word reads it and returns true.
func (j *jsonReader) word(w string) bool {
	if j.peek() != w[0] || !bytes.HasPrefix(j.text[j.at:], []byte(w)) {
		return false
	}
	j.at += len(w)
	return true
}

// end returns an error if anything but white space follows.
func (j *jsonReader) end() error {
	if j.peek(); j.at < len(j.text) {
		return j.malformed("more text follows the end of the value")
	}
	return nil
}

// object reads an object. For each name in the object it calls field, which reads the value. The parameter what
// names the object in errors.
func (j *jsonReader) object(what string, field func(name []byte) error) error {
	if !j.take('{') {
		return j.mistyped(what, "an object")
	}
	if j.take('}') {
		return nil
	}
	var seen names
	for {
		if j.peek() != '"' {
			return j.malformed("a name is missing")
		}
		name, err := j.quoted(true)
		if err != nil {
			return err
		}
		if !seen.add(name) {
			return invalid("", "%s has the field %q twice, at byte %d", what, name, j.at)
		}
		if !j.take(':') {
			return j.malformed("a colon is missing")
		}
		if err := field(name); err != nil {
			return err
		}
		switch {
		case j.take(','):
		case j.take('}'):
			return nil
		default:
			return j.malformed("a comma or the closing bracket is missing")
		}
	}
}

// names has the names of an object that were read so far. Usually these are few.
type names struct {
	few  [][]byte
	many map[string]struct{} // all names, once there are too many for few
}

// add adds a name. It returns false if the object already had the name.
func (n *names) add(name []byte) bool {
	if n.many == nil {
		if slices.ContainsFunc(n.few, func(x []byte) bool { return bytes.Equal(x, name) }) {
			return false
		}
		if n.few = append(n.few, name); len(n.few) == 16 {
			n.many = make(map[string]struct{})
			for _, x := range n.few {
				n.many[string(x)] = struct{}{}
			}
		}
		return true
	}
	if _, there := n.many[string(name)]; there {
		return false
	}
	n.many[string(name)] = struct{}{}
	return true
}

// list reads a list. It calls element to read each element. The parameter what names the list in errors.
func (j *jsonReader) list(what string, element func(index int) error) error {
	if !j.take('[') {
		return j.mistyped(what, "a list")
	}
	if j.take(']') {
		return nil
	}
	for i := 0; ; i++ {
		if err := element(i); err != nil {
			return err
		}
		switch {
		case j.take(','):
		case j.take(']'):
			return nil
		default:
			return j.malformed("a comma or the closing bracket is missing")
		}
	}
}

// unknown returns the error for a field that an object may not have. The parameter what names the object;
// known lists the fields that it may have.
func (j *jsonReader) unknown(what string, name []byte, known string) error {
	return invalid("known fields: "+known, "%s has an unknown field %q at byte %d", what, name, j.at)
}

// mistyped returns the error for the next value, which is not of the type or form that expected describes.
func (j *jsonReader) mistyped(what, expected string) error {
	if j.peek(); j.at == len(j.text) {
		if len(j.text) == 0 {
			return invalid("send a body of JSON; GET /openapi.yaml describes each request", "the body is empty; it must be JSON: %s", expected)
		}
		return j.malformed("it ends where " + expected + " should follow")
	}
	came := ""
	switch c := j.peek(); {
	case c == '"':
		came = ", not a string"
	case c == '{':
		came = ", not an object"
	case c == '[':
		came = ", not a list"
	case c == '-' || c >= '0' && c <= '9':
		came = ", not a number"
	default:
		for _, word := range jsonWords {
			if bytes.HasPrefix(j.text[j.at:], []byte(word)) {
				came = ", not " + word
			}
		}
	}
	return invalid("", "%s must be %s%s, at byte %d", what, expected, came, j.at)
}

// string reads a string. If the value is null, string returns nil.
func (j *jsonReader) string(what string) ([]byte, error) { return j.stringOf(what, "a string") }

// Forms of strings, for stringOf.
const (
	aDuration = `a duration such as "30s" or "7d"`
	aTime     = `a time such as "2026-01-31T12:00:00Z"`
)

// stringOf reads a string like string does. The parameter form describes the string in errors.
func (j *jsonReader) stringOf(what, form string) ([]byte, error) {
	if j.null() {
		return nil, nil
	}
	if j.peek() != '"' {
		return nil, j.mistyped(what, form)
	}
	return j.quoted(true)
}

// integer reads an integer from lo to hi. If the value is null, given is false.
func (j *jsonReader) integer(what string, lo, hi int64) (n int64, given bool, err error) {
	if j.null() {
		return 0, false, nil
	}
	if c := j.peek(); c != '-' && (c < '0' || c > '9') {
		return 0, false, j.mistyped(what, fmt.Sprintf("an integer from %d to %d", lo, hi))
	}
	start := j.at
	raw, err := j.raw()
	if err != nil {
		return 0, false, err
	}
	n, err = strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < lo || n > hi {
		return 0, false, invalid(fmt.Sprintf("use an integer from %d to %d", lo, hi), "%s must be an integer from %d to %d, not %.40s, at byte %d", what, lo, hi, raw, start)
	}
	return n, true, nil
}

var jsonWords = []string{"true", "false", "null"}

// raw reads any value and returns the JSON text of the value unchanged.
func (j *jsonReader) raw() ([]byte, error) {
	j.peek()
	start := j.at
	if err := j.skip(0); err != nil {
		return nil, err
	}
	return j.text[start:j.at:j.at], nil
}

func (j *jsonReader) skip(depth int) error {
	if depth > jsonDepthMax {
		return j.malformed("a value is nested too deep")
	}
	switch c := j.peek(); {
	case c == '"':
		_, err := j.quoted(false)
		return err
	case c == '-' || c >= '0' && c <= '9':
		return j.number()
	case c == '{':
		return j.members('{', '}', func() error {
			if j.peek() != '"' {
				return j.malformed("a name is missing")
			}
			if _, err := j.quoted(false); err != nil {
				return err
			}
			if !j.take(':') {
				return j.malformed("a colon is missing")
			}
			return j.skip(depth + 1)
		})
	case c == '[':
		return j.members('[', ']', func() error { return j.skip(depth + 1) })
	}
	for _, word := range jsonWords {
		if j.word(word) {
			return nil
		}
	}
	return j.malformed("a value is missing")
}

// members skips an object or a list. first and last are the brackets around it; member skips one member.
func (j *jsonReader) members(first, last byte, member func() error) error {
	j.take(first)
	if j.take(last) {
		return nil
	}
	for {
		if err := member(); err != nil {
			return err
		}
		if j.take(last) {
			return nil
		}
		if !j.take(',') {
			return j.malformed("a comma or the closing bracket is missing")
		}
	}
}

// number skips a number as RFC 8259 (section 6) defines it.
func (j *jsonReader) number() error {
	digits := func() bool {
		start := j.at
		for j.at < len(j.text) && j.text[j.at] >= '0' && j.text[j.at] <= '9' {
			j.at++
		}
		return j.at > start
	}
	next := func(any string) bool {
		if j.at < len(j.text) && bytes.IndexByte([]byte(any), j.text[j.at]) >= 0 {
			j.at++
			return true
		}
		return false
	}
	next("-")
	whole := next("0") || digits()
	fraction := !next(".") || digits()
	exponent := true
	if next("eE") {
		next("+-")
		exponent = digits()
	}
	if !whole || !fraction || !exponent {
		return j.malformed("a digit is missing")
	}
	return nil
}

// quoted reads a string, whose opening quotation mark is the next byte. If decode is true, quoted decodes the
// string in place: no escape is shorter than the bytes that the escape stands for, so these always fit.
func (j *jsonReader) quoted(decode bool) ([]byte, error) {
	j.at++
	start, out := j.at, j.at
	for j.at < len(j.text) {
		run := j.at
		for j.at < len(j.text) && j.text[j.at] >= ' ' && j.text[j.at] != '"' && j.text[j.at] != '\\' {
			j.at++
		}
		if decode && out < run {
			copy(j.text[out:], j.text[run:j.at])
		}
		out += j.at - run
		switch {
		case j.at == len(j.text):
		case j.text[j.at] == '"':
			j.at++
			return j.text[start:out:out], nil
		case j.text[j.at] < ' ':
			return nil, j.malformed("a string has a control character that is not escaped")
		default:
			r, size := unescape(j.text[j.at:])
			if size == 0 {
				return nil, j.malformed("a string has an invalid escape, or half of a surrogate pair")
			}
			j.at += size
			if decode {
				out = len(utf8.AppendRune(j.text[:out], r))
			}
		}
	}
	return nil, j.malformed("a string has no end")
}

// unescape returns the character that the escape at the start of b stands for, and the escape's
// size. The size is 0 if the escape is invalid.
func unescape(b []byte) (r rune, size int) {
	if len(b) < 2 {
		return 0, 0
	}
	if i := bytes.IndexByte([]byte(`"\/bfnrt`), b[1]); i >= 0 {
		return rune("\"\\/\b\f\n\r\t"[i]), 2
	}
	r, ok := escapedUnit(b)
	switch {
	case !ok:
		return 0, 0
	case !utf16.IsSurrogate(r):
		return r, 6
	}
	low, ok := escapedUnit(b[6:])
	if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

// escapedUnit decodes the \uXXXX at the start of b. It returns false if b does not begin with such
// an escape.
func escapedUnit(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	u, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(u), err == nil
}

// isJSON tells whether b is a JSON text that value_json of an append could have, too.
func isJSON(b []byte) bool {
	j := jsonReader{text: b}
	if strings.IndexByte(`{["-0123456789tfn`, j.peek()) < 0 { // most other texts end here, without the cost of an error
		return false
	}
	return utf8.Valid(b) && j.skip(0) == nil && j.end() == nil
}

// invalidUTF8 returns the index of the first byte of b that is not UTF-8, or -1.
func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; ; {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size <= 1 {
			return i
		}
		i += size
	}
}
