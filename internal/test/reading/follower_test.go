package reading_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

func mustFollow(t testing.TB, b *seb.Broker, partition int32, from seb.Position) *seb.Follower {
	t.Helper()
	f, err := b.NewFollower(t.Context(), "t", partition, from)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A partition that always has more records doesn't keep a follower from the others.
func TestFollowerServesPartitionsInTurn(t *testing.T) {
	b := open(t, objstore.NewMemory(), immediate())
	mustCreateTopic(t, b, "t", 3)
	for p := range int32(3) {
		appendTo(t, b, p, 4)
	}
	f := mustFollow(t, b, seb.AllPartitions, seb.Earliest)
	var got []string
	for range 6 {
		rs, err := f.Next(t.Context(), seb.FetchOptions{Limit: 2})
		if err != nil || len(rs) != 2 {
			t.Fatal(len(rs), err)
		}
		got = append(got, fmt.Sprintf("%d/%d", rs[0].Partition, rs[0].Offset))
	}
	if want := []string{"0/0", "1/0", "2/0", "0/2", "1/2", "2/2"}; !cmp.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if rs, err := f.Next(t.Context(), seb.FetchOptions{}); len(rs) > 0 || err != nil {
		t.Errorf("at the end: %v, %v", rs, err)
	}
}

// A follower of one partition reads only that one.
func TestFollowerOfOnePartition(t *testing.T) {
	b := open(t, objstore.NewMemory(), immediate())
	mustCreateTopic(t, b, "t", 3)
	for p := range int32(3) {
		appendTo(t, b, p, int(p)+1)
	}
	f := mustFollow(t, b, 2, seb.Earliest)
	rs, err := f.Next(t.Context(), seb.FetchOptions{})
	if err != nil || len(rs) != 3 {
		t.Fatalf("got %d records, want the 3 of partition 2: %v", len(rs), err)
	}
	for i, r := range rs {
		if r.Partition != 2 || r.Offset != seb.Offset(i) {
			t.Errorf("record %d is at %d/%d", i, r.Partition, r.Offset)
		}
	}
}

// A waiting follower gets what other brokers append, also in partitions that they add.
func TestFollowerSeesWhatOtherBrokersDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		a, b := open(t, store, immediate()), open(t, store, immediate())
		mustCreateTopic(t, a, "t", 2)
		f := mustFollow(t, b, seb.AllPartitions, seb.Earliest)
		for _, p := range []int32{1, 0} {
			appendTo(t, a, p, 1)
			if got, want := take(t, f, 1)[0], fmt.Sprintf("%d/0", p); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		if _, err := a.UpdateTopic(t.Context(), "t", seb.TopicUpdate{Partitions: new(int32(4))}); err != nil {
			t.Fatal(err)
		}
		appendTo(t, a, 3, 1)
		start := time.Now()
		if got := take(t, f, 1)[0]; got != "3/0" {
			t.Errorf("got %s, want 3/0", got)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		if got, want := f.Bookmark().Offsets, []seb.Offset{1, 1, 0, 1}; !cmp.Equal(got, want) {
			t.Errorf("it stands at %v, want %v", got, want)
		}
		if ready, err := f.Wait(t.Context(), time.Second); ready || err != nil {
			t.Errorf("at the end: %v, %v", ready, err)
		}
	})
}

// While followers wait, the broker only syncs. A hundred of them cause no more syncs than one.
func TestFollowersShareTheirWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, store := newFaulty()
		_ = mem
		b := open(t, store, immediate())
		mustCreateTopic(t, b, "t", 10)
		var wg sync.WaitGroup
		before := store.Count(objstore.VerbGet, "")
		for range 100 {
			f := mustFollow(t, b, seb.AllPartitions, seb.Latest)
			wg.Go(func() {
				if got := take(t, f, 1); got[0] != "7/0" {
					t.Errorf("got %s", got)
				}
			})
		}
		time.Sleep(50 * time.Second)
		if n := store.Count(objstore.VerbGet, "") - before; n > 12 {
			t.Errorf("100 followers that wait cost %d requests in 50 s", n)
		}
		appendTo(t, b, 7, 1)
		wg.Wait()
	})
}

