package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// The forms in which records are written by consume and read by produce.
const (
	formatLine   = "line"   // the value and LF
	formatJSON   = "json"   // an object per line, with all fields of a record
	formatBinary = "binary" // key and value, each after its size; both may have any bytes
	formatRaw    = "raw"    // values and nothing else
)

// noBytes is the size of a missing key or value in formatBinary.
const noBytes = math.MaxUint32

// formatsHelp describes the formats in the help of produce and consume.
const formatsHelp = `Formats:

    line     the value and LF; with --key-separator SEP the key and SEP before it
    json     an object per line with all fields of a record, as the HTTP API writes it
    binary   key, then value, each after its size as uint32, little-endian; size 0xffffffff: no key
    raw      values only

What consume writes as json or binary, produce reads back to equal records, whatever their bytes; json keeps
timestamps and headers too. A line's value may hold no LF, and its key no separator.`

// formatFlags choose the form of records, for consume and produce.
type formatFlags struct {
	Format       string  `enum:"line,json,binary,raw" default:"line" help:"Form of the records: line, json, binary or raw, see Formats (default ${default})."`
	KeySeparator *string `placeholder:"SEP" help:"In lines, the key stands before SEP, which may be \\t; a line without SEP has no key (default: there are no keys)."`

	separator string // KeySeparator after \t and \0 were replaced; "" if there are no keys
}

// checkFormat refuses flags that exclude each other, and sets separator.
func (f *formatFlags) checkFormat() error {
	if f.KeySeparator == nil {
		return nil
	}
	if *f.KeySeparator == "" {
		return usage(errors.New("--key-separator is empty: name what stands between key and value, such as '\\t', or leave it out"))
	}
	if f.Format != formatLine {
		return usage(fmt.Errorf("--key-separator needs --format line; --format %s has no separator", f.Format))
	}
	f.separator = strings.NewReplacer(`\t`, "\t", `\0`, "\x00").Replace(*f.KeySeparator)
	if strings.Contains(f.separator, "\n") {
		return usage(errors.New("--key-separator must not hold LF, which ends the line"))
	}
	return nil
}

// keyedRecord has the key and the value of a record in JSON. Bytes that are not UTF-8 come in base64.
type keyedRecord struct {
	Key         *string `json:"key"`
	KeyBase64   []byte  `json:"key_base64"`
	Value       *string `json:"value"`
	ValueBase64 []byte  `json:"value_base64"`
}

// parseKeyed returns the key and value of a record in JSON, nil if missing.
func parseKeyed(line []byte) (key, value []byte, err error) {
	var r keyedRecord
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, nil, fmt.Errorf("the broker sent an invalid record, %.60q: %w", line, err)
	}
	return oneOf(r.Key, r.KeyBase64), oneOf(r.Value, r.ValueBase64), nil
}

func oneOf(text *string, bytes []byte) []byte {
	if text != nil {
		return []byte(*text)
	}
	return bytes
}

// appendSized appends a key or value b in formatBinary.
func appendSized(dst, b []byte) []byte {
	if b == nil {
		return binary.LittleEndian.AppendUint32(dst, noBytes)
	}
	return append(binary.LittleEndian.AppendUint32(dst, uint32(len(b))), b...)
}

// appendField appends "name":"text" in JSON, or "name_base64" if b is not UTF-8.
func appendField(dst []byte, name string, b []byte) []byte {
	dst = append(append(dst, '"'), name...)
	if !utf8.Valid(b) {
		dst = append(dst, `_base64":"`...)
		return append(base64.StdEncoding.AppendEncode(dst, b), '"')
	}
	text, err := json.Marshal(string(b))
	if err != nil {
		panic(err) // text always marshals
	}
	return append(append(dst, `":`...), text...)
}
