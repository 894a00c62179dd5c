package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
)

const requestOverheadBytes = 256 // what a waiting append costs beside its records

// Request is what one caller wants committed: all of it, or nothing. It is data, and belongs to the
// engine once it is submitted.
type Request struct {
	Appends []*Append // empty for a change alone
	Change  Change    // nil for appends alone
	Key     *Key      // nil without an idempotency key
	// Callers are those on whose behalf it is made; empty if it is the program's own. One that
	// still may is enough.
	Callers []Caller
	// Synced says that the end of the log was read after the request came: a refusal is final.
	Synced bool
	// Urgent requests are committed without linger.
	Urgent bool
	// ExtraBytes is what the change takes while it waits, if that is worth counting.
	ExtraBytes int64

	began time.Time
	boot  time.Duration // the boot-time clock then
	came  int64         // the log's time then
	wall  int64         // the wall clock then, in milliseconds since 1970: it dates records without a timestamp
	bytes int64         // taken from the budget

	refusal  error // while none of Callers may; guarded by batcher.mu, see [batcher.allowed]
	settled  bool  // by the commit loop, without a commit: replayed or err are set
	doubtful bool  // settled by what this broker knows of its key; see confirm

	// Guarded by batcher.mu until the batch set is sealed, then unchanging.
	holders   int // callers that still wait for it
	withdrawn bool
	sealed    bool

	done     chan struct{} // closed when these are set
	replayed [][]Range     // of an earlier request with the same key, one for each append; else nil
	entries  []format.Entry
	err      error
}

// Change is what a request changes besides what it appends. It is data, so that a request can be
// handed on.
type Change interface {
	// Apply checks the change against the draft, and returns its entries for the commit, which may
	// be none, or why it is refused. It must not delete what the request appends to. It is called again
	// after a lost race.
	Apply(d *state.Draft) ([]format.Entry, error)
}

// Caller is somebody on whose behalf a request is made.
type Caller interface {
	// May returns nil, or why the caller may no longer make requests. now is the store's time.
	May(in Keyring, now time.Time) error
}

// Keyring is where a caller's API key is found: the state, or the draft of a commit.
type Keyring interface {
	NextKeyID() uint64
	HasKey(id uint64) bool
}

// Append is records for one topic.
type Append struct {
	Part  string // its name in the request, for errors; may be empty
	Topic string // for errors
	ID    uint64 // of the topic
	Count int    // of records
	Bytes int64  // upper bound, as encoded
	IfEnd int64  // the end offset that it requires; -1 if any
	Delay time.Duration
	Due   time.Time // the same as a time by the store's clock; zero without one

	// The records are the caller's, so the append drops them when it has joined a batch set.
	Records    Records
	Partition  int32   // of all records, unless Partitions is set
	Partitions []int32 // of each record

	shares []*batchShare // set when it joins a batch set
}

// Records are the caller's records.
type Records interface {
	// Record fills r with a record: key, value and headers share memory with the caller's. The
	// timestamp stays unless the record has one. r.Headers may be reused.
	Record(i int, r *record.Record)
}

// PartitionOf returns the partition of a record.
func (a *Append) PartitionOf(i int) int32 {
	if a.Partitions != nil {
		return a.Partitions[i]
	}
	return a.Partition
}

// delayed tells whether the append may have a due time ahead.
func (a *Append) delayed() bool { return a.Delay > 0 || !a.Due.IsZero() }

// dueAt returns when queues may hand the records out, in microseconds since 1970, if a commit of
// that time has them.
func (a *Append) dueAt(commit int64) int64 {
	if !a.Due.IsZero() {
		return a.Due.UnixMicro()
	}
	return commit + a.Delay.Microseconds()
}

// Range is Count records from Offset on in Partition.
type Range struct {
	Partition int32
	Offset    int64
	Count     int
}

// ranges returns where a commit has placed the append's records, by partition, then by offset.
func (a *Append) ranges() []Range {
	rs := make([]Range, len(a.shares))
	for i, s := range a.shares {
		rs[i] = Range{Partition: s.batch.key.partition, Offset: s.batch.row.Base + int64(s.first), Count: s.count}
	}
	slices.SortFunc(rs, func(x, y Range) int {
		if x.Partition != y.Partition {
			return int(x.Partition - y.Partition)
		}
		return int(x.Offset - y.Offset)
	})
	return mergeRanges(rs)
}

// mergeRanges joins neighbours that touch.
func mergeRanges(rs []Range) []Range {
	out := rs[:0]
	for _, r := range rs {
		if n := len(out); n > 0 && out[n-1].Partition == r.Partition && out[n-1].Offset+int64(out[n-1].Count) == r.Offset {
			out[n-1].Count += r.Count
			continue
		}
		out = append(out, r)
	}
	return out
}

