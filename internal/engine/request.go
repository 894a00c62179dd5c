package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/pack"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
)

const requestOverheadBytes = 256 // about the memory that a waiting append takes, without its records

// Request is what one caller asks the engine to commit. The engine commits all of it, or nothing. Once a
// caller has submitted a request, only the engine may change it.
type Request struct {
	Appends []*Append // empty if the request has only a change
	Change  Change    // nil if the request has only appends
	Key     *Key      // nil without an idempotency key
	// Callers are the callers on whose behalf the request is made. The request is refused unless at least
	// one of them may still make requests. Callers is empty if the program itself makes the request.
	Callers []Caller
	// Synced says that the engine has synced since the request came. So a refusal needs no further sync.
	Synced bool
	// Urgent says that the request does not wait for further requests to share a commit with.
	Urgent bool
	// Rides says that the request waits for a commit that is made anyway, by this broker or by the one that commits for it: see
	// rides.go. The request must have no Key.
	Rides bool
	// ExtraBytes is the memory that the change takes while it waits, if that is worth counting.
	ExtraBytes int64

	arriving arriving // see Arriving
	alone    bool     // another broker could not make the change as asked, so this broker decides

	began time.Time     // when the request came
	boot  time.Duration // when the request came, by the boot clock
	came  int64         // when the request came, in the log's time: microseconds since 1970
	wall  int64         // when the request came, by the wall clock, in milliseconds since 1970: the default timestamp of its records
	bytes int64         // memory taken from the budget

	refusal  error // set while none of Callers may make requests; guarded by batcher.mu, see [batcher.allowed]
	settled  bool  // decided without a commit: replayed or err is set
	doubtful bool  // settled by this broker's knowledge of idempotency keys, which may be out of date; see confirm

	// Guarded by batcher.mu. withdrawn and sealed no longer change once the batch set is sealed, unless the request rides and its
	// commit was not made.
	holders   int // callers that still wait for the request
	withdrawn bool
	sealed    bool

	done     chan struct{} // closed when the outcome is known: then the following fields have it
	replayed [][]Range     // where the records of each append are, if an earlier request with the same key has committed them; else nil
	entries  []format.Entry
	err      error
}

// Change is what a request changes in addition to its appends. A change of package dispatch may point to the dispatcher
// of a queue that this broker owns. Other changes share no memory with the client that made the request.
type Change interface {
	// Apply checks the change against the draft. It returns the change's entries for the commit,
	// possibly none, or an error if the change is refused. The entries must not delete a topic to which
	// the request appends. The commit loop calls Apply again after a lost race.
	Apply(d *state.Draft) ([]format.Entry, error)
}

// Sendable is a [Change] that another broker can make for this one. The other broker decodes it by [Options].DecodeChange.
type Sendable interface {
	Change
	// Encode writes the change.
	Encode(w *pack.Writer)
}

// PartChange is a [Change] that may refuse some of its parts and make the others.
type PartChange interface {
	Change
	// RefusedPart reports whether the last Apply refused a part that a newer state may accept.
	RefusedPart() bool
}

// Caller is a caller on whose behalf the program makes a request.
type Caller interface {
	// May returns nil if the caller may still make requests, and else the refusal. now is the store's time.
	May(in Keyring, now time.Time) error
	// Who returns what May depends on, so that another broker can decide it: the id of the caller's API key; whether
	// the caller has no key, and needs none until the log has its first key; when the access ends, or zero.
	Who() (key format.KeyID, open bool, until time.Time)
}

// Keyring has the API keys of callers: the state, or the draft of a commit.
type Keyring interface {
	NextKeyID() format.KeyID
	HasKey(id format.KeyID) bool
}

