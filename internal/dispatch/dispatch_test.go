package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// fake is a broker whose commits are decided at once. Its log has one topic with one partition, and
// one queue, both with id 1. The records' keys are in keys.
type fake struct {
	t    *testing.T
	all  *dispatch.Dispatchers
	keys []string

	committing sync.Mutex // held during a commit, as real commits come one after the other
	live       state.Live
	seq        format.Seq

	// before, between and after, if set, are called once, by the next call of Commit. When between is called, the
	// state has applied the commit, and the dispatchers have not noted it.
	hooks                  sync.Mutex
	before, between, after func()

	failing    map[format.Offset]error // by offset: the error of reading from there
	missing    map[format.Offset]bool  // offsets without a record
	unreadable atomic.Pointer[error]
	done       chan struct{}
	followers  atomic.Int32

	dead  []string // dead letters, as "offset#attempt"
	syncs atomic.Int32
	tasks sync.WaitGroup
}

func newFake(t *testing.T, config format.QueueConfig) *fake {
	t.Helper()
	f := &fake{t: t, live: state.Live{State: state.New()}, done: make(chan struct{})}
	f.all = dispatch.New(f, dispatch.Options{State: f.live.Viewer(), Memory: 1 << 20, Session: format.SessionKey{1}, Logger: slog.New(slog.DiscardHandler), Life: t.Context()})
	f.commit(
		&format.TopicCreated{ID: 1, Partitions: 1, Name: "t"},
		&format.QueueSet{ID: 1, Topic: 1, Name: "work", Config: config},
	)
	return f
}

func config() format.QueueConfig {
	return format.QueueConfig{LeaseMS: 10_000, Attempts: 2}
}

// plain is a change whose entries need no check.
type plain []format.Entry

func (x plain) Apply(*state.Draft) ([]format.Entry, error) { return x, nil }

// deadLetter is the change that makes a record a dead letter, on behalf of the queue's owner.
type deadLetter struct {
	queue format.QueueID
	epoch format.Epoch
	last  leases.Delivery
}

func (x deadLetter) Apply(d *state.Draft) ([]format.Entry, error) {
	return []format.Entry{&format.RecordPutBack{
		Queue: x.queue, Partition: x.last.Partition, Attempt: format.Attempt{Offset: x.last.Offset, Number: x.last.Attempt}, NotBefore: d.Time(), DeadLetter: true,
	}}, dispatch.CheckOwner(d, x.queue, x.epoch)
}

// commit applies entries as a broker does.
func (f *fake) commit(entries ...format.Entry) {
	f.t.Helper()
	if err := f.Commit(f.t.Context(), dispatch.Request{Change: plain(entries)}); err != nil {
		f.t.Fatal(err)
	}
}

// append appends records with these keys.
func (f *fake) append(keys ...string) {
	f.t.Helper()
	f.hooks.Lock()
	base := len(f.keys)
	f.keys = append(f.keys, keys...) // before the commit, which wakes receivers
	f.hooks.Unlock()
	f.commit(&format.Batch{Topic: 1, Base: format.Offset(base), Count: uint32(len(keys)), Size: 1})
}

// reach is how many records the dispatch limit of a new owner is ahead.
const reach = 8

// own makes a session the owner of the queue.
func (f *fake) own(session format.SessionKey, epoch format.Epoch) {
	f.t.Helper()
	f.commit(
		&format.QueueOwned{Queue: 1, Epoch: epoch, Windows: []format.Offset{reach}},
		&format.SessionNamed{Session: session, Queue: 1, Epoch: epoch},
	)
}

// open makes this broker the owner.
func (f *fake) open() *dispatch.Dispatcher {
	f.t.Helper()
	if err := f.all.TakeOver(f.t.Context(), f.owner(), false, 1); err != nil {
		f.t.Fatal(err)
	}
	d := f.all.Of(1)
	if d == nil {
		f.t.Fatal("the queue has no dispatcher")
	}
	return d
}

// owner returns the queue's owner.
func (f *fake) owner() (o dispatch.Owner) {
	f.live.View(func(s *state.State) { _, o = f.all.Owner(s.QueueByID(1)) })
	return o
}

// Commit implements dispatch.Broker.
func (f *fake) Commit(_ context.Context, r dispatch.Request) error {
	f.hooks.Lock()
	before, between, after := f.before, f.between, f.after
	f.before, f.between, f.after = nil, nil, nil
	f.hooks.Unlock()
	if before != nil {
		before()
	}
	err := f.decide(r.Change, between)
	if after != nil {
		after()
	}
	return err
}

