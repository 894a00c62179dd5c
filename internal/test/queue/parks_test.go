package queue_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/test/kit"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// The last leases of many records end at the same time, and the records are copied to the dead-letter
// topic. Only a few of them may be in memory that no budget counts.
func TestRecordsAreCopiedAFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 50
		memory, faulty := newFaulty()
		b := open(t, memory, immediate())
		mustCreateTopic(t, b, "dead", 1)
		q := queueOf(t, b, records, 200<<10)
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1), DeadLetterTopic: ptr("dead")})
		ms, err := q.Receive(t.Context(), seb.ReceiveOptions{Max: records, MaxBytes: 1 << 30})
		if err != nil || len(ms) != records {
			t.Fatalf("%d records, %v", len(ms), err)
		}

		var reading, most atomic.Int64
		defer faulty.On(objstore.VerbGet, "log/", func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
			n := reading.Add(1)
			defer reading.Add(-1)
			most.Store(max(n, most.Load()))
			time.Sleep(10 * time.Millisecond)
			return next(ctx, r)
		})()
		owner := open(t, faulty, immediate()) // a broker without cached records
		q = owner.Queue("t", "work")
		most.Store(0)
		wantHanded(t, mustReceive(t, q, records, 10*time.Minute), "[]") // all records are uncertain
		if n := most.Load(); n < 2 || n > 20 {
			t.Errorf("%d records were read at one time", n)
		}
		if info, err := q.Describe(t.Context()); err != nil || info.Dead != records {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

// A record that can't be read is not parked without its copy. Its worker is told that nothing was
// done, and to try again.
func TestRecordThatCanNotBeCopiedNowIsNotADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b := open(t, memory, immediate())
		mustCreateTopic(t, b, "dead", 1)
		q := queueOf(t, b, 1, 200<<10)
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1), DeadLetterTopic: ptr("dead")})
		token := mustReceive(t, q, 1, 0)[0].Token
		other := open(t, faulty, immediate()).Queue("t", "work") // a broker without cached records
		undo := faulty.On(objstore.VerbGet, "log/", func(context.Context, storetest.Request, storetest.Next) (storetest.Answer, error) {
			return storetest.Answer{}, storetest.ErrInjected
		})
		var told *seb.TokensError
		if err := other.Nack(t.Context(), seb.NackOptions{}, token); !errors.As(err, &told) {
			t.Fatalf("%v", err)
		}
		wantCode(t, told.Errors[0], seb.CodeStoreUnavailable)
		if got := seb.OutcomeOf(told.Errors[0]); got != seb.NotCommitted {
			t.Errorf("the outcome is %q", got)
		}
		undo()
		if err := other.Nack(t.Context(), seb.NackOptions{}, token); err != nil {
			t.Error(err)
		}
	})
}

// A token that is sent twice in one request gets the same result twice, even if its record could not
// be parked.
func TestTokenThatIsSentTwiceGetsTheSameResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		opts := immediate()
		opts.AppendTimeout = time.Second
		b := open(t, faulty, opts)
		mustCreateTopic(t, b, "dead", 1)
		q := queueOf(t, b, 1, 10)
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1), DeadLetterTopic: ptr("dead")})
		token := mustReceive(t, q, 1, 0)[0].Token
		defer faulty.On(objstore.VerbCreate, "log/", func(context.Context, storetest.Request, storetest.Next) (storetest.Answer, error) {
			return storetest.Answer{}, storetest.ErrInjected
		})()
		var told *seb.TokensError
		if err := q.Nack(t.Context(), seb.NackOptions{}, token, token); !errors.As(err, &told) {
			t.Fatalf("%v", err)
		}
		for _, err := range told.Errors {
			wantCode(t, err, seb.CodeStoreUnavailable)
		}
	})
}

// A record may have the largest size and the most headers that are allowed. The headers that its copy
// has in addition must not prevent the copy.
func TestLargestRecordIsCopiedToTheDeadLetterTopic(t *testing.T) {
	b := open(t, objstore.NewMemory(), immediate())
	mustCreateTopic(t, b, "t", 1)
	mustCreateTopic(t, b, "dead", 1)
	q := b.Queue("t", "work")
	mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1), DeadLetterTopic: ptr("dead")})
	limits := b.Limits()
	large := seb.Record{Value: make([]byte, limits.RecordBytes)}
	many := seb.Record{Headers: slices.Repeat([]seb.Header{{Name: "a"}}, limits.RecordHeaders)}
	for _, r := range []seb.Record{large, many} {
		if _, err := b.Append(t.Context(), "t", []seb.Record{r}); err != nil {
			t.Fatal(err)
		}
		if err := q.Nack(t.Context(), seb.NackOptions{}, tokens(mustReceive(t, q, 1, 0))...); err != nil {
			t.Fatal(err)
		}
	}
	f, err := b.Fetch(t.Context(), "dead", 0, seb.Earliest, seb.FetchOptions{MaxBytes: 1 << 30})
	if err != nil || len(f.Records) != 2 || len(f.Records[0].Value) != limits.RecordBytes || len(f.Records[1].Headers) != limits.RecordHeaders+7 {
		t.Fatalf("%d copies, %v", len(f.Records), err)
	}
	for _, r := range f.Records {
		if last := r.Headers[len(r.Headers)-1]; last.Name != seb.DeadReasonHeader {
			t.Errorf("the copy's last header is %q", last.Name)
		}
	}
}

// All records that are with workers fail for the last time at once, while the store accepts no
// commits. The cost of that is bounded, and in the end all records are parked.
func TestDeadLettersAreCommittedSomeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 3000
		_, faulty := newFaulty()
		b := open(t, faulty, kit.InVirtualTime(immediate()))
		q := queueOf(t, b, 0, 0)
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1)})
		if _, err := b.Append(t.Context(), "t", batchOf(records, 1)); err != nil {
			t.Fatal(err)
		}
		for range records / 1000 {
			if n := len(mustReceive(t, q, 1000, 0)); n != 1000 {
				t.Fatalf("%d are handed out", n)
			}
		}
		time.Sleep(31 * time.Second)
		release := make(chan struct{})
		defer faulty.On(objstore.VerbCreate, "log/", storetest.Hold(release))()
		before := runtime.NumGoroutine()
		wantHanded(t, mustReceive(t, q, 1, 0), "[]")
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n < 2 || n > 500 {
			t.Errorf("%d goroutines more than before", n)
		}
		close(release)
		time.Sleep(5 * time.Second)
		if info, err := q.Describe(t.Context()); err != nil || info.Dead != records || info.Leased != 0 || info.Ready != 0 {
			t.Errorf("%+v, %v", info, err)
		}
	})
}