// Append has records for one topic.
type Append struct {
	Part  string         // name of the append in the request, for errors; may be empty
	Topic string         // for errors
	ID    format.TopicID // of the topic
	Count int            // of records
	Bytes int64          // upper bound of the records' encoded size
	IfEnd format.Offset  // the offset at which the partition must end before the append; -1 without a condition
	Delay time.Duration  // queues may hand the records out when Delay has passed since the commit
	Due   time.Time      // when queues may hand the records out, by the store's clock; zero if Delay decides

	// The following memory belongs to the caller. Once the request has joined a batch set, the append no
	// longer uses that memory.
	Records    Records
	Partition  format.Partition   // of all records, unless Partitions is set
	Partitions []format.Partition // of each record

	// Set when the append joins a batch set.
	shares  []*batchShare
	content int64 // bytes of the records' keys, values and headers
}

// Records are the caller's records.
type Records interface {
	// Record fills r with the record of index i. Key, value and headers share memory with the
	// caller's record. If that record has no timestamp, Record leaves r.Timestamp as it is. Record may
	// write into the array of r.Headers.
	Record(i int, r *record.Record)
}

// PartitionOf returns the partition of a record.
func (a *Append) PartitionOf(i int) format.Partition {
	if a.Partitions != nil {
		return a.Partitions[i]
	}
	return a.Partition
}

// delayed tells whether the append has a delay or a due time, which may have passed.
func (a *Append) delayed() bool { return a.Delay > 0 || !a.Due.IsZero() }

// dueAt returns when queues may hand the records out. commit is the time of their commit. Both times are
// in microseconds since 1970.
func (a *Append) dueAt(commit int64) int64 {
	if !a.Due.IsZero() {
		return a.Due.UnixMicro()
	}
	return commit + a.Delay.Microseconds()
}

// Range is a run of records: Count records of Partition, from Offset on.
type Range struct {
	Partition format.Partition
	Offset    format.Offset
	Count     int
}

// ranges returns where a commit has placed the append's records, sorted by partition, then by offset.
func (a *Append) ranges() []Range {
	rs := make([]Range, len(a.shares))
	for i, s := range a.shares {
		rs[i] = Range{Partition: s.batch.key.partition, Offset: s.batch.row.Base + format.Offset(s.first), Count: s.count}
	}
	slices.SortFunc(rs, func(x, y Range) int {
		if x.Partition != y.Partition {
			return int(x.Partition - y.Partition)
		}
		return int(x.Offset - y.Offset)
	})
	return mergeRanges(rs)
}

// mergeRanges merges neighbouring ranges that have no gap between them. It returns the merged ranges in
// the array of rs.
func mergeRanges(rs []Range) []Range {
	out := rs[:0]
	for _, r := range rs {
		if n := len(out); n > 0 && out[n-1].Partition == r.Partition && out[n-1].Offset+format.Offset(out[n-1].Count) == r.Offset {
			out[n-1].Count += r.Count
			continue
		}
		out = append(out, r)
	}
	return out
}

// whole reports whether a commit may have to leave out this request alone, for example because a
// partition does not end at the offset that the request requires. Such a request must not share batches
// with other requests, since a commit has a batch as a whole or not at all.
func (r *Request) whole() bool {
	return r.Change != nil || len(r.Appends) > 1 || len(r.Appends) == 1 && r.Appends[0].IfEnd >= 0
}

// first returns the batch of a request's first record. If whole returns true, the batches of the request
// are adjacent in the batch set, and first returns the earliest of them.
func (r *Request) first() *batch { return r.Appends[0].shares[0].batch }

// batches returns the batches of a request for which whole returns true.
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

// Begin notes when a request came: at the time of arrival in ctx, see [WithArrival], or now if ctx has no
// such time. Submit also calls Begin. A second call for the same request does nothing.
func (e *Engine) Begin(ctx context.Context, r *Request) {
	if r.done != nil {
		return
	}
	r.began = arrivalOf(ctx)
	r.boot, r.wall, r.came, r.done = e.opts.Boot(), e.opts.Wall().UnixMilli(), e.Now(), make(chan struct{})
	r.bytes = r.ExtraBytes
	if len(r.Appends) > 0 || r.bytes > 0 {
		r.bytes += requestOverheadBytes
	}
	for _, a := range r.Appends {
		r.bytes += a.Bytes
	}
}

