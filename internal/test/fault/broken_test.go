package fault_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// Every request of a client to a broker ends within this time, whatever the store does: an append
// within its own limit of 30 s and the sync before it, a start within the time that five tries of each
// of its requests may take.
const brokenBound = 2 * time.Minute

// lie is one way in which a store breaks its promise.
type lie struct {
	name string
	// tell makes the store lie to one broker from now on.
	tell func(r *brokenRun, w *witnessed)
	// hand changes the bucket once; undo reverts that before the audit.
	hand, undo func(r *brokenRun)
	// forks: two writers may both be told that they won a slot. Then both have acknowledged a record
	// there, and no broker can keep both promises. What must still hold: no broker contradicts what
	// it has itself acknowledged or served, and the brokers that go on agree.
	forks bool
	// stale: the store shows less than it has, and nothing tells that there was more; or requests
	// fail, and a broker goes on with what it knows. A broker may be behind others, but it never goes
	// back.
	stale bool
	// harmless: brokers cope with the lie, and none stops.
	harmless bool
	// noCrash: brokers are closed, not killed, since a create that is cut off would leave a partial
	// object for ever.
	noCrash bool
	// seldom: it may happen that the lie has no effect that could be noticed.
	seldom bool
}

// brokenRun is two brokers on a bucket that breaks its promise, and all that they told any client.
type brokenRun struct {
	t         *testing.T
	rng       *rand.Rand
	bucket    *storetest.Bucket
	opts      seb.Options
	lie       lie
	lying     bool
	past      time.Time // there are records from before this time, and from after it
	begun     time.Time // when the lie began
	undone    atomic.Bool
	elsewhere storetest.Fault // leads to the copy that a broker was moved to
	brokers   [2]*witnessed
	serial    int

	acked   map[seb.Offset]string // acknowledged by any broker
	refused map[string]bool       // values that must never be in the log
	notices []notice
}

// notice is an error by which the lie was noticed.
type notice struct {
	code  seb.Code
	after time.Duration
}

// witnessed is a broker, and what it has acknowledged or served in its life.
type witnessed struct {
	*seb.Broker
	index  int
	faulty *storetest.Faulty
	shown  map[seb.Offset]string
	end    seb.Offset
}

func newBrokenRun(t *testing.T, l lie, seed uint64) *brokenRun {
	opts := forgetful()
	opts.CheckpointCommits = 4
	opts.StaleMax = time.Nanosecond
	r := &brokenRun{
		t: t, rng: newRand(seed), bucket: storetest.NewBucket(), opts: opts, lie: l,
		acked: map[seb.Offset]string{}, refused: map[string]bool{},
	}
	return r
}

// open starts broker i. The broker may refuse to start.
func (r *brokenRun) open(i int) {
	r.t.Helper()
	w := &witnessed{index: i, faulty: storetest.NewFaulty(r.bucket), shown: map[seb.Offset]string{}}
	w.faulty.On("", "", storetest.Delay(5*time.Millisecond))
	if r.lying && r.lie.tell != nil {
		r.lie.tell(r, w)
	}
	r.bounded("open", func(ctx context.Context) (err error) {
		w.Broker, err = seb.Open(ctx, w.faulty, r.opts)
		r.judge(err)
		return err
	})
	if w.Broker != nil {
		r.brokers[i] = w
	}
}

// begin makes the lie begin.
func (r *brokenRun) begin() {
	r.lying, r.begun = true, time.Now()
	for _, w := range r.brokers {
		if r.lie.tell != nil {
			r.lie.tell(r, w)
		}
	}
	if r.lie.hand != nil {
		r.lie.hand(r)
	}
}

func (r *brokenRun) bounded(what string, f func(context.Context) error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*brokenBound)
	defer cancel()
	begun := time.Now()
	err := f(ctx)
	if took := time.Since(begun); took > brokenBound {
		r.t.Errorf("%s took %v, and ended in %v", what, took, err)
	}
}

