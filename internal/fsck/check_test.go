package fsck_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/fsck"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// long returns a log with that many slots and a checkpoint every hundred.
func long(t testing.TB, slots int) *smith {
	s := newSmith(t)
	s.entries(&format.TopicCreated{ID: 1, Partitions: 1, Name: "events"})
	for i := 2; i <= slots; i++ {
		s.records(1, "one")
		if i%100 == 0 {
			s.checkpoint()
		}
	}
	return s
}

func TestCheckOnlyReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newAgedLog(t)
		l.delete(l.live, l.newest) // so that the check takes all its paths
		f := storetest.NewFaulty(l.store())
		f.On(objstore.VerbCreate, "", storetest.Fail)
		f.On(objstore.VerbDelete, "", storetest.Fail)
		wantFindings(t, check(t, f, true), "missing "+l.live)
		if n := f.Count(objstore.VerbCreate, "") + f.Count(objstore.VerbDelete, ""); n > 0 {
			t.Errorf("it sent %d creates and deletes", n)
		}
	})
}

// A store that sometimes fails, or damages bytes, does not mean a damaged log.
func TestCheckAsksAgain(t *testing.T) {
	for name, fault := range map[string]storetest.Fault{
		"fails":     storetest.Times(5, storetest.Fail),
		"bends":     storetest.Times(2, storetest.FlipByte(33)),
		"cuts":      storetest.Times(2, storetest.Truncate(10)),
		"cuts ends": storetest.Times(2, storetest.Truncate(120)),
		"is late": storetest.Times(2, func(_ context.Context, q storetest.Request, _ storetest.Next) (storetest.Answer, error) {
			return storetest.Answer{}, objstore.ErrNotFound
		}),
	} {
		t.Run(name, func(t *testing.T) {
			for _, prefix := range []string{"log/00000000000000000002", "data/", "checkpoint/00000000000000000007", "seb.json"} {
				bubble(t, func(t *testing.T) {
					l := newAgedLog(t)
					l.delete(l.dataDead)
					f := storetest.NewFaulty(l.store())
					f.On(objstore.VerbGet, prefix, fault)
					wantFindings(t, check(t, f, true))
				})
			}
		})
	}
	bubble(t, func(t *testing.T) {
		f := storetest.NewFaulty(long(t, 3).store())
		f.On(objstore.VerbList, "", storetest.Times(5, storetest.Fail))
		wantFindings(t, check(t, f, true))
	})
}

// A store that does not answer ends the check, and is not reported as damage. The report has
// what was found before.
func TestStoreThatFailsIsNoDamage(t *testing.T) {
	for _, test := range []struct {
		verb objstore.Verb
		key  string
	}{
		{objstore.VerbList, ""},
		{objstore.VerbGet, "seb.json"},
		{objstore.VerbGet, "log/00000000000000000050"},
		{objstore.VerbGet, "checkpoint/00000000000000000100"},
	} {
		bubble(t, func(t *testing.T) {
			s := long(t, 220)
			s.objects["log/00000000000000000007"][40] ^= 1
			f := storetest.NewFaulty(s.store())
			f.On(test.verb, test.key, storetest.Fail)
			r, err := fsck.Check(t.Context(), f, fsck.Options{})
			if !errors.Is(err, storetest.ErrInjected) || !strings.Contains(err.Error(), "all 6 attempts failed") || r.Complete {
				t.Errorf("%s %s: %v, complete: %v", test.verb, test.key, err, r.Complete)
			}
			if strings.HasPrefix(test.key, "log/") || strings.HasPrefix(test.key, "checkpoint/") {
				wantFindings(t, r, "corrupt log/00000000000000000007")
			}
		})
	}
}

// When its context ends, a check stops all workers before it returns.
func TestCheckEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := storetest.NewFaulty(long(t, 200).store())
		f.On(objstore.VerbGet, "log/00000000000000000100", storetest.Hold(nil))
		var last fsck.Progress
		done := make(chan error)
		go func() {
			_, err := fsck.Check(ctx, f, fsck.Options{Progress: func(p fsck.Progress) { last = p }})
			done <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		if last.Objects < 99 || last.Objects > 120 || last.Total != 202 {
			t.Errorf("progress is %+v", last)
		}
	})
}

