package driplang

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"
	"time"
)

func appendIndex(b []byte, event int) []byte { return binary.AppendUvarint(b, uint64(event)) }

func readIndex(b []byte) (int, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, errors.New("no index")
	}
	return int(v), b[n:], nil
}

// TestEntityBytes shows the bytes of an entity: snapshots have them, so they never change.
func TestEntityBytes(t *testing.T) {
	for _, c := range []struct{ text, events, want string }{
		{"A THEN NOT B WITHIN 7d", "A@0", "01808082e288d2a3060100010000"},
		{"3 TIMES F WITHIN 1h", "F@0 F@1s", "0002808082e288d2a30680897a"},
		{"A AND B", "A@0", "0001808082e288d2a30601000001"},
		{"A THEN B THEN C", "A@0 B@1s", "01808082e288d2a3060280897a0100010100"},
	} {
		m, n, _ := fed(t, c.text, c.events)
		if got := hex.EncodeToString(m.AppendEntity(nil, n, appendIndex)); got != c.want {
			t.Errorf("%s after %s: %s", c.text, c.events, got)
		}
	}
}

// fed returns a machine, and an entity that has seen events.
func fed(t *testing.T, text, events string) (*Machine[int], *Entity[int], time.Time) {
	all := sequenceOf(t, events)
	p := program(t, text)
	m := &Machine[int]{Program: p, Matches: func(e *Expr, event int, _ *Run[int]) bool { return e.Event == Any || e.Event == all[event].Name }}
	n := &Entity[int]{}
	now := t0
	for i := range all {
		now = all[i].LogTime
		m.Event(n, i, now)
	}
	return m, n, now
}

func TestEntityIsDecodedAsItWas(t *testing.T) {
	for _, c := range [][2]string{
		{"A THEN NOT B WITHIN 7d", "A@0 A@1h"},
		{"3 TIMES F WITHIN 1h THEN G", "F@0 F@1m F@2m F@3m"},
		{"A AND B THEN C", "A@0 B@1m A@2m"},
		{"A AND B THEN C", "A@0"},
		{"A THEN (B THEN C) OR D THEN E", "A@0 B@1h"},
	} {
		m, n, now := fed(t, c[0], c[1])
		b := m.AppendEntity(nil, n, appendIndex)
		again, err := m.DecodeEntity(b, now, readIndex)
		if err != nil {
			t.Fatal(c, err)
		}
		if !bytes.Equal(m.AppendEntity(nil, again, appendIndex), b) {
			t.Errorf("%v: not the same bytes", c)
		}
		d1, ok1 := m.Deadline(n)
		d2, ok2 := m.Deadline(again)
		if d1 != d2 || ok1 != ok2 {
			t.Errorf("%v: deadlines %v %t and %v %t", c, d1, ok1, d2, ok2)
		}
		for cut := range len(b) {
			if _, err := m.DecodeEntity(b[:cut], now, readIndex); err == nil {
				t.Errorf("%v: %d of %d bytes were accepted", c, cut, len(b))
			}
		}
	}
}
