package fsck_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// pagedLog is a log with two pages of idempotency keys. The fields are keys of objects.
type pagedLog struct {
	*smith
	slots       []string // before the checkpoint
	pages       []string
	orphan, far string // a page to which nothing refers, and a data object with records
}

// page writes a page with the oldest keys that are in no page, and returns the entry about it.
func (s *smith) page(id uint64, keys int) *format.PageStored {
	list := s.state.PlanPage(1, 1<<20)[:keys]
	object, p := format.EncodePage(s.cluster, format.DataRef{Seq: s.state.Seq(), ID: id}, 0, state.EncodeKeyed(list), uint32(keys))
	s.objects[p.Ref.Key()] = object
	return &format.PageStored{Page: p, First: list[0].Key}
}

func newPagedLog(t testing.TB) pagedLog {
	s := newSmith(t)
	l := pagedLog{smith: s}
	l.slots = append(l.slots, s.entries(&format.LevelRaised{Level: format.LevelSegments, DeleteDelay: time.Hour}, &format.TopicCreated{ID: 1, Partitions: 1, Name: "t"}))
	var keys []format.Entry
	for i := range 10 {
		keys = append(keys, &format.AppendKeyed{Key: format.Digest{byte(i)}})
	}
	l.slots = append(l.slots, s.entries(keys...))
	var slot string
	slot, l.far = s.far(1, 30, batchOf("one"))
	l.slots = append(l.slots, slot)
	for i, n := range []int{3, 4} {
		p := s.page(uint64(10+i), n)
		l.pages = append(l.pages, p.Ref.Key())
		l.slots = append(l.slots, s.entries(p))
	}
	l.orphan = s.page(20, 1).Ref.Key()
	s.checkpoint()
	s.entries(&format.AppendKeyed{Key: format.Digest{100}})
	s.entries(s.page(12, 4)) // after the checkpoint
	return l
}

func TestPagesAreChecked(t *testing.T) {
	flip := func(b []byte) []byte {
		b = bytes.Clone(b)
		b[len(b)-1] ^= 1
		return b
	}
	for _, test := range []struct {
		name   string
		change func(l *pagedLog)
		want   func(l *pagedLog) []string // findings of all checks
		deep   func(l *pagedLog) []string // further findings of a deep check of a log with all its commits
		start  func(l *pagedLog) []string // further findings of any check that begins with the checkpoint
	}{
		{name: "sound", change: func(*pagedLog) {}},
		{
			name: "missing", change: func(l *pagedLog) { l.delete(l.pages[1]) },
			want: func(l *pagedLog) []string { return []string{"missing " + l.pages[1]} },
		},
		{
			name: "damaged", change: func(l *pagedLog) { l.objects[l.pages[0]] = flip(l.objects[l.pages[0]]) },
			deep:  func(l *pagedLog) []string { return []string{"corrupt " + l.pages[0]} },
			start: func(l *pagedLog) []string { return []string{"corrupt " + l.pages[0]} },
		},
		{
			name: "cut off", change: func(l *pagedLog) { b := l.objects[l.pages[0]]; l.objects[l.pages[0]] = b[:len(b)-1] },
			want: func(l *pagedLog) []string { return []string{"corrupt " + l.pages[0]} },
		},
		{
			name: "other keys in its place", change: func(l *pagedLog) {
				key := l.pages[0]
				_, p, err := format.DecodePageHead(l.objects[key])
				if err != nil {
					l.Fatal(err)
				}
				l.objects[key], _ = format.EncodePage(l.cluster, p.Ref, 0, state.EncodeKeyed([]state.Keyed{{Key: format.Digest{1}}}), 1)
			},
			want: func(l *pagedLog) []string { return []string{"corrupt " + l.pages[0]} },
		},
		{
			name: "a page of another log", change: func(l *pagedLog) {
				key := l.pages[0]
				_, p, err := format.DecodePageHead(l.objects[key])
				if err != nil {
					l.Fatal(err)
				}
				l.objects[key], _ = format.EncodePage(format.ClusterID{9}, p.Ref, 0, l.objects[key][p.Pos:], p.Keys)
			},
			want: func(l *pagedLog) []string { return []string{"foreign " + l.pages[0]} },
		},
		{
			name: "records in its place", change: func(l *pagedLog) { l.objects[l.pages[0]] = l.objects[l.far] },
			want: func(l *pagedLog) []string { return []string{"corrupt " + l.pages[0]} },
		},
		{
			name: "keys in the place of records", change: func(l *pagedLog) { l.objects[l.far] = l.objects[l.orphan] },
			want: func(l *pagedLog) []string { return []string{"foreign " + l.far} },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				for _, deep := range []bool{false, true} {
					for _, fromCheckpoint := range []bool{false, true} {
						l := newPagedLog(t)
						test.change(&l)
						want := []string{"possibly in use " + l.orphan}
						if test.want != nil {
							want = append(want, test.want(&l)...)
						}
						if fromCheckpoint {
							l.delete(l.slots...)
							want = append(want, "deleted "+l.slots[0]+" "+l.slots[len(l.slots)-1])
							if test.start != nil {
								want = append(want, test.start(&l)...)
							}
						} else if deep && test.deep != nil {
							want = append(want, test.deep(&l)...)
						}
						got := check(t, l.store(), deep)
						found := findings(got)
						slices.Sort(found)
						slices.Sort(want)
						if !slices.Equal(found, want) {
							t.Errorf("deep %v, from the checkpoint %v: found %v, not %v", deep, fromCheckpoint, found, want)
							for _, f := range got.Findings {
								t.Logf("%s %s: %s", f.Class, f.Key, f.Detail)
							}
						}
					}
				}
			})
		})
	}
}

// A page whose keys are all forgotten may be gone.
func TestDeletedPageIsNotMissing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newPagedLog(t)
		c := l.next()
		c.Time += state.KeyedFor.Microseconds()
		l.put(c, nil)
		l.checkpoint()
		l.delete(l.pages...)
		for _, deep := range []bool{false, true} {
			r := check(t, l.store(), deep)
			for _, f := range r.Findings {
				if !strings.HasPrefix(string(f.Class), "possibly in use") {
					t.Errorf("%s %s: %s", f.Class, f.Key, f.Detail)
				}
			}
		}
	})
}

// A page whose keys are all forgotten stays in the store for the delete delay, mostly longer than the commit that named it.
func TestDeadPageIsSoundWithoutItsCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, deep := range []bool{false, true} {
			for _, damaged := range []bool{false, true} {
				l := newPagedLog(t)
				c := l.next()
				c.Time += state.KeyedFor.Microseconds()
				l.put(c, nil)
				l.checkpoint()
				l.delete(l.slots...)
				want := []string{"possibly in use " + l.orphan, "deleted " + l.slots[0] + " " + l.slots[len(l.slots)-1]}
				if damaged {
					b := l.objects[l.pages[0]]
					l.objects[l.pages[0]] = b[:len(b)-1]
					want = append(want, "corrupt "+l.pages[0])
				}
				got := findings(check(t, l.store(), deep))
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("deep %v, damaged %v: found %v, not %v", deep, damaged, got, want)
				}
			}
		}
	})
}