func (f *fake) decide(c dispatch.Change, between func()) error {
	f.committing.Lock()
	defer f.committing.Unlock()
	now := time.Now()
	d := f.live.State.Draft(now.UnixMicro())
	entries, err := c.Apply(d)
	if err != nil {
		return &dispatch.CommitError{Err: err}
	}
	for _, it := range entries {
		if err := d.Take(it); err != nil {
			return &dispatch.CommitError{Err: err}
		}
	}
	for _, it := range f.all.Ride(d, entries) {
		if err := d.Take(it); err != nil {
			return &dispatch.CommitError{Err: err}
		}
		entries = append(entries, it)
	}
	f.seq++
	at := state.Moment{At: now, US: now.UnixMicro()}
	f.all.Applying(entries, at)
	f.live.Lock()
	err = f.live.State.Apply(&format.Commit{Seq: f.seq, Time: now.UnixMicro(), Entries: entries, PayloadSize: 1})
	f.live.Unlock()
	if err != nil {
		return &dispatch.CommitError{Err: err}
	}
	if between != nil {
		between()
	}
	f.all.Applied(f.live.State, entries, at)
	return nil
}

// DeadLetter implements dispatch.Broker.
func (f *fake) DeadLetter(ctx context.Context, d *dispatch.Dispatcher, last leases.Delivery, attempts int) error {
	err := f.Commit(ctx, dispatch.Request{Change: deadLetter{d.Queue(), d.Epoch(), last}})
	f.live.Lock()
	defer f.live.Unlock()
	f.dead = append(f.dead, fmt.Sprintf("%d#%d", last.Offset, attempts))
	return err
}

// Read implements dispatch.Broker.
func (f *fake) Read(_ context.Context, _ *dispatch.Dispatcher, first leases.Place, records int, _ int64) (dispatch.Records, int, error) {
	if err := f.failing[first.Offset]; err != nil {
		return nil, 0, err
	}
	f.hooks.Lock()
	defer f.hooks.Unlock()
	rest := f.keys[first.Offset:]
	n := min(records, len(rest))
	for i := range n {
		if f.failing[first.Offset+format.Offset(i)] != nil {
			n = i
			break
		}
	}
	var found keys
	for i, key := range rest[:n] {
		if offset := first.Offset + format.Offset(i); !f.missing[offset] {
			found = append(found, keyed{offset, key})
		}
	}
	return found, n, nil
}

// Sync implements dispatch.Broker.
func (f *fake) Sync(context.Context) error {
	f.syncs.Add(1)
	return nil
}

// SyncToAct implements dispatch.Broker.
func (f *fake) SyncToAct(context.Context) error {
	if err := f.unreadable.Load(); err != nil {
		return *err
	}
	return nil
}

// Follow implements dispatch.Broker.
func (f *fake) Follow() (leave func()) {
	f.followers.Add(1)
	return func() { f.followers.Add(-1) }
}

// Done implements dispatch.Broker.
func (f *fake) Done() <-chan struct{} { return f.done }

// StoreNow implements dispatch.Broker.
func (f *fake) StoreNow() time.Time { return time.Now() }

// Go implements dispatch.Broker.
func (f *fake) Go(g func()) { f.tasks.Go(g) }

type keys []keyed

type keyed struct {
	offset format.Offset
	key    string
}

func (ks keys) Find(offset format.Offset) (int, bool) {
	i := slices.IndexFunc(ks, func(k keyed) bool { return k.offset == offset })
	return i, i >= 0
}

func (ks keys) Key(i int) []byte  { return []byte(ks[i].key) }
func (ks keys) Bytes(i int) int64 { return int64(len(ks[i].key)) }
func (ks keys) Own() int64        { return int64(len(ks)) }

// take returns what a receiver of up to most records gets after it has waited, as "offset#attempt".
func take(t *testing.T, d *dispatch.Dispatcher, most int) string {
	t.Helper()
	for {
		synctest.Wait()
		got := d.Take(time.Now(), dispatch.Want{Max: most, Admitted: most})
		if got.Need != nil {
			if err := d.Load(t.Context(), *got.Need); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got.Turn != nil {
			synctest.Wait()
			select {
			case <-got.Turn:
				continue
			default:
				d.GiveTurn(got.Turn)
			}
		}
		var out []string
		for _, x := range got.Out {
			out = append(out, fmt.Sprintf("%d#%d", x.Offset, x.Attempt))
		}
		return strings.Join(out, " ")
	}
}

func wantTaken(t *testing.T, d *dispatch.Dispatcher, most int, want string) {
	t.Helper()
	if got := take(t, d, most); got != want {
		t.Errorf("handed out %q, want %q", got, want)
	}
}

func TestRecordsGoToOneReceiverEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.append("a", "b", "c")
		d := f.open()
		wantTaken(t, d, 2, "0#1 1#1")
		wantTaken(t, d, 2, "2#1")
		wantTaken(t, d, 2, "")
		f.commit(&format.RecordsDone{Queue: 1, Runs: []format.Run{{Offset: 0, Count: 2, Number: 1}}})
		f.append("d")
		wantTaken(t, d, 9, "3#1")
	})
}

