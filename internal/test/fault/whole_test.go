package fault_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// trace is what one commit of a worker has put into a slot of the log.
type trace struct {
	slot    format.Seq
	records map[string]int // number of records, by topic id and partition
	moved   string         // the position of the consumer
}

// tracesOf reads all commits of a bucket, and returns what each worker's commit has put there, by the
// commit's name, with which its records begin. It fails if one commit has left anything in two slots.
func tracesOf(t *testing.T, store objstore.Store) map[string]*trace {
	t.Helper()
	traces := map[string]*trace{}
	for _, key := range keys(t, store, format.LogPrefix) {
		raw := body(t, store, key)
		c, err := format.DecodeCommit(raw)
		if err != nil {
			t.Fatal(err)
		}
		var moves []string
		for _, it := range c.Entries {
			switch x := it.(type) {
			case *format.PositionsMoved:
				for _, p := range x.Positions {
					moves = append(moves, fmt.Sprintf("%d/%d:%d", x.Consumer, p.Partition, p.Offset))
				}
			case *format.Batch:
				object, start := raw, c.PayloadStart
				if x.Object > 0 {
					object, start = body(t, store, c.Data[x.Object-1].Key()), format.DataPayloadStart
				}
				note(t, traces, c.Seq, x, object[start+x.Pos:][:x.Size])
			}
		}
		for _, tr := range traces {
			if tr.slot == c.Seq {
				tr.moved = strings.Join(moves, " ")
			}
		}
	}
	return traces
}

func note(t *testing.T, traces map[string]*trace, slot format.Seq, x *format.Batch, raw []byte) {
	t.Helper()
	b, err := record.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range b.Records(raw, int64(x.Base), record.Limits{}) {
		if err != nil {
			t.Fatal(err)
		}
		name, _, worker := strings.Cut(string(r.Value), " ")
		if !worker {
			continue
		}
		tr := traces[name]
		if tr == nil {
			tr = &trace{slot: slot, records: map[string]int{}}
			traces[name] = tr
		}
		if tr.slot != slot {
			t.Errorf("%s is in slots %d and %d", name, tr.slot, slot)
		}
		tr.records[fmt.Sprintf("%d/%d", x.Topic, x.Partition)]++
	}
}

// crew is workers that each read one partition with a shared consumer, several per partition, through
// brokers that fail and are killed.
type crew struct {
	t       *testing.T
	store   objstore.Store
	opts    seb.Options
	brokers []*seb.Broker
	mu      sync.Mutex
	tried   map[string]seb.Offset // offset to which each commit would have moved the consumer
	acked   map[string]bool
	refused map[string]bool
}

// try makes one commit, and notes its outcome. While the outcome is unknown, it repeats the commit
// with the same key.
func (w *crew) try(rng *rand.Rand, worker, n int, partition int32, from seb.Offset) {
	name := fmt.Sprintf("w%d.%d", worker, n)
	to := from + seb.Offset(1+rng.IntN(3))
	c := seb.Commit{
		Appends: []seb.CommitAppend{
			{Topic: "sums", Records: values(name+" a", name+" b"), Options: []seb.AppendOption{seb.ToPartition(partition)}},
			{Topic: "log", Records: values(name + " " + strings.Repeat("x", rng.IntN(3)*rng.IntN(400<<10)))},
			{Topic: "sums", Records: values(name + " c"), Options: []seb.AppendOption{seb.ToPartition(1 - partition)}},
		},
		Positions: []seb.CommitPositions{{
			Topic: "in", Consumer: "c" + strconv.Itoa(int(partition)),
			Expect: seb.Offsets{partition: from}, Offsets: seb.Offsets{partition: to},
		}},
	}
	w.mu.Lock()
	w.tried[name] = to
	w.mu.Unlock()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rng.IntN(20))*time.Second)
		_, err := w.brokers[rng.IntN(len(w.brokers))].Commit(ctx, c, seb.IdempotencyKey(name))
		cancel()
		w.mu.Lock()
		switch {
		case err == nil:
			w.acked[name] = true
		case seb.CodeOf(err) == seb.CodePositionConflict:
			w.refused[name] = true
		}
		w.mu.Unlock()
		if err == nil || seb.CodeOf(err) == seb.CodePositionConflict {
			return
		}
		if e := (*seb.Error)(nil); !errors.As(err, &e) || e.Code != seb.CodeCanceled && e.Code != seb.CodeStoreUnavailable {
			w.t.Errorf("%s: %v", name, err)
			return
		}
	}
}

// work goes on from the consumer's position until it reaches the end.
func (w *crew) work(seed uint64, worker int, end seb.Offset) {
	rng := newRand(seed + uint64(worker)<<32)
	partition := int32(worker % 2)
	for n := 0; ; n++ {
		info, err := w.brokers[rng.IntN(len(w.brokers))].Consumer("in", fmt.Sprint("c", partition)).Describe(w.t.Context())
		if err != nil {
			time.Sleep(time.Second)
			continue
		}
		from := info.Positions[partition].Next
		if from+3 > end {
			return
		}
		w.try(rng, worker, n, partition, from)
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
	}
}

