package digest

import (
	"fmt"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/option"
	"github.com/simple-event-broker/seb/internal/record"
)

type list []record.Record

func (l list) Record(i int, r *record.Record) {
	headers := append(r.Headers, l[i].Headers...)
	if l[i].Timestamp == 0 {
		l[i].Timestamp = r.Timestamp
	}
	*r = l[i]
	r.Headers = headers
}

// Logs have these hashes, so they must never change.
func TestHashesStayAsTheyAre(t *testing.T) {
	records := list{
		{Value: []byte("v"), Headers: []record.Header{{Key: "h", Value: []byte("1")}, {Key: "h"}}},
		{Key: []byte{}, Timestamp: 1_767_225_600_250},
		{Key: []byte("k"), Value: []byte("w"), Timestamp: -5},
	}
	for want, o := range map[string]option.Append{
		"edec9e4e425c1c60f55e661eb90c8b4a": {Partition: 3, IfOffset: 9},
		"a601475bcdcabecb7999b116811492e3": {Partition: -1, IfOffset: -1, Partitions: []int32{1, -1, 2}, Delay: time.Minute},
	} {
		d := New()
		d.Append(records, len(records), o)
		if got := fmt.Sprintf("%x", d.Sum()); got != want {
			t.Errorf("%+v: %s, want %s", o, got, want)
		}
	}
	d := New()
	d.Texts("t", "")
	d.Offsets(map[int32]format.Offset{2: 1 << 40, 0: 5})
	if got := fmt.Sprintf("%x", d.Sum()); got != "c0aeb800bc8b9b2b81aeedb13faf245d" {
		t.Errorf("texts and offsets: %s", got)
	}
}

func TestDifferentSequencesHaveDifferentHashes(t *testing.T) {
	seen := map[format.Digest]string{}
	for name, add := range map[string]func(d *Digester){
		"nothing":        func(*Digester) {},
		"a, bc":          func(d *Digester) { d.Texts("a", "bc") },
		"ab, c":          func(d *Digester) { d.Texts("ab", "c") },
		"abc":            func(d *Digester) { d.Texts("abc") },
		"no offsets":     func(d *Digester) { d.Offsets(nil) },
		"0:1":            func(d *Digester) { d.Offsets(map[int32]format.Offset{0: 1}) },
		"1:0":            func(d *Digester) { d.Offsets(map[int32]format.Offset{1: 0}) },
		"no timestamp":   func(d *Digester) { d.Append(list{{Value: []byte("v")}}, 1, option.Append{}) },
		"a timestamp":    func(d *Digester) { d.Append(list{{Value: []byte("v"), Timestamp: 7}}, 1, option.Append{}) },
		"an empty key":   func(d *Digester) { d.Append(list{{Value: []byte("v"), Key: []byte{}}}, 1, option.Append{}) },
		"fewer records":  func(d *Digester) { d.Append(list{{Value: []byte("v")}}, 0, option.Append{}) },
		"due at a time":  func(d *Digester) { d.Append(nil, 0, option.Append{Due: time.UnixMicro(9)}) },
		"after a while":  func(d *Digester) { d.Append(nil, 0, option.Append{Delay: 9}) },
		"of a partition": func(d *Digester) { d.Append(nil, 0, option.Append{Partitions: []int32{0}}) },
	} {
		d := New()
		add(d)
		sum := d.Sum()
		if other, twice := seen[sum]; twice {
			t.Errorf("%s and %s have the same hash", name, other)
		}
		seen[sum] = name
	}
}