// judge notes an error, which must be one that blames the store, and not the caller.
func (r *brokenRun) judge(err error) {
	r.t.Helper()
	if err == nil {
		return
	}
	if !r.lying {
		r.t.Fatalf("before the store lies: %v", err)
	}
	var e *seb.Error
	if !errors.As(err, &e) {
		r.t.Fatalf("an error without a code: %v", err)
	}
	switch e.Code {
	case seb.CodeBrokerStopped, seb.CodeDataLost, seb.CodeStoreUnusable:
		if e.Hint == "" {
			r.t.Errorf("%v: it does not say what to do", err)
		}
		r.notices = append(r.notices, notice{e.Code, time.Since(r.begun)})
		if r.lie.harmless {
			r.t.Errorf("an error, though the lie is harmless: %v", err)
		}
	case seb.CodeStoreUnavailable:
		r.notices = append(r.notices, notice{e.Code, time.Since(r.begun)})
	case seb.CodeBrokerClosed:
	default:
		r.t.Errorf("it blames the caller, or nobody: %v", err)
	}
}

// show notes a record that a broker has acknowledged or served.
func (r *brokenRun) show(w *witnessed, at seb.Offset, v string) {
	r.t.Helper()
	if old, ok := w.shown[at]; ok && old != v {
		r.t.Fatalf("offset %d was %.20q, and now the same broker says %.20q", at, old, v)
	}
	if old, ok := r.acked[at]; ok && old != v && !r.lie.forks {
		r.t.Fatalf("offset %d was acknowledged for %.20q, and now it is %.20q", at, old, v)
	}
	if r.refused[v] {
		r.t.Fatalf("%.20q at %d was never to be in the log", v, at)
	}
	w.shown[at] = v
	w.end = max(w.end, at+1)
}

// append appends a record through each of the brokers at the same time.
func (r *brokenRun) append(brokers ...int) {
	r.t.Helper()
	var wg sync.WaitGroup
	vs, as, errs := [2]string{}, [2]seb.Appended{}, [2]error{}
	for _, i := range brokers {
		w := r.brokers[i]
		if w == nil {
			continue
		}
		r.serial++
		vs[i] = fmt.Sprintf("%d ", r.serial)
		if r.rng.IntN(5) == 0 {
			vs[i] = large(vs[i], 100_000)
		}
		wg.Go(func() {
			r.bounded("append", func(ctx context.Context) error {
				as[i], errs[i] = w.Append(ctx, "t", values(vs[i]))
				return errs[i]
			})
		})
	}
	wg.Wait()
	for i, v := range vs {
		switch {
		case v == "":
		case errs[i] == nil:
			r.show(r.brokers[i], as[i].Ranges[0].Offset, v)
			r.acked[as[i].Ranges[0].Offset] = v
		default:
			r.judge(errs[i])
			if seb.OutcomeOf(errs[i]) == seb.NotCommitted {
				r.refused[v] = true
			}
		}
	}
}

// read reads the whole partition through a broker; it returns nil if that failed.
func (r *brokenRun) read(i int) (got []string) {
	r.t.Helper()
	w := r.brokers[i]
	if w == nil {
		return nil
	}
	var failed error
	r.bounded("read", func(ctx context.Context) error {
		for rec, err := range w.Read(ctx, "t", 0, seb.Earliest) {
			if failed = err; err != nil {
				break
			}
			if int(rec.Offset) != len(got) {
				r.t.Fatalf("offset %d where %d should be", rec.Offset, len(got))
			}
			r.show(w, rec.Offset, string(rec.Value))
			got = append(got, string(rec.Value))
		}
		return failed
	})
	if failed != nil {
		r.judge(failed)
		return nil
	}
	if len(got) < int(w.end) {
		r.t.Fatalf("the partition ends at %d, and the same broker has shown it up to %d", len(got), w.end)
	}
	if !r.lie.forks && !r.lie.stale && len(got) < len(r.acked) {
		r.t.Fatalf("a read of the whole partition ends at %d, but %d records were acknowledged", len(got), len(r.acked))
	}
	if twice := slices.Compact(slices.Sorted(slices.Values(got))); len(twice) < len(got) {
		r.t.Fatal("a record is there twice")
	}
	return got
}

// end ends broker i, if it runs, by a close or a crash.
func (r *brokenRun) end(i int, crash bool) {
	r.t.Helper()
	w := r.brokers[i]
	if w == nil {
		return
	}
	if crash && !r.lie.noCrash {
		kill(r.t, w.Broker)
	} else {
		// A lying store may fail the last writes; that is no loss, and not what is tested here.
		_ = w.Close()
	}
	r.brokers[i] = nil
}

