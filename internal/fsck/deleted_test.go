package fsck_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/fsck"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// agedLog is a log of which brokers may delete some objects. Topic 1 exists, topic 2 was
// deleted; each has an inline batch and a data object. The fields are keys.
type agedLog struct {
	*smith
	create, live, dead         string // slots 1 to 3
	farLive, farDead, drop     string // slots 4 to 6
	dataLive, dataDead, middle string // data objects of slots 4 and 5, checkpoint of slot 6
	later, newest, tail        string // slot 7, its checkpoint, slot 8
}

func newAgedLog(t testing.TB) agedLog {
	s := newSmith(t)
	l := agedLog{smith: s}
	l.create = s.entries(&format.TopicCreated{ID: 1, Partitions: 1, Name: "live"}, &format.TopicCreated{ID: 2, Partitions: 1, Name: "dead"})
	l.live, l.dead = s.records(1, "one"), s.records(2, "two")
	l.farLive, l.dataLive = s.far(1, 10, batchOf("three"), batchOf("four"))
	l.farDead, l.dataDead = s.far(2, 11, batchOf("five"))
	l.drop = s.entries(&format.TopicDeleted{ID: 2})
	l.middle = s.checkpoint()
	l.later = s.records(1, "six")
	l.newest = s.checkpoint()
	l.tail = s.records(1, "seven")
	return l
}

// An absent object is missing unless the rules allow brokers to delete it.
func TestAbsentIsMissingOnlyIfNeeded(t *testing.T) {
	for _, test := range []struct {
		name   string
		delete func(l agedLog) []string
		want   func(l agedLog) []string
	}{
		{"nothing", func(agedLog) []string { return nil }, func(agedLog) []string { return nil }},
		{"all that is dead", func(l agedLog) []string { return []string{l.create, l.dead, l.farLive, l.farDead, l.drop, l.dataDead} },
			func(l agedLog) []string { return []string{"deleted " + l.create, "deleted " + l.dead + " " + l.drop} }},
		{"a dead data object", func(l agedLog) []string { return []string{l.dataDead} }, func(agedLog) []string { return nil }},
		{"a live slot", func(l agedLog) []string { return []string{l.live} }, func(l agedLog) []string { return []string{"missing " + l.live} }},
		{"a live data object", func(l agedLog) []string { return []string{l.dataLive} }, func(l agedLog) []string { return []string{"missing " + l.dataLive} }},
		{"a live data object and the slot of it", func(l agedLog) []string { return []string{l.dataLive, l.farLive} },
			func(l agedLog) []string { return []string{"missing " + l.dataLive, "deleted " + l.farLive} }},
		{"the older checkpoint", func(l agedLog) []string { return []string{l.middle} }, func(agedLog) []string { return nil }},
		{"checkpoints, with what is dead", func(l agedLog) []string { return []string{l.middle, l.newest, l.dead} },
			func(l agedLog) []string { return []string{"missing " + l.dead} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := newAgedLog(t)
				l.delete(test.delete(l)...)
				for _, deep := range []bool{false, true} {
					wantFindings(t, check(t, l.store(), deep), test.want(l)...)
				}
			})
		})
	}
}

// A data object that only a checkpoint knows is verified by the rows in the state.
func TestDataObjectWithoutItsCommitIsVerified(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newAgedLog(t)
		l.delete(l.farLive)
		body := slices.Clone(l.objects[l.dataLive])
		// Another valid batch of the same size: only the row shows that it is wrong.
		copy(body[format.DataPayloadStart:], batchOf("THREE"))
		r := check(t, l.change(l.dataLive, body).store(), true)
		wantFindings(t, r, "corrupt "+l.dataLive, "deleted "+l.farLive)
		if d := r.Findings[0].Detail; !strings.Contains(d, "topic 1 partition 0 offsets 1 to 1") || !strings.Contains(d, "a checkpoint refers to it") {
			t.Errorf("it does not say what is damaged: %s", d)
		}
		if r := check(t, l.store(), true); r.Batches != 7 { // all batches: the lost slot had none
			t.Errorf("%d batches were read", r.Batches)
		}
	})
}

// A commit after a gap, which can't be compared with the commit before, is compared with the
// next checkpoint.
func TestSlotAfterAGapIsComparedWithTheCheckpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newAgedLog(t)
		l.delete(l.create, l.dead)
		c, err := format.DecodeCommit(l.objects[l.live])
		if err != nil {
			t.Fatal(err)
		}
		payload := l.objects[l.live][c.PayloadStart:]
		c.Nonce[0] ^= 1
		r := check(t, l.change(l.live, append(format.EncodeCommit(c), payload...)).store(), true)
		wantFindings(t, r, "corrupt "+l.live, "deleted "+l.create, "deleted "+l.dead)
	})
}

