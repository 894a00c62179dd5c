package queue_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/test/kit"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// While parked records are read, their topic is deleted, and another topic gets its name and as many
// records.
func TestDeadLetterIsNotShownAsThatOfAnotherTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b := open(t, memory, kit.InVirtualTime(immediate()))
		q := queueOf(t, b, 3, 200<<10)
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1)})
		ms := mustReceive(t, q, 3, 0)
		if err := q.Nack(t.Context(), seb.NackOptions{}, ms[0].Token, ms[2].Token); err != nil { // these records are not adjacent, so they are read one by one
			t.Fatal(err)
		}
		other := open(t, faulty, kit.InVirtualTime(immediate())) // a broker without cached records
		again := false
		defer faulty.On(objstore.VerbGet, "log/", func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
			if a, err := next(ctx, r); again || err != nil {
				return a, err
			}
			again = true
			if err := b.DeleteTopic(t.Context(), "t"); err != nil {
				t.Error(err)
			}
			mustCreateTopic(t, b, "t", 1)
			appendTo(t, b, 0, 3)
			time.Sleep(2 * time.Second) // the reader syncs again
			return next(ctx, r)
		})()
		dead, _, _, err := other.Queue("t", "work").Dead(t.Context(), seb.DeadOptions{})
		if seb.CodeOf(err) != seb.CodeQueueNotFound {
			t.Errorf("shows %d records, %v", len(dead), err)
		}
	})
}

// parkMany makes the first n records of queue "work" of topic "t" dead letters.
func parkMany(t *testing.T, q *seb.Queue, n int) {
	t.Helper()
	mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1)})
	for ; n > 0; n -= 1000 {
		if err := q.Nack(t.Context(), seb.NackOptions{Reason: "no such address"}, tokens(mustReceive(t, q, min(n, 1000), 0))...); err != nil {
			t.Fatal(err)
		}
	}
}

// A page of parked records costs memory only for its own records, however many there are in the queue.
func TestPageOfDeadLettersTakesMemoryForItselfAlone(t *testing.T) {
	b := open(t, objstore.NewMemory(), immediate())
	q := queueOf(t, b, 20_000, 10)
	parkMany(t, q, 20_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const pages = 20
	from := seb.Place{}
	for i := range pages {
		dead, next, more, err := q.Dead(t.Context(), seb.DeadOptions{From: from, Limit: 10})
		if err != nil || len(dead) != 10 || dead[0].Offset != seb.Offset(10*i) || !more || next.Offset != dead[9].Offset+1 || len(dead[9].Value) != 10 {
			t.Fatalf("page %d: %+v, %v, %v, %v", i, dead, next, more, err)
		}
		from = next
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / pages; each > 1<<20 {
		t.Errorf("a page of 10 records takes %d bytes", each)
	}
}

// A record that is too large for the rest of a page is not kept in memory with the page.
func TestPageOfDeadLettersKeepsNoRecordOfTheNextPage(t *testing.T) {
	b := open(t, objstore.NewMemory(), immediate())
	q := queueOf(t, b, 3, 1000)
	mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1)})
	ms := mustReceive(t, q, 3, 0)
	if err := q.Nack(t.Context(), seb.NackOptions{}, ms[0].Token, ms[2].Token); err != nil { // these records are not adjacent, so they are read one by one
		t.Fatal(err)
	}
	dead, next, more, err := q.Dead(t.Context(), seb.DeadOptions{MaxBytes: 1500})
	if err != nil || len(dead) != 1 || len(dead[0].Value) != 1000 || !more || next.Offset != 2 {
		t.Fatalf("%d records, %+v, %v, %v", len(dead), next, more, err)
	}
	for _, x := range dead[1:cap(dead)] {
		if x.Value != nil {
			t.Errorf("the page keeps offset %d, which it does not show", x.Offset)
		}
	}
}

func TestRedriveReportsHowManyRemain(t *testing.T) {
	b := open(t, objstore.NewMemory(), immediate())
	q := queueOf(t, b, 50, 10)
	parkMany(t, q, 50)
	for _, x := range []struct {
		o    seb.RedriveOptions
		want seb.Redriven
	}{
		{seb.RedriveOptions{Limit: 20}, seb.Redriven{Records: 20, Remaining: 30}},
		{seb.RedriveOptions{Places: []seb.Place{{Offset: 0}, {Offset: 40}}}, seb.Redriven{Records: 1, Remaining: 29}},
		{seb.RedriveOptions{}, seb.Redriven{Records: 29}},
		{seb.RedriveOptions{}, seb.Redriven{}},
	} {
		if got, err := q.Redrive(t.Context(), x.o); err != nil || got != x.want {
			t.Errorf("redrive %+v: %+v, %v; want %+v", x.o, got, err, x.want)
		}
	}
}
