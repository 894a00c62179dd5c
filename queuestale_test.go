package seb

import (
	"context"
	"testing"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// written is a change with these entries, whatever the state is.
type written []format.Entry

func (x written) Apply(*state.Draft) ([]format.Entry, error) { return x, nil }

// The owner of a queue lowers the dispatch limit, raises it again, and then hands out a record. Another broker gets the answer
// of the worker while it knows the first limit, so it does not sync. When it builds the commit, it knows the lower limit, and not
// the last one. It must not refuse the answer before it knows all of the log.
func TestAnswerIsNotRefusedByALowerLimitOfThePast(t *testing.T) {
	answers := []*change.Answer{{Token: "token", Queue: 1, Delivery: leases.Delivery{Place: leases.Place{Offset: 10}, Attempt: 1}}}
	for name, answer := range map[string]func(names change.QueueName, synced bool) engine.Change{
		"ack": func(names change.QueueName, synced bool) engine.Change {
			return change.AckRecords{QueueName: names, Answers: answers, Synced: synced}
		},
		"nack": func(names change.QueueName, synced bool) engine.Change {
			return change.NackRecords{QueueName: names, Answers: answers, Synced: synced}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, store := t.Context(), objstore.NewMemory()
			faulty := storetest.NewFaulty(store)
			open := func(store objstore.Store) *Broker {
				b, err := Open(ctx, store, Options{Batching: Immediate()})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := b.Close(); err != nil {
						t.Error(err)
					}
				})
				return b
			}
			owner := open(store)
			if _, err := owner.Append(ctx, "t", make([]Record, 30)); err != nil {
				t.Fatal(err)
			}
			if _, err := owner.Queue("t", "q").Create(ctx, QueueUpdate{}, Earliest); err != nil {
				t.Fatal(err)
			}
			write := func(entry format.Entry) (applied format.Seq) {
				t.Helper()
				if err := owner.engine.Commit(ctx, &engine.Request{Synced: true, Change: written{entry}}); err != nil {
					t.Fatal(err)
				}
				return owner.engine.Applied()
			}
			write(&format.QueueOwned{Queue: 1, Epoch: 1, Windows: []format.Offset{20}})
			other := open(faulty)
			lowered := write(&format.WindowMoved{Queue: 1, Epoch: 1, Window: 5})
			raised := write(&format.WindowMoved{Queue: 1, Epoch: 1, Window: 20})

			q := other.Queue("t", "q")
			synced, err := q.syncUnlessLast(ctx, answers)
			if err != nil || synced {
				t.Fatalf("synced: %v, %v", synced, err)
			}
			restore := faulty.On(objstore.VerbGet, format.LogKey(raised), func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
				a, _ := next(ctx, r)
				return storetest.Answer{Time: a.Time}, objstore.ErrNotFound // as before the slot was written
			})
			if err := other.engine.Sync(ctx); err != nil || other.engine.Applied() != lowered {
				t.Fatalf("at slot %d instead of %d: %v", other.engine.Applied(), lowered, err)
			}
			restore()
			if err := other.engine.Commit(ctx, &engine.Request{Change: answer(q.names(), synced)}); err != nil {
				t.Fatal(err)
			}
			if err := errorsOf(answers); err != nil {
				t.Error(err)
			}
		})
	}
}