// during returns a store that calls change after the bucket was listed and before a slot is
// read.
func during(store *objstore.Memory, change func(ctx context.Context)) objstore.Store {
	var once sync.Once
	f := storetest.NewFaulty(store)
	f.On(objstore.VerbGet, format.ClusterKey, func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
		once.Do(func() { change(ctx) })
		return next(ctx, q)
	})
	return f
}

// While a check runs, brokers may delete objects that a newer checkpoint has made superfluous.
func TestWhatVanishesIsJudgedByNewerCheckpoints(t *testing.T) {
	for _, test := range []struct {
		name       string
		checkpoint bool
	}{{"deleted", true}, {"lost", false}} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := newAgedLog(t)
				store := l.store()
				before := newAgedLog(t)
				before.entries(&format.TopicDeleted{ID: 1})
				after := before.checkpoint()
				gone := []string{l.live, l.dataLive, l.later, l.tail}
				r := check(t, during(store, func(ctx context.Context) {
					if test.checkpoint {
						mustCreate(ctx, t, store, after, before.objects[after])
					}
					for _, key := range gone {
						mustDelete(ctx, t, store, key)
					}
				}), false)
				if test.checkpoint {
					wantFindings(t, r)
					return
				}
				wantFindings(t, r, "missing "+l.dataLive, "missing "+l.live, "missing "+l.later, "missing "+l.tail)
			})
		})
	}
}

// A commit is deleted after its head was read and before its records are.
func TestSlotThatVanishesInTheMiddle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSmith(t)
		s.entries(&format.TopicCreated{ID: 1, Partitions: 1, Name: "events"})
		large := s.records(1, strings.Repeat("x", 300<<10)) // is read by two Gets
		s.records(1, "one")
		f := storetest.NewFaulty(s.store())
		f.On(objstore.VerbGet, large, storetest.After(1, func(context.Context, storetest.Request, storetest.Next) (storetest.Answer, error) {
			return storetest.Answer{}, objstore.ErrNotFound
		}))
		wantFindings(t, check(t, f, true), "missing "+large)
	})
}

// A broker may delete a checkpoint if two newer ones exist.
func TestCheckpointThatVanishes(t *testing.T) {
	for _, test := range []struct {
		name  string
		newer int
		want  []string
	}{
		{"two newer", 2, nil},
		{"one newer", 1, []string{"missing checkpoint/00000000000000000007"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := newAgedLog(t)
				store := l.store()
				grown := newAgedLog(t)
				var added []string
				for range test.newer {
					grown.records(1, "more")
					added = append(added, grown.checkpoint())
				}
				r := check(t, during(store, func(ctx context.Context) {
					for _, key := range added {
						mustCreate(ctx, t, store, key, grown.objects[key])
					}
					mustDelete(ctx, t, store, l.newest)
				}), false)
				wantFindings(t, r, test.want...)
			})
		})
	}
}

// A checkpoint that Lists show but a Get does not find is missing.
func TestCheckpointThatIsListedButNotFoundIsMissing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newAgedLog(t)
		l.checkpoint() // now two are newer
		f := storetest.NewFaulty(l.store())
		f.On(objstore.VerbGet, l.middle, func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
			q.Key = "checkpoint/00000000000000000099"
			return next(ctx, q)
		})
		wantFindings(t, check(t, f, false), "missing "+l.middle)
	})
}

// An introduction is an object that no commit needs.
func TestIntroductions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSmith(t)
		s.entries(&format.TopicCreated{ID: 1, Partitions: 1, Name: "events"})
		introduce := func(id uint64, change func(x *format.Introduction)) string {
			x := &format.Introduction{Cluster: s.cluster, Ref: format.DataRef{Seq: 1, ID: id}, Session: format.SessionKey{7}}
			key := x.Ref.Key()
			change(x)
			s.objects[key] = format.EncodeIntroduction(x)
			return key
		}
		sound := introduce(1, func(*format.Introduction) {})
		foreign := introduce(2, func(x *format.Introduction) { x.Cluster[0]++ })
		moved := introduce(3, func(x *format.Introduction) { x.Ref.ID = 1 })
		damaged := introduce(4, func(*format.Introduction) {})
		s.objects[damaged][90] ^= 1
		long := introduce(5, func(*format.Introduction) {})
		s.objects[long] = append(s.objects[long], 0)
		wantFindings(t, check(t, s.store(), true), "corrupt "+damaged, "corrupt "+long, "foreign "+foreign, "foreign "+moved, "possibly in use "+sound)

		// A commit can't have its records in one.
		for _, key := range []string{foreign, moved, damaged, long} {
			delete(s.objects, key)
		}
		_, used := s.far(1, 9, batchOf("one"))
		wantFindings(t, check(t, s.store(), true), "possibly in use "+sound)
		ref, _ := format.ParseDataKey(used)
		s.objects[used] = format.EncodeIntroduction(&format.Introduction{Cluster: s.cluster, Ref: ref, Session: format.SessionKey{7}})
		wantFindings(t, check(t, s.store(), true), "corrupt "+used, "possibly in use "+sound)
	})
}