func TestFollowerGoesOnWhereABookmarkSays(t *testing.T) {
	store := objstore.NewMemory()
	b := open(t, store, immediate())
	mustCreateTopic(t, b, "t", 2)
	appendTo(t, b, 0, 5)
	appendTo(t, b, 1, 5)
	for _, partition := range []int32{seb.AllPartitions, 0, 1} {
		f := mustFollow(t, b, partition, seb.Last(3))
		var marks []seb.Bookmark
		var got []string
		for {
			marks = append(marks, f.Bookmark())
			rs, err := f.Next(t.Context(), seb.FetchOptions{Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			if len(rs) == 0 {
				break
			}
			got = append(got, fmt.Sprintf("%d/%d", rs[0].Partition, rs[0].Offset))
			next := marks[len(marks)-1]
			next.Offsets = append([]seb.Offset(nil), next.Offsets...)
			if next.Advance(rs[0]); !cmp.Equal(next, f.Bookmark()) {
				t.Errorf("behind %v: %v, want %v", got, next, f.Bookmark())
			}
		}
		for i, m := range marks {
			resumed, err := b.ResumeFollower(t.Context(), "t", m)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for _, r := range append(append([]string{}, got[:i]...), take(t, resumed, len(got)-i)...) {
				if seen[r] {
					t.Errorf("after %d: %s came twice", i, r)
				}
				seen[r] = true
			}
		}
	}
}

func TestFollowerRefusals(t *testing.T) {
	b := open(t, objstore.NewMemory(), immediate())
	mustCreateTopic(t, b, "t", 2)
	mustCreateTopic(t, b, "wide", seb.FollowPartitionsMax-100)
	appendTo(t, b, 0, 2)
	for name, c := range map[string]struct {
		topic     string
		partition int32
		from      seb.Position
		code      seb.Code
	}{
		"no topic":             {"none", seb.AllPartitions, seb.Earliest, seb.CodeTopicNotFound},
		"no name":              {"", seb.AllPartitions, seb.Earliest, seb.CodeInvalidTopicName},
		"no partition":         {"t", 2, seb.Earliest, seb.CodePartitionNotFound},
		"below all partitions": {"t", -2, seb.Earliest, seb.CodePartitionNotFound},
		"one offset for two":   {"t", seb.AllPartitions, seb.At(1), seb.CodeInvalidRequest},
		"beyond the end":       {"t", 0, seb.At(3), seb.CodeOffsetOutOfRange},
		"before the start":     {"t", 0, seb.At(-1), seb.CodeOffsetOutOfRange},
	} {
		if f, err := b.NewFollower(t.Context(), c.topic, c.partition, c.from); f != nil || seb.CodeOf(err) != c.code || seb.OutcomeOf(err) != seb.Unknown {
			t.Errorf("%s: %v, %v; want %s", name, f, err, c.code)
		}
	}
	good := mustFollow(t, b, seb.AllPartitions, seb.Earliest).Bookmark()
	for name, bend := range map[string]func(*seb.Bookmark){
		"of nothing":   func(m *seb.Bookmark) { *m = seb.Bookmark{} },
		"no offsets":   func(m *seb.Bookmark) { m.Offsets = nil },
		"two of one":   func(m *seb.Bookmark) { m.Partition = 0 },
		"below all":    func(m *seb.Bookmark) { m.Partition = -2 },
		"other bucket": func(m *seb.Bookmark) { m.Cluster = "00000000" },
		"other topic":  func(m *seb.Bookmark) { m.Topic++ },
		"too many":     func(m *seb.Bookmark) { m.Offsets = []seb.Offset{0, 0, 0} },
		"beyond":       func(m *seb.Bookmark) { m.Offsets = []seb.Offset{0, 1} },
		"negative":     func(m *seb.Bookmark) { m.Offsets = []seb.Offset{0, -1} },
	} {
		m := good
		bend(&m)
		if f, err := b.ResumeFollower(t.Context(), "t", m); f != nil || err == nil {
			t.Errorf("%s: %v, %v; want an error", name, f, err)
		}
	}
}

func TestFollowerReportsWhyItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b := openOnly(t, store, immediate())
		mustCreateTopic(t, b, "t", 2)
		wait := func() <-chan error {
			f := mustFollow(t, b, seb.AllPartitions, seb.Earliest)
			ended := make(chan error, 1)
			go func() {
				_, err := f.Wait(t.Context(), time.Hour)
				ended <- err
			}()
			synctest.Wait()
			return ended
		}
		deleted := wait()
		if err := b.DeleteTopic(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		wantCode(t, <-deleted, seb.CodeTopicNotFound)

		mustCreateTopic(t, b, "t", 1)
		ctx, cancel := context.WithCancel(t.Context())
		f := mustFollow(t, b, seb.AllPartitions, seb.Earliest)
		cancel()
		_, err := f.Wait(ctx, time.Hour)
		wantCode(t, err, seb.CodeCanceled)

		closed := wait()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		wantCode(t, <-closed, seb.CodeBrokerClosed)
	})
}