// Submit adds a request to the open batch set, unless [Engine.Replay] has settled the request. It copies
// the records. While the memory budget has no room, it waits. It returns a *LateError if
// [Options].AppendTimeout has passed since the request came.
func (e *Engine) Submit(ctx context.Context, r *Request) (*Ticket, error) {
	e.Begin(ctx, r)
	if r.settled {
		close(r.done)
		return e.ticket(r, r.began), nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // the request is in no batch set yet, so it is certainly not committed
	}
	if r.bytes > 0 {
		if err := e.budget.Take(ctx, budget.Batches, r.bytes); err != nil {
			return nil, err
		}
	}
	if time.Since(r.began) >= e.opts.AppendTimeout { // the request has waited for too long, so it must not get into a commit
		if r.bytes > 0 {
			e.budget.Give(budget.Batches, r.bytes)
		}
		return nil, e.late()
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

// Ticket lets one caller wait for the outcome of a request. If a second caller sends a request with
// the same idempotency key, both callers wait for the first request, each with a Ticket.
type Ticket struct {
	e      *Engine
	r      *Request
	began  time.Time
	joined bool // r is another caller's request with the same idempotency key

	once      sync.Once
	withdrawn bool // the caller has given up, and the request won't be committed
}

func (e *Engine) ticket(r *Request, began time.Time) *Ticket {
	return &Ticket{e: e, r: r, began: began}
}

// Done returns a channel that is closed when the outcome is known.
func (t *Ticket) Done() <-chan struct{} { return t.r.done }

// Wait waits for the outcome. If ctx ends first, or [Options].AppendTimeout has passed since the request
// came, Wait withdraws the request. If it is too late to withdraw, the error is an *UnknownError. A request
// that rides is never late.
func (t *Ticket) Wait(ctx context.Context) error {
	select {
	case <-t.r.done:
		return t.r.err
	default:
	}
	var late <-chan time.Time
	if !t.r.Rides {
		timer := time.NewTimer(t.e.opts.AppendTimeout - time.Since(t.began))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-t.r.done:
		return t.r.err
	case <-late:
		return t.giveUp(&LateError{Within: t.e.opts.AppendTimeout, Keyed: t.r.Key != nil, Changes: t.r.Change != nil, Err: t.e.StoreErr()})
	case <-ctx.Done():
		return t.giveUp(ctx.Err())
	}
}

// giveUp withdraws the request and returns err. If the request can't be withdrawn, giveUp wraps err in
// an *UnknownError.
func (t *Ticket) giveUp(err error) error {
	t.once.Do(func() { t.withdrawn = t.e.batcher.withdraw(t.r) })
	if t.withdrawn {
		return err
	}
	return &UnknownError{err}
}

// Settled is Wait for a caller that needs to know the outcome: where Wait would return an *UnknownError,
// Settled goes on waiting, even after ctx has ended.
func (t *Ticket) Settled(ctx context.Context) error {
	err := t.Wait(ctx)
	if _, unknown := errors.AsType[*UnknownError](err); unknown {
		<-t.r.done // closed at the latest when the engine ends
		err = t.r.err
	}
	return err
}

// Replayed tells whether the outcome is the outcome of an earlier request with the same idempotency key.
func (t *Ticket) Replayed() bool { return t.r.replayed != nil || t.joined }

// Ranges returns where the records of an append are, once Wait has returned nil.
func (t *Ticket) Ranges(append int) []Range {
	if t.r.replayed != nil {
		return t.r.replayed[append]
	}
	return t.r.Appends[append].ranges()
}

// Entries returns the entries that the request's change has put into the commit, once Wait has returned
// nil. It returns none if [Ticket.Replayed] returns true.
func (t *Ticket) Entries() []format.Entry {
	if t.Replayed() {
		return nil
	}
	return t.r.entries
}