// With 100 ms per request and 16 requests at once, 100,000 commits take minutes.
func TestCheckReadsSideBySide(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const slots = 1600
		s := long(t, slots)
		begun := time.Now()
		wantFindings(t, check(t, storetest.Slow(s.store(), 100*time.Millisecond), true))
		if took := time.Since(begun); took > 15*time.Second { // 10 s for the slots, and 16 checkpoints
			t.Errorf("%d slots took %v", slots, took)
		}
	})
}

func TestNothingToCheck(t *testing.T) {
	for name, objects := range map[string][]string{
		"empty":         nil,
		"only probes":   {"probe/1"},
		"not of Seb's":  {"notes.txt", "photos/1.jpg", "log/today", "data/1"},
		"other numbers": {"log/00000000000000000000", "log/99999999999999999999"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &smith{TB: t, objects: map[string][]byte{}}
			for _, key := range objects {
				s.objects[key] = []byte("x")
			}
			if _, err := fsck.Check(t.Context(), s.store(), fsck.Options{}); !errors.Is(err, fsck.ErrNoLog) {
				t.Errorf("it says %v", err)
			}
		})
	}
}

// A bucket that has only seb.json is sound.
func TestNewBucketIsWhole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := check(t, newSmith(t).store(), true)
		wantFindings(t, r)
		if r.Last != 0 || r.Cluster != "01020300000000000000000000000000" {
			t.Errorf("it says %+v", r)
		}
	})
}

// Answers to a List that brokers would refuse are no damage.
func TestUnorderedListsAreNoDamage(t *testing.T) {
	for name, lie := range map[string]storetest.Fault{
		"shuffled": storetest.ShuffleList(rand.New(rand.NewPCG(1, 1))), "endless": storetest.EndlessList,
		"repeating": storetest.RepeatInList(rand.New(rand.NewPCG(1, 1))),
	} {
		bubble(t, func(t *testing.T) {
			f := storetest.NewFaulty(long(t, 20).store())
			f.On(objstore.VerbList, "", lie)
			r, err := fsck.Check(t.Context(), f, fsck.Options{})
			if err == nil || r.Complete || r.Damage() != 0 {
				t.Errorf("%s: %v, complete: %v, %d damages", name, err, r.Complete, r.Damage())
			}
		})
	}
}

// The first versions of Seb wrote seb.json without a checksum.
func TestClusterFileWithoutChecksumIsSound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := long(t, 3)
		old := regexp.MustCompile(`,\n  "crc32c": "[0-9a-f]{8}"`).ReplaceAll(s.objects[format.ClusterKey], nil)
		wantFindings(t, check(t, s.change(format.ClusterKey, old).store(), true))
	})
}

// A damaged id in seb.json says nothing about the log, even if the log has a single object.
func TestDamagedIDInTheClusterFileMakesNothingForeign(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSmith(t)
		s.put(s.next(), nil)
		damaged := bytes.Replace(s.objects[format.ClusterKey], []byte("010203"), []byte("090203"), 1)
		wantFindings(t, check(t, s.change(format.ClusterKey, damaged).store(), true), "corrupt "+format.ClusterKey)
	})
}

// A broker of an earlier version wrote the same state in an older format.
func TestCheckpointOfAnEarlierSnapshotVersionIsCompared(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := long(t, 3)
		body := s.state.View().Encode()
		if body[0] != 5 || !bytes.HasSuffix(body, []byte{1, 0, 0, 0, 0}) {
			t.Fatalf("the snapshot is not of version 5, or has queues or sessions: %x", body)
		}
		old := bytes.Clone(body[:len(body)-5]) // version 3 has no queues, delayed records or sessions
		old[0] = 3
		key := format.CheckpointKey(s.state.Seq())
		as := func(body []byte) *smith {
			c := &format.Checkpoint{Cluster: s.cluster, Seq: s.state.Seq(), Hash: s.prev, Body: body}
			return s.change(key, append(format.EncodeCheckpoint(c), body...))
		}
		wantFindings(t, check(t, as(old).store(), true))
		old[2]++ // the id of the next topic
		wantFindings(t, check(t, as(old).store(), true), "corrupt "+key)
	})
}