func TestOrphans(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSmith(t)
		s.entries(&format.TopicCreated{ID: 1, Partitions: 1, Name: "events"})
		old := s.upload(0, 1, batchOf("dead"))
		for range 1001 {
			s.records(1, "one")
		}
		young := s.upload(900, 2, batchOf("perhaps"))
		damaged := s.upload(900, 3, batchOf("bad"))
		s.objects[damaged.Key()][40] ^= 1
		s.objects["probe/1234"] = []byte("x")
		s.objects["sub/seb.json"] = []byte("{}")
		r := check(t, s.store(), true)
		wantFindings(t, r, "corrupt "+damaged.Key(), "orphaned "+old.Key(), "possibly in use "+young.Key(),
			"leftover probe/1234", "stray sub/seb.json")
		if got := r.Of(fsck.Orphaned)[0].Bytes; got != int64(old.Size) {
			t.Errorf("the orphan has %d bytes, not %d", got, old.Size)
		}

		// The data floor decides: no later commit may refer to them.
		s.delete(damaged.Key())
		s.entries(&format.DataFloor{Seq: 901})
		wantFindings(t, check(t, s.store(), true), "orphaned "+old.Key(), "orphaned "+young.Key(), "leftover probe/1234", "stray sub/seb.json")

		// A lost commit may have referred to the data objects.
		s.delete(s.entries(&format.DataFloor{Seq: 901}))
		s.records(1, "two")
		r = check(t, s.store(), false)
		wantFindings(t, r, "missing log/00000000000000001004", "possibly in use "+old.Key(), "possibly in use "+young.Key(), "leftover probe/1234", "stray sub/seb.json")
	})
}

func TestSameDataObjectInTwoCommitsIsDamage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSmith(t)
		s.entries(&format.TopicCreated{ID: 1, Partitions: 1, Name: "events"})
		b := batchOf("once")
		ref := s.upload(1, 7, b)
		var key string
		for range 2 {
			c := s.next()
			c.Data, c.Entries = []format.DataRef{ref}, []format.Entry{s.row(1, 1, 0, b, s.end(1))}
			key = s.put(c, nil)
		}
		wantFindings(t, check(t, s.store(), true), "corrupt "+key)
	})
}

// A second commit with the same data object is damage even if the first commit is lost, and only
// a checkpoint knows the object.
func TestSameDataObjectAsOfALostCommitIsDamage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSmith(t)
		s.entries(&format.TopicCreated{ID: 1, Partitions: 1, Name: "events"})
		b := batchOf("once")
		first, data := s.far(1, 7, b)
		s.checkpoint()
		c := s.next()
		c.Data = []format.DataRef{{Seq: 1, ID: 7, Size: uint32(len(s.objects[data]))}}
		c.Entries = []format.Entry{s.row(1, 1, 0, b, s.end(1))}
		second := s.put(c, nil)
		s.delete(first)
		wantFindings(t, check(t, s.store(), true), "corrupt "+second, "deleted "+first)
	})
}

// If a topic is deleted before a commit with its batches, the data object has batches without a
// row.
func TestBatchesThatNoRowKnowsAreVerified(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSmith(t)
		s.entries(&format.TopicCreated{ID: 1, Partitions: 1, Name: "events"})
		first, second, third := batchOf("dropped"), batchOf("kept"), batchOf("dropped too")
		ref := s.upload(1, 7, first, second, third)
		c := s.next()
		c.Data, c.Entries = []format.DataRef{ref}, []format.Entry{s.row(1, 1, len(first), second, 0)}
		s.put(c, nil)
		r := check(t, s.store(), true)
		wantFindings(t, r)
		if r.Batches != 3 {
			t.Errorf("%d batches were read, not 3", r.Batches)
		}
		for _, at := range []int{len(first) - 1, len(first) + len(second) + len(third) - 1} {
			body := slices.Clone(s.objects[ref.Key()])
			body[format.DataPayloadStart+at] ^= 1
			wantFindings(t, check(t, s.change(ref.Key(), body).store(), true), "corrupt "+ref.Key())
		}
		// Their number must be the one in the head.
		h, err := format.DecodeDataHead(s.objects[ref.Key()])
		if err != nil {
			t.Fatal(err)
		}
		h.Batches++
		body := append(format.EncodeDataHead(h), s.objects[ref.Key()][format.DataPayloadStart:]...)
		wantFindings(t, check(t, s.change(ref.Key(), body).store(), true), "corrupt "+ref.Key())
	})
}

func mustCreate(ctx context.Context, t *testing.T, store objstore.Store, key string, b []byte) {
	t.Helper()
	if _, err := store.Create(ctx, key, b); err != nil {
		t.Error(err)
	}
}

func mustDelete(ctx context.Context, t *testing.T, store objstore.Store, key string) {
	t.Helper()
	if _, err := store.Delete(ctx, key); err != nil {
		t.Error(err)
	}
}
