package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// recordBytesMax is the largest record that produce reads, since produce holds a whole record in memory. A
// broker's limits are far below this.
const recordBytesMax = 256 << 20

// frame is one record as it stands in the input. key is nil if the record has none.
type frame struct {
	key, value []byte
	took       int // bytes of the input that the record takes, with separators and sizes
}

// framing finds the records in a stream.
type framing interface {
	// cut returns the first record of data, or false if data doesn't hold all of the record. end is true if
	// the input ends with data. If cut returned a record, the caller next passes the rest of data; if it
	// returned false, the caller next passes the same data with more bytes at the end.
	cut(data []byte, end bool) (frame, bool, error)
}

// lineFraming ends a record at each LF; the last record may lack the LF.
type lineFraming struct {
	separator []byte // between key and value; empty if records have no keys
	seen      int    // how many bytes at the start of data are known to hold no LF
}

func (l *lineFraming) cut(data []byte, end bool) (frame, bool, error) {
	line, took := data, len(data)
	if at := bytes.IndexByte(data[l.seen:], '\n'); at >= 0 {
		line, took = data[:l.seen+at], l.seen+at+1
	} else if !end || len(data) == 0 {
		l.seen = len(data)
		return frame{}, false, nil
	}
	l.seen = 0
	if len(l.separator) > 0 {
		if key, value, found := bytes.Cut(line, l.separator); found {
			return frame{key, value, took}, true, nil
		}
	}
	return frame{nil, line, took}, true, nil
}

// sizedFraming reads formatBinary.
type sizedFraming struct{}

var errCutOff = errors.New("the input ends within a record")

func (sizedFraming) cut(data []byte, end bool) (frame, bool, error) {
	key, rest, whole, err := cutSized(data)
	var value []byte
	if whole {
		value, rest, whole, err = cutSized(rest)
	}
	switch {
	case err != nil:
		return frame{}, false, err
	case whole && value == nil:
		return frame{}, false, errors.New("it has no value; HTTP can append only records with a value")
	case !whole && end && len(data) > 0:
		return frame{}, false, fmt.Errorf("%w, %d bytes after its beginning", errCutOff, len(data))
	}
	return frame{key, value, len(data) - len(rest)}, whole, nil
}

// cutSized reads a size and that many bytes from data. b has these bytes, or is nil if the size is noBytes;
// rest is the data after b; whole is false if data ends too early.
func cutSized(data []byte) (b, rest []byte, whole bool, err error) {
	if len(data) < 4 {
		return nil, nil, false, nil
	}
	n := binary.LittleEndian.Uint32(data)
	data = data[4:]
	switch {
	case n == noBytes:
		return nil, data, true, nil
	case n > recordBytesMax:
		return nil, nil, false, fmt.Errorf("its size is %d bytes; is the input in the binary format?", n)
	case uint32(len(data)) < n:
		return nil, nil, false, nil
	}
	return data[:n:n], data[n:], true, nil
}

// wholeFraming makes one record of the whole input.
type wholeFraming struct{ done bool }

func (w *wholeFraming) cut(data []byte, end bool) (frame, bool, error) {
	if !end || w.done {
		return frame{}, false, nil
	}
	w.done = true
	return frame{nil, data, len(data)}, true, nil
}

// inputForm says how to find the records in the input, and in which form a request carries them.
type inputForm struct {
	framing framing
	unit    string // what messages call a record: "line" or "record"
	json    bool   // requests are JSON rather than the compact form
	// encode appends a record's JSON to dst.
	encode func(dst []byte, f frame) ([]byte, error)
}

// input returns the form that the flags choose. If repartition is true, the form leaves out the partition
// that a record's JSON names.
func (f *formatFlags) input(repartition bool) *inputForm {
	switch {
	case f.Format == formatJSON:
		return &inputForm{&lineFraming{}, "line", true, func(dst []byte, f frame) ([]byte, error) {
			return appendRecordJSON(dst, f.value, repartition)
		}}
	case f.Format == formatBinary:
		return &inputForm{sizedFraming{}, "record", true, keyed}
	case f.Format == formatRaw:
		return &inputForm{framing: &wholeFraming{}, unit: "record"}
	case f.separator != "":
		return &inputForm{&lineFraming{separator: []byte(f.separator)}, "line", true, keyed}
	default:
		return &inputForm{framing: &lineFraming{}, unit: "line"}
	}
}

// appendKeyedJSON appends the JSON of a record. shared are fields that all records have, each with a comma after
// it.
func appendKeyedJSON(dst, shared []byte, f frame) []byte {
	dst = append(append(dst, '{'), shared...)
	if f.key != nil {
		dst = append(appendField(dst, "key", f.key), ',')
	}
	return append(appendField(dst, "value", f.value), '}')
}

// keyed is an inputForm.encode.
func keyed(dst []byte, f frame) ([]byte, error) { return appendKeyedJSON(dst, nil, f), nil }

// appendRecordJSON appends line, the JSON of a record as consume writes it, in the form that an append
// accepts: without the offset and the log time, which the log assigns. Spaces replace the fields that are left out, so that
// each byte keeps its place in the line, and the broker's errors can name it. The broker checks the values.
func appendRecordJSON(dst, line []byte, repartition bool) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("it is not a JSON object")
	}
	start, first := len(dst), true
	dst = append(dst, line...)
	for d.More() {
		from := start + int(d.InputOffset())
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, fmt.Errorf("%v: %w", name, err)
		}
		field := dst[from : start+int(d.InputOffset())] // with the comma before it, if there is one
		switch name {
		case "offset", "log_time":
			blank(field)
			continue
		case "partition":
			if repartition {
				blank(field)
				continue
			}
		case "value", "value_base64", "value_json", "key", "key_base64", "headers", "headers_base64", "timestamp":
		default:
			return nil, fmt.Errorf("unknown field %q", name)
		}
		if first {
			blank(field[:bytes.IndexByte(field, '"')])
		}
		first = false
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more text follows its JSON object")
	}
	return dst, nil
}

// blank overwrites b with spaces.
func blank(b []byte) {
	for i := range b {
		b[i] = ' '
	}
}
