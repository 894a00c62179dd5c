package engine

import (
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
)

// batchBytes is about the largest size of a batch. A larger batch would make the read of a single record
// slow, because a broker must read and verify the whole batch.
const batchBytes = 1 * mib

// partitionKey names a partition by its number and the id of its topic. Unlike a topic's name, that id
// never belongs to another topic.
type partitionKey struct {
	topic     format.TopicID
	partition format.Partition
}

// batch holds records of one partition on their way into a commit. Several requests share a batch, since
// each batch takes memory in the state.
type batch struct {
	key     partitionKey
	builder record.Builder
	shares  []*batchShare
	only    *Request // the only request in the batch, see [Request.whole]; nil if requests may share the batch

	// Set by finish.
	bytes   []byte
	count   uint32
	maxTime int64

	// Set by finish, pack and build.
	row format.Batch
	in  format.Seq // the slot for which build has last taken the batch into a commit
}

// batchShare is the part of a batch that holds records of one append.
type batchShare struct {
	request *Request
	append  *Append
	batch   *batch
	first   int // index, in the batch, of the first record of the share
	count   int
	gone    bool // the request is decided, and its records must leave the batch
}

// batchSet holds requests that wait for the same commit.
type batchSet struct {
	requests []*Request
	batches  []*batch
	filling  map[partitionKey]*batch // the batches to which records are still added; nil when the set is finished
	bytes    int64
	began    time.Time
	urgent   bool // holds a request that must not wait for further requests
	unfit    bool // holds a request that can't be handed over
	rides    bool // has one request, which rides: see rides.go
	alone    bool // Batching admitted no further request to this set, so the set gets a commit to itself

	// Set if the records go into data objects. upload says that the upload has begun, and uploaded that
	// the store has the objects. Both are guarded by batcher.mu; objects is set before uploaded.
	upload, uploaded bool
	objects          []*dataObject
	refused          error // why the store refuses the objects, so that no commit can have the set; guarded by batcher.mu
	changed          bool  // records were taken out after the upload began
}

// add copies the records of a, an append of r, into batches.
func (s *batchSet) add(r *Request, a *Append) {
	var (
		cur    *batchShare
		mine   map[partitionKey]*batchShare // the append's last share in each partition; nil until a record goes to a second partition
		spread = len(a.Partitions) > 0
		rec    record.Record
		left   = int(a.Bytes) // upper bound of the encoded size of the records that are not copied yet
	)
	for i := range a.Count {
		key := partitionKey{a.ID, a.PartitionOf(i)}
		rec = record.Record{Headers: rec.Headers[:0], Timestamp: r.wall}
		a.Records.Record(i, &rec)
		if rec.Value == nil {
			rec.Value = []byte{} // a null value would mean a tombstone
		}
		a.content += contentBytes(&rec)
		if cur != nil && cur.batch.key != key {
			if mine == nil {
				mine = map[partitionKey]*batchShare{}
			}
			mine[cur.batch.key] = cur
			cur = mine[key]
		}
		if cur == nil || cur.batch.builder.Size() >= batchBytes {
			cur = s.share(r, a, key)
			if !spread {
				cur.batch.builder.Grow(max(0, min(left, batchBytes)))
			}
		}
		before := cur.batch.builder.Size()
		cur.batch.builder.Append(&rec)
		left -= cur.batch.builder.Size() - before
		cur.count++
	}
	a.Records, a.Partitions = nil, nil // the caller may reuse them
}

// share begins a share of the append a in the partition's newest batch. It begins a new batch if the
// newest batch is full, or if r must not share that batch with other requests: see [Request.whole].
func (s *batchSet) share(r *Request, a *Append, key partitionKey) *batchShare {
	var only *Request
	if r.whole() {
		only = r
	}
	t := s.filling[key]
	if t == nil || t.only != only || t.builder.Size() >= batchBytes {
		t = &batch{key: key, only: only}
		s.filling[key] = t
		s.batches = append(s.batches, t)
	}
	p := &batchShare{request: r, append: a, batch: t, first: t.builder.Count()}
	t.shares = append(t.shares, p)
	a.shares = append(a.shares, p)
	return p
}

// finish completes the batches, without the records of withdrawn requests. The caller must have sealed
// the batch set, so that no other goroutine uses it.
func (s *batchSet) finish() {
	if s.filling == nil {
		return // the set was finished for its upload, or for an earlier commit that was not made
	}
	s.filling = nil
	s.batches = slices.DeleteFunc(s.batches, func(t *batch) bool { return !t.finish() })
}

// takeOut removes the records of settled requests from a finished batch set.
func (s *batchSet) takeOut() {
	settled := func(p *batchShare) bool { return p.request.settled }
	s.batches = slices.DeleteFunc(s.batches, func(t *batch) bool {
		return slices.ContainsFunc(t.shares, settled) && !t.finish()
	})
	s.changed = s.upload
}

// finish completes a batch. It leaves out the records of withdrawn or settled requests, and returns false
// if no records are left. It may be called again when further requests are settled.
func (t *batch) finish() bool {
	var (
		gone  []record.Span
		moved int
		kept  = t.shares[:0]
	)
	for _, p := range t.shares {
		if p.request.withdrawn || p.request.settled || p.gone {
			gone = append(gone, record.Span{From: p.first, To: p.first + p.count})
			moved += p.count
			continue
		}
		p.first -= moved
		kept = append(kept, p)
	}
	t.shares = kept
	if len(gone) > 0 {
		t.builder = *t.builder.Without(gone)
	}
	whole := t.builder // a copy, since records of further requests may have to be removed later
	t.bytes = whole.Finish()
	if t.bytes == nil {
		return false
	}
	head, err := record.Parse(t.bytes)
	if err != nil {
		panic("engine: a batch built here does not parse: " + err.Error())
	}
	t.count, t.maxTime = uint32(head.Count), head.MaxTimestamp
	t.row.CRC, t.row.Size = head.CRC, uint32(len(t.bytes))
	return true
}