// step does one random operation.
func (r *brokenRun) step() {
	r.t.Helper()
	i := r.rng.IntN(2)
	if r.brokers[i] == nil {
		r.open(i)
	}
	switch r.rng.IntN(12) {
	case 0, 1, 2:
		r.append(i)
	case 3, 4:
		r.append(0, 1)
	case 5, 6, 7:
		r.read(i)
	case 8:
		r.end(i, r.rng.IntN(2) == 0)
		r.open(i)
	case 9:
		time.Sleep(time.Duration(r.rng.Int64N(int64(3 * time.Hour))))
	default:
		time.Sleep(time.Duration(r.rng.Int64N(int64(10 * time.Second))))
	}
	for i, w := range r.brokers {
		if w == nil {
			continue
		}
		select {
		case <-w.Stopped(): // the broker has stopped: a supervisor would restart it
			r.judge(w.Status().Err)
			r.end(i, false)
		default:
		}
	}
}

// untilUndone applies fault to requests until the lie is undone.
func (r *brokenRun) untilUndone(fault storetest.Fault) storetest.Fault {
	return func(ctx context.Context, request storetest.Request, next storetest.Next) (storetest.Answer, error) {
		if r.undone.Load() {
			return next(ctx, request)
		}
		return fault(ctx, request, next)
	}
}

// audit makes brokers notice every lie that they have not noticed before. The brokers race for two slots.
// Each commits and reads a few times, before and after its next List, which comes after D/2. Then both
// are restarted and read everything. Brokers that still go on must agree; only on a log with a hole
// may they go on side by side until one of them lists it.
func (r *brokenRun) audit() {
	r.t.Helper()
	r.append(0, 1)
	r.append(0, 1)
	r.round()
	r.round()
	time.Sleep(r.opts.Cluster.DeleteDelay/2 + time.Minute)
	r.round()
	r.agree()
	for i := range r.brokers {
		r.end(i, true)
		r.open(i)
	}
	r.agree()
}

// round makes each broker commit, and then read.
func (r *brokenRun) round() {
	r.t.Helper()
	for i := range r.brokers {
		r.append(i)
		r.read(1 - i)
		r.read(i)
	}
}

func (r *brokenRun) agree() {
	r.t.Helper()
	a, b := r.read(0), r.read(1)
	if a != nil && b != nil && !slices.Equal(a, b) && !r.lie.stale {
		r.t.Errorf("both brokers go on, and one reads %.300q, the other %.300q", short(a), short(b))
	}
}

func short(vs []string) string {
	var s strings.Builder
	for _, v := range vs {
		fmt.Fprintf(&s, "%s.", strings.TrimSpace(v[:min(4, len(v))]))
	}
	return s.String()
}

// run makes two brokers work, makes the store lie, lets the brokers go on, and audits.
func (r *brokenRun) run() {
	defer func() {
		for i := range r.brokers {
			r.end(i, false)
		}
	}()
	r.open(0)
	r.open(1)
	mustCreateTopic(r.t, r.brokers[0].Broker, "t", 1)
	for range 5 {
		r.step()
	}
	r.past = time.Now()
	for range 5 {
		r.step()
	}
	for i := range r.brokers { // both know the whole log, and have something to lose
		r.append(i)
	}
	r.read(0)
	r.read(1)
	r.begin()
	for range 20 {
		r.step()
	}
	r.undone.Store(true)
	if r.lie.undo != nil {
		r.lie.undo(r)
	}
	r.audit()
}

var brokenSeeds = flag.Uint64("broken.seeds", 1, "how many times as many seeds to try on stores that lie")

// tellLie runs a lie with that many seeds, and logs how it was noticed.
func tellLie(t *testing.T, l lie, seeds uint64) {
	first := map[seb.Code][]time.Duration{}
	noticed := 0
	if testing.Short() {
		seeds = 1
	}
	seeds *= *brokenSeeds
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			r := newBrokenRun(t, l, seed)
			r.run()
			if len(r.notices) > 0 {
				noticed++
				n := r.notices[0]
				first[n.code] = append(first[n.code], n.after)
			} else if !l.harmless && !l.seldom {
				t.Error("no broker noticed the lie")
			}
		})
	}
	if noticed == 0 && !l.harmless && !testing.Short() {
		t.Error("no broker noticed the lie with any seed")
	}
	for _, code := range slices.Sorted(maps.Keys(first)) {
		slices.Sort(first[code])
		t.Logf("%d of %d times %s first, after %v", len(first[code]), seeds, code, first[code])
	}
}
