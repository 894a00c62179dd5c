package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// recordFlags set what all records of one call of produce have in common.
type recordFlags struct {
	Key    *string  `placeholder:"KEY" help:"Key of all records, which then go to one partition (default: none, or the keys in the input)."`
	Header []string `sep:"none" placeholder:"NAME=VALUE" help:"Header of all records; may be repeated (default: none, or the headers in the input)."`
}

// apiKeyPattern matches an API key as seb key create shows it. A key in --key would end up in the log, where all
// readers see it.
var apiKeyPattern = regexp.MustCompile(`^\s*seb_[0-9]+_[0-9a-f]{64}\s*$`)

// checkRecords refuses flags that are invalid, or contradict what the input has in the format f.
func (r recordFlags) checkRecords(f formatFlags) error {
	elsewhere := ""
	switch {
	case f.separator != "":
		elsewhere = "--key-separator"
	case f.Format == formatJSON, f.Format == formatBinary:
		elsewhere = "--format " + f.Format
	}
	switch {
	case r.Key != nil && apiKeyPattern.MatchString(*r.Key):
		return usage(hinted(errors.New("this is an API key, but --key is the key of records"), "give the API key as SEB_API_KEY, or with --api-key-file"))
	case r.Key != nil && elsewhere != "":
		return usage(fmt.Errorf("--key can't be combined with %s: there, the input has the keys", elsewhere))
	case r.Key != nil && !isText(*r.Key):
		return usage(hinted(fmt.Errorf("invalid --key %q: it is not UTF-8", *r.Key), "use --format binary, whose keys may have any bytes"))
	case len(r.Header) > 0 && f.Format == formatJSON:
		return usage(errors.New("--header can't be combined with --format json: there, the input has the headers"))
	}
	for _, h := range r.Header {
		switch name, _, found := strings.Cut(h, "="); {
		case !found || name == "":
			return usage(fmt.Errorf("invalid --header %q: write NAME=VALUE", h))
		case !isText(h):
			return usage(fmt.Errorf("invalid --header %q: it is not UTF-8", h))
		}
	}
	return nil
}

// isText tells whether a value on the command line was UTF-8. Kong replaces bytes that are not.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, utf8.RuneError) }

// addTo changes form so that all records have the key and the headers. Requests are JSON then: in the compact
// form, records have values only.
func (r recordFlags) addTo(form *inputForm) {
	var shared []byte // the fields that all records have, each with a comma after it
	if r.Key != nil {
		shared = append(appendField(shared, "key", []byte(*r.Key)), ',')
	}
	if len(r.Header) > 0 {
		headers := map[string][]string{}
		for _, h := range r.Header {
			name, value, _ := strings.Cut(h, "=")
			headers[name] = append(headers[name], value)
		}
		text, err := json.Marshal(headers)
		if err != nil {
			panic(err) // strings always marshal
		}
		shared = fmt.Appendf(shared, `"headers":%s,`, text)
	}
	if len(shared) == 0 {
		return
	}
	form.json = true
	form.encode = func(dst []byte, f frame) ([]byte, error) { return appendKeyedJSON(dst, shared, f), nil }
}