// Two workers read the same records and commit their results together with the new position, through
// two brokers whose requests fail, get lost and execute late. Whatever happens, each commit is in one
// slot of the log as a whole, or nowhere; and of the commits that read the same record, exactly one is
// in the log.
func TestCommitIsNeverSeenByHalves(t *testing.T) {
	const records = 30
	seeds := uint64(12)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				w := &crew{t: t, store: faulty, opts: immediate(), tried: map[string]seb.Offset{}, acked: map[string]bool{}, refused: map[string]bool{}}
				if seed%3 == 0 {
					w.opts.Batching = seb.Timed(20*time.Millisecond, 1<<20)
				}
				w.brokers = []*seb.Broker{open(t, faulty, w.opts), open(t, faulty, w.opts)}
				b := w.brokers[0]
				mustCreateTopic(t, b, "in", 2)
				mustCreateTopic(t, b, "sums", 2)
				mustCreateTopic(t, b, "log", 1)
				for p := range int32(2) {
					if _, err := b.Append(t.Context(), "in", values(numbered("v", records)...), seb.ToPartition(p)); err != nil {
						t.Fatal(err)
					}
					mustReset(t, b.Consumer("in", fmt.Sprint("c", p)), seb.Earliest)
				}
				f := &flaky{rng: newRand(seed), rate: 0.2}
				undo := faulty.On("", "", f.fault)
				stop := make(chan struct{})
				var others, workers sync.WaitGroup
				others.Go(func() { // another client appends, and lost requests execute
					for n := 0; ; n++ {
						select {
						case <-stop:
							return
						case <-time.After(400 * time.Millisecond):
						}
						_, err := w.brokers[n%2].Append(context.Background(), "log", values("beside"))
						if n%5 == 0 && err == nil {
							f.late.Release()
						}
					}
				})
				for worker := range 4 {
					workers.Go(func() { w.work(seed, worker, records) })
				}
				workers.Wait()
				close(stop)
				others.Wait()
				undo()
				f.late.Release()
				w.check(memory)
			})
		})
	}
}

// check compares the answers with the content of the bucket.
func (w *crew) check(memory objstore.Store) {
	t := w.t
	ended := open(t, memory, immediate())
	traces := tracesOf(t, memory)
	moved := map[string]int{} // how often the commits in the log moved the two consumers
	for name, tr := range traces {
		total := 0
		for _, n := range tr.records {
			total += n
		}
		if total != 4 || len(tr.records) != 3 || w.tried[name] == 0 {
			t.Errorf("%s left %v in slot %d", name, tr.records, tr.slot)
		}
		if want := fmt.Sprintf(":%d", w.tried[name]); !strings.Contains(tr.moved+" ", want+" ") {
			t.Errorf("%s should have moved its consumer to %d, but the log has %q", name, w.tried[name], tr.moved)
		}
		if w.refused[name] {
			t.Errorf("%s was refused and is in slot %d", name, tr.slot)
		}
		worker, _, _ := strings.Cut(strings.TrimPrefix(name, "w"), ".")
		n, _ := strconv.Atoi(worker)
		moved[fmt.Sprint("c", n%2)]++
	}
	for name := range w.acked {
		if traces[name] == nil {
			t.Errorf("%s was acknowledged and left nothing", name)
		}
	}
	if len(w.refused) == 0 || len(w.acked) == 0 {
		t.Errorf("%d were acknowledged and %d refused: nothing was tried", len(w.acked), len(w.refused))
	}
	for p := range int32(2) {
		name := fmt.Sprint("c", p)
		info, err := ended.Consumer("in", name).Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, count, _ := strings.Cut(info.Version, "."); count != strconv.Itoa(moved[name]+1) { // one more for the reset
			t.Errorf("consumer %s has version %s, but %d commits in the log moved it", name, info.Version, moved[name])
		}
	}
}

// The answer to the deciding PUT is lost, or the broker dies while the PUT is under way. The next
// broker finds the whole commit, or nothing; after a retry, the commit is there once.
func TestCommitWhoseBrokerDied(t *testing.T) {
	for name, land := range map[string]bool{"it landed": true, "it did not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				dying := openOnly(t, faulty, immediate())
				withWorker(t, dying, 3)
				mustCreateTopic(t, dying, "out", 1)
				var late storetest.Late
				faulty.On(objstore.VerbCreate, format.LogPrefix, late.Fault)
				ended := make(chan error)
				go func() {
					_, err := dying.Commit(context.Background(), counted(0, 2, appends("out", "v")), seb.IdempotencyKey("k"))
					ended <- err
				}()
				synctest.Wait()
				kill(t, dying)
				wantOutcome(t, <-ended, seb.Unknown)
				if land {
					late.Release()
				}
				b := open(t, memory, immediate())
				worker := b.Consumer("in", "worker")
				if land {
					wantValues(t, b, "out", "v")
					wantAt(t, worker, 2)
				} else {
					wantValues(t, b, "out")
					wantAt(t, worker, 0)
				}
				if done := mustCommitAll(t, b, counted(0, 2, appends("out", "v")), seb.IdempotencyKey("k")); done.Replayed != land {
					t.Errorf("the retry was replayed: %v", done.Replayed)
				}
				late.Release()
				wantValues(t, b, "out", "v")
				wantAt(t, worker, 2)
			})
		})
	}
}