// While a commit that lowers a limit is under way, the owner keeps to the lower limit, even if the limit is 0.
func TestLimitThatFallsToZeroHoldsDuringItsCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.commit(&format.PartitionsAdded{Topic: 1, Partitions: 2})
		f.keys = make([]string, 10)
		f.commit(&format.Batch{Topic: 1, Partition: 1, Count: 10, Size: 1})
		d := f.open() // partition 0 is empty, so the limit of partition 1 covers all that the scan reaches first
		draft := f.live.State.Draft(time.Now().UnixMicro())
		appended := &format.Batch{Topic: 1, Partition: 0, Count: 10, Size: 1}
		if err := draft.Take(appended); err != nil {
			t.Fatal(err)
		}
		lowered := false
		for _, it := range f.all.Ride(draft, []format.Entry{appended}) {
			if moved, ok := it.(*format.WindowMoved); ok && moved.Partition == 1 {
				lowered = moved.Window == 0
			}
		}
		if !lowered {
			t.Fatal("the commit does not lower the limit of partition 1 to 0")
		}
		got := d.Take(time.Now(), dispatch.Want{Max: 5, Admitted: 5})
		if len(got.Out) > 0 || got.Turn == nil {
			t.Errorf("handed out %v", got.Out)
		}
		d.GiveTurn(got.Turn)
	})
}

func TestAttemptsAreCountedBeforeRecordsGoOutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.append("a")
		d := f.open()
		wantTaken(t, d, 1, "0#1")
		time.Sleep(10 * time.Second) // the lease
		wantTaken(t, d, 1, "0#2")
		f.live.View(func(s *state.State) {
			if a, ok := s.QueueByID(1).Last(0, 0); !ok || a.Number != 2 {
				t.Errorf("the log has %+v, %v", a, ok)
			}
		})
		time.Sleep(10 * time.Second)
		wantTaken(t, d, 1, "")
		if got := strings.Join(f.dead, " "); got != "0#2" {
			t.Errorf("dead letters: %q, want the second attempt of offset 0", got)
		}
	})
}

// A worker says twice that it failed. The second answer comes between the claim of the next attempt
// and its commit. The next receiver claims the attempt again before the first claim is settled.
func TestRecordThatIsPutBackDuringItsClaimGoesOutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.append("a")
		d := f.open()
		wantTaken(t, d, 1, "0#1")
		putBack := &format.RecordPutBack{Queue: 1, Attempt: format.Attempt{Number: 1}, NotBefore: time.Now().UnixMicro()}
		f.commit(putBack)
		f.before = func() { f.commit(putBack) }
		f.after = func() {
			f.hooks.Lock()
			f.before = func() { time.Sleep(time.Millisecond) } // the next claim comes after this one is settled
			f.hooks.Unlock()
			if got := d.Take(time.Now(), dispatch.Want{Max: 5, Admitted: 5}); got.Turn != nil {
				d.GiveTurn(got.Turn)
			}
		}
		wantTaken(t, d, 1, "")
		time.Sleep(time.Millisecond)
		wantTaken(t, d, 1, "0#2")
	})
}

func TestDelayedRecordsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		d := f.open()
		due := time.Now().Add(time.Minute).UnixMicro()
		f.commit(&format.Batch{Topic: 1, Count: 1, Size: 1}, &format.RecordsDelayed{Topic: 1, Count: 1, Due: due})
		f.keys = append(f.keys, "a")
		wantTaken(t, d, 1, "")
		time.Sleep(time.Minute - time.Millisecond)
		wantTaken(t, d, 1, "")
		time.Sleep(time.Millisecond)
		wantTaken(t, d, 1, "0#1")
	})
}

func TestOneRecordOfAKeyAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config()
		c.Ordered = true
		f := newFake(t, c)
		f.append("a", "a", "b")
		d := f.open()
		wantTaken(t, d, 9, "0#1 2#1")
		f.commit(&format.RecordsDone{Queue: 1, Runs: []format.Run{{Offset: 0, Count: 1, Number: 1}}})
		wantTaken(t, d, 9, "1#1")
	})
}

func TestAnotherOwnerEndsTheDispatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.append("a")
		d := f.open()
		f.own(format.SessionKey{2}, 2)
		if f.all.Of(1) != nil || !f.all.HasLost(f.owner()) {
			t.Error("the queue still has a dispatcher")
		}
		if got := d.Take(time.Now(), dispatch.Want{Max: 1, Admitted: 1}); got.Out != nil || got.Turn != nil {
			t.Errorf("it hands out %+v", got)
		}
		if err := d.Show(t.Context()); !errors.Is(err, dispatch.ErrNotOwner) {
			t.Errorf("a change of the owner before: %v", err)
		}
	})
}

func TestReleaseReportsWhatIsWithWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.append("a", "b")
		d := f.open()
		wantTaken(t, d, 1, "0#1")
		f.all.Release(t.Context())
		f.live.View(func(s *state.State) {
			q := s.QueueByID(1)
			if a, listed := q.Last(0, 0); q.Owned || !listed || a.Number != 1 {
				t.Errorf("owned: %v, offset 0: %+v, %v", q.Owned, a, listed)
			}
			if a, listed := q.Last(0, 1); listed {
				t.Errorf("offset 1, which nobody got: %+v", a)
			}
		})
	})
}
