package fault_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/test/loglines"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// wantFull fails unless err says at once, in its detail, that the store is full, and that nothing was committed.
func wantFull(t *testing.T, began time.Time, err error) {
	t.Helper()
	wantCode(t, err, seb.CodeStoreUnavailable)
	wantOutcome(t, err, seb.NotCommitted)
	var e *seb.Error
	if !errors.As(err, &e) || !strings.Contains(e.Detail, "the store is full") || !strings.Contains(e.Hint, "make room") || !errors.Is(err, objstore.ErrFull) {
		t.Errorf("got %v, want a detail that names the cause", err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the refusal took %v", took)
	}
}

// A store that is full refuses a commit for certain, so the callers learn at once that nothing was committed.
// As soon as there is room, the broker takes appends again.
func TestAFullStoreIsNamedAtOnce(t *testing.T) {
	for name, value := range map[string]string{"in the commit": "small", "in a data object": large("large", 5<<20)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				log := &lines{}
				opts := immediate()
				opts.Logger = loglines.Text(t, log, slog.LevelInfo)
				b := open(t, faulty, opts)
				mustAppend(t, b, "t", "before")
				undo := faulty.On(objstore.VerbCreate, "", storetest.Full)
				for range 100 {
					began := time.Now()
					_, err := b.Append(t.Context(), "t", values(value))
					wantFull(t, began, err)
					if err := b.Status().Err; err != nil {
						t.Fatalf("the broker still serves reads, but its status has %v", err)
					}
				}
				wantValues(t, b, "t", "before")
				if got := strings.Count(log.String(), "\n"); got != 2 { // that it recovered, and one line for all refusals
					t.Errorf("the log has %d lines:\n%s", got, log.String())
				}
				if !strings.Contains(log.String(), `level=ERROR msg="the store is full`) || !strings.Contains(log.String(), `hint="make room on the disk of the test"`) {
					t.Errorf("the log is\n%s", log.String())
				}
				undo()
				mustAppend(t, b, "t", value)
				kill(t, b)
				wantValues(t, open(t, memory, immediate()), "t", "before", value)
			})
		})
	}
}

// A store that has no room, but may have written the object, is named once the time for the append is over.
func TestAStoreThatMayHaveWrittenIsNamedAsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		b := open(t, faulty, immediate())
		mustAppend(t, b, "t", "before")
		faulty.On(objstore.VerbCreate, "", func(_ context.Context, r storetest.Request, _ storetest.Next) (storetest.Answer, error) {
			return storetest.Answer{}, fmt.Errorf("create %s: %w", r.Key, &objstore.Failure{Detail: "the store is full: no space", Hint: "make room", Full: true, Err: storetest.ErrInjected})
		})
		_, err := b.Append(t.Context(), "t", values("v"))
		wantCode(t, err, seb.CodeStoreUnavailable)
		wantOutcome(t, err, seb.Unknown)
		var e *seb.Error
		if !errors.As(err, &e) || !strings.Contains(e.Detail, ": the store is full") {
			t.Errorf("got %v, want a detail that names the cause", err)
		}
	})
}

// If the store is full only after a claim whose reply was lost, the claim may have won its slot: the broker
// finds out, and the append has its outcome.
func TestAFullStoreDoesNotHideAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		b := open(t, faulty, immediate())
		mustAppend(t, b, "t", "before")
		lost := storetest.Times(1, storetest.LoseReply)
		undo := faulty.On(objstore.VerbCreate, format.LogPrefix, lost)
		undoFull := faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.After(1, storetest.Full))
		mustAppend(t, b, "t", "won, although the reply was lost")
		undoFull()
		undo()

		fail := faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Times(1, storetest.Fail))
		full := faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Full)
		began := time.Now()
		go func() {
			time.Sleep(5 * time.Second)
			full()
			fail()
		}()
		mustAppend(t, b, "t", "late")
		if time.Since(began) < 5*time.Second {
			t.Error("an append was acknowledged while the store was full")
		}
		wantValues(t, b, "t", "before", "won, although the reply was lost", "late")
	})
}

// lines keeps what is written to it.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
