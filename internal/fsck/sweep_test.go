package fsck_test

import (
	"bytes"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/fsck"
	"github.com/simple-event-broker/seb/internal/record"
)

// smallLog returns a log with one object of each kind, and two commits.
func smallLog(t testing.TB) (s *smith, keys []string) {
	s = newSmith(t)
	c := s.next()
	b := batchOf("one", "two")
	c.Entries = []format.Entry{
		&format.TopicCreated{ID: 1, Partitions: 2, Name: "orders"},
		s.row(1, 0, 0, b, 0),
	}
	inline := s.put(c, b)
	far, data := s.far(1, 0xabc, batchOf("three"), batchOf("four", "five"))
	return s, []string{format.ClusterKey, inline, far, data, s.checkpoint()}
}

// A deep check finds a change of any byte, except for the few that mean nothing.
func TestDeepCheckNoticesEveryChangedBit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, keys := smallLog(t)
		wantFindings(t, check(t, s.store(), true))
		for _, key := range keys {
			body := s.objects[key]
			unnoticed := map[int]bool{}
			for at := range body {
				for bit := range 8 {
					changed := bytes.Clone(body)
					changed[at] ^= 1 << bit
					r, err := fsck.Check(t.Context(), s.change(key, changed).store(), fsck.Options{Deep: true})
					if err == nil && r.Damage() == 0 && len(r.Of(fsck.Newer)) == 0 {
						unnoticed[at] = true
					}
				}
			}
			for at := range body {
				if unnoticed[at] && !meansNothing(body, at) {
					t.Errorf("%s: byte %d of %d can change unnoticed", key, at, len(body))
				}
			}
		}
	})
}

// meansNothing reports whether the byte at a position belongs to the base offset or leader epoch
// of a batch. The CRC does not cover these, since brokers stamp them.
func meansNothing(body []byte, at int) bool {
	p, err := format.DecodePrologue(body)
	if err != nil || p.Kind == format.KindCheckpoint {
		return false
	}
	for from := int(p.End()); from < len(body); {
		x, err := record.Parse(body[from:])
		if err != nil {
			return false
		}
		if in := at - from; in >= 0 && in < x.Size {
			return in < 8 || in >= 12 && in < 16
		}
		from += x.Size
	}
	return false
}

func TestCheckNoticesEveryTruncation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, keys := smallLog(t)
		for _, key := range keys {
			body := s.objects[key]
			for size := range body {
				r := check(t, s.change(key, body[:size:size]).store(), false)
				wantFindings(t, r, "corrupt "+key)
			}
			wantFindings(t, check(t, s.change(key, append(bytes.Clone(body), 0)).store(), false), "corrupt "+key)
		}
	})
}

// A check without --deep reads all heads, and every byte of checkpoints and seb.json.
func TestShallowCheckNoticesEveryChangedByteOfHeads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, keys := smallLog(t)
		for _, key := range keys {
			body := s.objects[key]
			end := len(body)
			if p, err := format.DecodePrologue(body); err == nil && p.Kind != format.KindCheckpoint {
				end = int(p.End())
			}
			for at := range end {
				changed := bytes.Clone(body)
				changed[at] ^= 0x40
				r, err := fsck.Check(t.Context(), s.change(key, changed).store(), fsck.Options{})
				if err == nil && r.Damage() == 0 && len(r.Of(fsck.Newer)) == 0 && !meansNothing(body, at) {
					t.Errorf("%s: byte %d can change unnoticed", key, at)
				}
			}
		}
	})
}