// The condition of a commit becomes true or false when its slot is lost to another broker.
func TestCommitIsDecidedAgainAfterALostRace(t *testing.T) {
	for name, want := range map[string]seb.Code{"it comes true": "", "it comes false": seb.CodePositionConflict} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				b, other := open(t, faulty, immediate()), open(t, memory, immediate())
				worker := withWorker(t, b, 3)
				mustCreateTopic(t, b, "out", 1)
				release := make(chan struct{})
				faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Times(1, storetest.Hold(release)))
				from := seb.Offset(0)
				if want == "" {
					from = 1
				}
				beside, err := b.AppendAsync(t.Context(), "out", values("beside"))
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan error)
				go func() {
					_, err := b.Commit(context.Background(), counted(from, 3, appends("out", "mine")))
					ended <- err
				}()
				synctest.Wait()
				mustCommitAll(t, other, counted(0, 1, appends("out", "theirs")))
				close(release)
				if _, err := beside.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				if err := <-ended; seb.CodeOf(err) != want {
					t.Errorf("the error is %v", err)
				}
				if want == "" {
					wantValues(t, b, "out", "theirs", "beside", "mine")
					wantAt(t, worker, 3)
				} else {
					wantValues(t, b, "out", "theirs", "beside")
					wantAt(t, worker, 1)
				}
			})
		})
	}
}

// A data object of the batch set can't be used, or a request of the set is no longer needed. The
// remaining records are uploaded again, without any record of a refused commit.
func TestRecordsOfARetryAreLeftOutOfAnUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b, other := open(t, faulty, immediate()), open(t, memory, immediate())
		worker := withWorker(t, b, 3)
		mustCreateTopic(t, b, "out", 1)
		release := make(chan struct{})
		undo := faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Hold(release))
		var wg sync.WaitGroup
		v := large("v", 3<<20)
		c := counted(0, 1, appends("out", v), appends("log", "v"))
		mustCommitAll(t, other, c, seb.IdempotencyKey("k"))
		wg.Go(func() { mustAppend(t, b, "out", "first") })
		synctest.Wait()
		wg.Go(func() { mustAppend(t, b, "out", large("beside", 3<<20)) })
		wg.Go(func() {
			if done := mustCommitAll(t, b, c, seb.IdempotencyKey("k")); !done.Replayed || done.Appends[0].Ranges[0].Offset != 0 {
				t.Errorf("the answer is %+v", done)
			}
		})
		synctest.Wait()
		undo()
		close(release)
		wg.Wait()
		wantValues(t, b, "out", v, "first", large("beside", 3<<20))
		wantAt(t, worker, 1)
		for _, key := range keys(t, memory, format.DataPrefix) {
			if bytes.Count(body(t, memory, key), []byte(v)) > 1 {
				t.Errorf("%s holds the records twice", key)
			}
		}
	})
}

// A topic that a commit appends to is deleted while the commit waits. Nothing of the commit is done to
// the other topics.
func TestCommitToATopicThatIsDeletedMeanwhile(t *testing.T) {
	for name, c := range map[string]seb.Commit{
		"appends alone":       {Appends: []seb.CommitAppend{appends("stays", "no"), appends("goes", "no")}},
		"the first goes":      {Appends: []seb.CommitAppend{appends("goes", "no"), appends("stays", "no")}},
		"appends and a place": counted(0, 1, appends("stays", "no"), appends("goes", "no")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				b, other := open(t, faulty, immediate()), open(t, memory, immediate())
				worker := withWorker(t, b, 3)
				mustCreateTopic(t, b, "stays", 1)
				mustCreateTopic(t, b, "goes", 1)
				release := make(chan struct{})
				faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Times(1, storetest.Hold(release)))
				beside, err := b.AppendAsync(t.Context(), "stays", values("beside"))
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan error)
				go func() {
					_, err := b.Commit(context.Background(), c)
					ended <- err
				}()
				synctest.Wait()
				if err := other.DeleteTopic(t.Context(), "goes"); err != nil {
					t.Fatal(err)
				}
				close(release)
				part := "appends/1"
				if c.Appends[0].Topic == "goes" {
					part = "appends/0"
				}
				wantPart(t, <-ended, seb.CodeTopicNotFound, part)
				if _, err := beside.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				wantValues(t, b, "stays", "beside")
				wantAt(t, worker, 0)
			})
		})
	}
}