// whole tells whether a commit may have to leave the request out by itself.
func (r *Request) whole() bool {
	return r.Change != nil || len(r.Appends) > 1 || len(r.Appends) == 1 && r.Appends[0].IfEnd >= 0
}

// first returns the batch of a request's first record. If the request is whole, all
// of its batches are adjacent in their batch set, and this is the first of them.
func (r *Request) first() *batch { return r.Appends[0].shares[0].batch }

// batches returns the batches of a request that is whole.
func (r *Request) batches() (bs []*batch) {
	for _, a := range r.Appends {
		for _, s := range a.shares {
			if len(bs) == 0 || bs[len(bs)-1] != s.batch {
				bs = append(bs, s.batch)
			}
		}
	}
	return bs
}

// Begin notes that a request has come: its time to wait begins. Submit and Replay do it otherwise.
func (e *Engine) Begin(r *Request) {
	if r.done != nil {
		return
	}
	r.began, r.boot, r.wall, r.came, r.done = time.Now(), e.opts.Boot(), e.opts.Wall().UnixMilli(), e.Now(), make(chan struct{})
	r.bytes = r.ExtraBytes
	if len(r.Appends) > 0 || r.bytes > 0 {
		r.bytes += requestOverheadBytes
	}
	for _, a := range r.Appends {
		r.bytes += a.Bytes
	}
}

// Submit queues a request for its commit, unless [Engine.Replay] has settled it. It copies the
// records. It waits while the budget has no room.
func (e *Engine) Submit(ctx context.Context, r *Request) (*Ticket, error) {
	e.Begin(r)
	if r.settled {
		close(r.done)
		return e.ticket(r, r.began), nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // before a commit could take it
	}
	if r.bytes > 0 {
		if err := e.budget.Take(ctx, budget.Batches, r.bytes); err != nil {
			return nil, err
		}
	}
	first, err := e.batcher.join(r)
	if r.bytes > 0 && (err != nil || first != r) {
		e.budget.Give(budget.Batches, r.bytes)
	}
	if err != nil {
		return nil, err
	}
	t := e.ticket(first, r.began)
	t.joined = first != r
	return t, nil
}

// Commit submits a request, and waits for its outcome.
func (e *Engine) Commit(ctx context.Context, r *Request) error {
	t, err := e.Submit(ctx, r)
	if err != nil {
		return err
	}
	return t.Wait(ctx)
}

// Ticket is what one caller of a request waits for.
type Ticket struct {
	e      *Engine
	r      *Request
	began  time.Time
	joined bool // r is another caller's request with the same idempotency key

	once      sync.Once
	withdrawn bool // after it has given up: nothing is committed
}

func (e *Engine) ticket(r *Request, began time.Time) *Ticket {
	return &Ticket{e: e, r: r, began: began}
}

// Done is closed when the outcome is known.
func (t *Ticket) Done() <-chan struct{} { return t.r.done }

// Wait waits for the outcome until ctx ends or [Options].AppendTimeout has passed. Then it withdraws
// the request; if that is too late, the error is an *UnknownError.
func (t *Ticket) Wait(ctx context.Context) error {
	select {
	case <-t.r.done:
		return t.r.err
	default:
	}
	timer := time.NewTimer(t.e.opts.AppendTimeout - time.Since(t.began))
	defer timer.Stop()
	select {
	case <-t.r.done:
		return t.r.err
	case <-timer.C:
		return t.giveUp(&LateError{Within: t.e.opts.AppendTimeout, Keyed: t.r.Key != nil, Changes: t.r.Change != nil, Err: t.e.StoreErr()})
	case <-ctx.Done():
		return t.giveUp(ctx.Err())
	}
}

// giveUp returns err, as that of a request that is withdrawn, or may be committed.
func (t *Ticket) giveUp(err error) error {
	t.once.Do(func() { t.withdrawn = t.e.batcher.withdraw(t.r) })
	if t.withdrawn {
		return err
	}
	return &UnknownError{err}
}

// Settled is Wait for a caller that needs a certain outcome: if it is unknown, Settled waits until
// it is decided.
func (t *Ticket) Settled(ctx context.Context) error {
	err := t.Wait(ctx)
	if _, unknown := errors.AsType[*UnknownError](err); unknown {
		<-t.r.done // closed at the latest when the engine ends
		err = t.r.err
	}
	return err
}

// Replayed tells whether the outcome is that of an earlier request.
func (t *Ticket) Replayed() bool { return t.r.replayed != nil || t.joined }

// Ranges returns where the records of an append are, once Wait has returned nil.
func (t *Ticket) Ranges(append int) []Range {
	if t.r.replayed != nil {
		return t.r.replayed[append]
	}
	return t.r.Appends[append].ranges()
}

// Entries returns what the change has yielded for the commit, once Wait has returned nil; nothing if
// the request was replayed.
func (t *Ticket) Entries() []format.Entry {
	if t.Replayed() {
		return nil
	}
	return t.r.entries
}
