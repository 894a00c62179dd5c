package queue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// A commit goes on when its caller gives up. The caller is not told a number that the commit may count
// later.
func TestCallerThatGivesUpGetsNoOffset(t *testing.T) {
	for name, call := range map[string]func(context.Context, *seb.Queue) (int, error){
		"purge": func(ctx context.Context, q *seb.Queue) (int, error) {
			n, err := q.Purge(ctx)
			return int(n), err
		},
		"redrive": func(ctx context.Context, q *seb.Queue) (int, error) {
			n, err := q.Redrive(ctx, seb.RedriveOptions{})
			return n.Records, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, faulty := newFaulty()
				b := open(t, faulty, immediate())
				mustCreateTopic(t, b, "t", 1)
				q := b.Queue("t", "work")
				mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1)})
				appendTo(t, b, 0, 1)
				if err := q.Nack(t.Context(), seb.NackOptions{}, mustReceive(t, q, 1, 0)[0].Token); err != nil {
					t.Fatal(err)
				}
				defer faulty.On(objstore.VerbCreate, "", storetest.Times(1, storetest.Delay(5*time.Second)))()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				n, err := call(ctx, q)
				wantCode(t, err, seb.CodeCanceled)
				wantOutcome(t, err, seb.Unknown)
				if n != 0 {
					t.Errorf("%d records, perhaps", n)
				}
			})
		})
	}
}
