package client

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"testing"

	"github.com/simple-event-broker/seb"
)

// Records in the form Values are taken only if they have as many values, of these sizes, as their bounds say.
func FuzzEncodedValues(f *testing.F) {
	f.Add("0", "1", "1", []byte("\x01\x00\x00\x00\x01\x00\x00\x00x"))
	f.Add("", "0", "0", []byte("\x00\x00\x00\x00"))
	f.Add("-1", "0", "0", []byte("\x01\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, first, next, _ string, body []byte) {
		n, err := strconv.ParseInt(next, 10, 64)
		got := Encoded{Fetched: seb.Fetched{Next: seb.Offset(n)}, Body: body, encoding: Values}
		if err != nil || got.check(0, first) != nil {
			return
		}
		values := [][]byte{}
		for _, value := range got.Each() {
			values = append(values, value)
		}
		again := binary.LittleEndian.AppendUint32(nil, uint32(len(values)))
		for _, value := range values {
			again = binary.LittleEndian.AppendUint32(again, uint32(len(value)))
		}
		if again = append(again, bytes.Join(values, nil)...); !bytes.Equal(again, body) || got.First < 0 || int(got.Next-got.First) != len(values) {
			t.Errorf("%q is taken for records %d to %d", body, got.First, got.Next)
		}
	})
}

// Records in the form Lines are as many lines as their bounds say, and Each returns each.
func FuzzEncodedLines(f *testing.F) {
	f.Add("2", "2", []byte("{\"partition\":0,\"offset\":0,\"value\":null}\n{\"offset\":1,\"partition\":0}\n"))
	f.Add("1", "9", []byte("{\"offset\":0}"))
	f.Add("0", "0", []byte(""))
	f.Fuzz(func(t *testing.T, next, _ string, body []byte) {
		n, err := strconv.ParseInt(next, 10, 64)
		got := Encoded{Fetched: seb.Fetched{Next: seb.Offset(n)}, Body: body, encoding: Lines}
		if err != nil || got.check(0, "") != nil {
			return
		}
		var all []byte
		for _, line := range got.Each() {
			all = append(append(all, line...), '\n')
		}
		if !bytes.Equal(all, body) {
			t.Fatalf("%q is taken for %q", body, all)
		}
	})
}
