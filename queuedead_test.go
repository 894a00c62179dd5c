package seb_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// TestParkedRecordIsNotShownAsThatOfAnotherTopic: while parked records are read, their topic
// is deleted, and another gets its name and as many records.
func TestParkedRecordIsNotShownAsThatOfAnotherTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b := open(t, memory, seb.InVirtualTime(immediate()))
		q := queueOf(t, b, 2, 200<<10)
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1)})
		ms := mustReceive(t, q, 2, 0)
		if err := q.Nack(t.Context(), seb.NackOptions{}, tokens(ms)...); err != nil {
			t.Fatal(err)
		}
		other := open(t, faulty, seb.InVirtualTime(immediate())) // which has nothing in its cache
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
			appendTo(t, b, 0, 2)
			time.Sleep(2 * time.Second) // the reader looks at the log again
			return next(ctx, r)
		})()
		dead, _, _, err := other.Queue("t", "work").Dead(t.Context(), seb.DeadOptions{})
		if seb.CodeOf(err) != seb.CodeQueueNotFound {
			t.Errorf("shows %d records, %v", len(dead), err)
		}
	})
}
