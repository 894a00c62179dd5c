package engine

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/handover"
	"github.com/simple-event-broker/seb/internal/pack"
	"github.com/simple-event-broker/seb/internal/record"
)

// bundleLayout is the version of the bytes of a sealed bundle.
const bundleLayout = 1

// bundle is what one broker hands over to another: sealed batch sets. The broker that has sealed the bundle keeps its
// requests until the log decides them. For the broker that commits the bundle, the requests are those of another broker's
// callers: it never answers them.
//
// The sealed bytes are, in this order (integers are little-endian, and a list follows its length, which is a uint32):
//
//	layout (uint16), the mark without the seal, the mark of the bundle before this one, limits,
//	sets: flags (uint32; 1 = in data objects), data objects (slot, id, size, batches), batches, requests
//	batch: topic, partition, records (uint32), largest timestamp, size (uint32), CRC (uint32)
//	request: the log's time when it came, callers, idempotency key, appends
//	the bytes of the batches that are in no data object
type bundle struct {
	handover.Mark
	before handover.Mark
	limits bundleLimits
	sets   []*batchSet
	// requests are those that were neither withdrawn nor settled when the bundle was sealed. Verdicts name them by their index.
	requests []*Request

	bytes    []byte    // the sealed bytes
	sealedAt time.Time // zero for the bundle of another broker
}

// bundleLimits are limits of the broker that has sealed a bundle.
type bundleLimits struct {
	StateMemory     int64
	IdempotencyKeys int
}

// list sets requests.
func (x *bundle) list() {
	for _, set := range x.sets {
		for _, r := range set.requests {
			if !r.withdrawn && !r.settled {
				x.requests = append(x.requests, r)
			}
		}
	}
}

// inlineBytes returns how many bytes of batches the bundle brings along.
func (x *bundle) inlineBytes() int64 { return inlineBytes(x.sets) }

// inlineBytes returns how many bytes of batches of the sets are in no data object.
func inlineBytes(sets []*batchSet) (n int64) {
	for _, set := range sets {
		if set.upload {
			continue
		}
		for _, t := range set.batches {
			n += int64(t.row.Size)
		}
	}
	return n
}

// fits reports whether batch sets can be handed over: whether another broker can do all that their requests ask for, and
// has something to do for each.
func fits(sets []*batchSet) bool {
	for _, set := range sets {
		for _, r := range set.requests {
			if !r.withdrawn && !r.fits() {
				return false
			}
		}
	}
	return true
}

// fits reports whether a request can be handed over.
func (r *Request) fits() bool {
	_, sendable := r.Change.(Sendable)
	return !r.settled && !r.alone && (r.Change == nil || sendable)
}

// seal encodes a bundle. callers returns the callers of a request, which may change at any time. The batch sets are finished and, where upload is set, uploaded.
func (x *bundle) seal(callers func(r *Request) []Caller) {
	w := &bundleWriter{callers: callers}
	w.U16(bundleLayout)
	w.mark(x.Mark)
	w.mark(x.before)
	w.Raw(x.before.Seal[:])
	w.I64(x.limits.StateMemory)
	w.I64(int64(x.limits.IdempotencyKeys))
	w.Count(len(x.sets))
	var payload [][]byte
	for _, set := range x.sets {
		payload = append(payload, w.set(set)...)
	}
	for _, b := range payload {
		w.Raw(b)
	}
	x.bytes = w.B
}

// decodeBundle decodes and checks the sealed bytes of another broker's bundle.
func decodeBundle(b []byte, change func(r *pack.Reader) Change) (*bundle, error) {
	r := &bundleReader{pack.NewReader(b), change}
	if layout := r.U16(); layout != bundleLayout {
		r.FailWith(fmt.Errorf("%w: a bundle of layout %d", pack.ErrUnknown, layout))
		return nil, r.Err()
	}
	x := &bundle{Mark: r.mark(), before: r.mark(), bytes: b}
	x.before.Seal = format.Hash(r.Raw(len(x.before.Seal)))
	if x.Number == 0 {
		r.Fail("a bundle has no number")
	}
	x.limits = bundleLimits{StateMemory: r.I64(), IdempotencyKeys: int(r.I64())}
	for range r.Count(16) {
		x.sets = append(x.sets, r.set())
	}
	for _, set := range x.sets {
		if !set.upload {
			r.payload(set)
		}
	}
	r.End()
	x.list()
	return x, r.Err()
}

// bundleWriter writes the sealed bytes of a bundle.
type bundleWriter struct {
	pack.Writer
	callers func(r *Request) []Caller
}

func (w *bundleWriter) mark(m handover.Mark) {
	w.Raw(m.Session[:])
	w.U64(m.Number)
	w.Raw(m.Draw[:])
}

// set appends a batch set, and returns the bytes of its batches that are in no data object.
func (w *bundleWriter) set(set *batchSet) (payload [][]byte) {
	w.Bool(set.upload)
	w.Count(len(set.objects))
	for _, o := range set.objects {
		w.U64(uint64(o.ref.Seq))
		w.U64(o.ref.ID)
		w.U32(o.ref.Size)
		w.Count(len(o.batches))
	}
	w.Count(len(set.batches))
	index := map[*batch]int{}
	for i, t := range set.batches {
		index[t] = i
		w.I64(int64(t.key.topic))
		w.U32(uint32(t.key.partition))
		w.U32(t.count)
		w.I64(t.maxTime)
		w.U32(t.row.Size)
		w.U32(t.row.CRC)
		if !set.upload {
			payload = append(payload, t.bytes)
		}
	}
	requests := slices.DeleteFunc(slices.Clone(set.requests), func(r *Request) bool { return r.withdrawn || r.settled })
	w.Count(len(requests))
	for _, r := range requests {
		w.request(r, index)
	}
	return payload
}

func (w *bundleWriter) request(r *Request, index map[*batch]int) {
	w.I64(r.came)
	callers := w.callers(r)
	w.Count(len(callers))
	for _, c := range callers {
		key, open, until := c.Who()
		w.I64(int64(key))
		w.Time(until)
		w.Bool(open)
	}
	if r.Key == nil {
		w.Count(0)
	} else {
		w.Count(len(r.Key.Hashes))
		w.digests(r.Key.Hashes)
		w.Count(len(r.Key.Unscoped))
		w.digests(r.Key.Unscoped)
		w.Raw(r.Key.Print[:])
		w.I64(int64(r.Key.Topic))
	}
	var change pack.Writer
	if r.Change != nil {
		r.Change.(Sendable).Encode(&change)
	}
	w.Count(len(change.B))
	w.Raw(change.B)
	w.Count(len(r.Appends))
	for _, a := range r.Appends {
		w.I64(int64(a.ID))
		w.I64(int64(a.IfEnd))
		w.I64(a.Delay.Microseconds())
		w.Time(a.Due)
		w.Count(len(a.shares))
		for _, p := range a.shares {
			w.U32(uint32(index[p.batch]))
			w.U32(uint32(p.first))
			w.U32(uint32(p.count))
		}
	}
}

func (w *bundleWriter) digests(ds []format.Digest) {
	for _, d := range ds {
		w.Raw(d[:])
	}
}

// bundleReader reads the sealed bytes of a bundle.
type bundleReader struct {
	*pack.Reader
	change func(r *pack.Reader) Change
}

func (r *bundleReader) mark() (m handover.Mark) {
	copy(m.Session[:], r.Raw(16))
	m.Number = r.U64()
	copy(m.Draw[:], r.Raw(16))
	return m
}

func (r *bundleReader) digests(n int) (ds []format.Digest) {
	for range n {
		ds = append(ds, format.Digest(r.Raw(16)))
	}
	return ds
}

func (r *bundleReader) set() *batchSet {
	set := &batchSet{upload: r.Bool()}
	set.uploaded = set.upload
	var perObject []int
	for range r.Count(24) {
		o := &dataObject{ref: format.DataRef{Seq: format.Seq(r.U64()), ID: r.U64(), Size: r.U32()}}
		set.objects, perObject = append(set.objects, o), append(perObject, int(r.U32()))
	}
	batches := make([]batch, r.Count(36))
	set.batches = make([]*batch, len(batches))
	for i := range batches {
		t := &batches[i]
		t.key = partitionKey{topic: format.TopicID(r.I64()), partition: format.Partition(r.U32())}
		t.count, t.maxTime = r.U32(), r.I64()
		t.row.Size, t.row.CRC = r.U32(), r.U32()
		set.batches[i] = t
	}
	if set.upload {
		r.place(set, perObject)
	}
	requests := make([]Request, r.Count(20))
	appends := make([]Append, len(requests)) // most requests have one
	set.requests = make([]*Request, len(requests))
	for i := range requests {
		r.request(set, &requests[i], &appends[i])
		set.requests[i] = &requests[i]
	}
	r.tiled(set)
	return set
}

// place gives the batches their places in the data objects.
func (r *bundleReader) place(set *batchSet, perObject []int) {
	rest := set.batches
	for i, o := range set.objects {
		if perObject[i] > len(rest) {
			r.Fail("its data objects have more batches than it has")
			return
		}
		at := int64(0)
		for _, t := range rest[:perObject[i]] {
			t.row.Pos = uint32(at)
			at += int64(t.row.Size)
		}
		if at+format.DataPayloadStart != int64(o.ref.Size) {
			r.Fail("a data object has %d bytes, and its batches have %d", o.ref.Size, at)
		}
		o.batches, rest = rest[:perObject[i]], rest[perObject[i]:]
	}
	if len(rest) > 0 {
		r.Fail("%d batches are in no data object", len(rest))
	}
}

// request reads a request into x, and its first append into first.
func (r *bundleReader) request(set *batchSet, x *Request, first *Append) {
	x.came, x.sealed, x.holders = r.I64(), true, 1
	for range r.Count(20) {
		x.Callers = append(x.Callers, foreignCaller{key: format.KeyID(r.I64()), until: r.Time(), open: r.Bool()})
	}
	if n := r.Count(16); n > 0 {
		x.Key = &Key{Hashes: r.digests(n)}
		x.Key.Unscoped = r.digests(r.Count(16))
		x.Key.Print = format.Digest(r.Raw(16))
		x.Key.Topic = format.TopicID(r.I64())
	}
	if b := r.Raw(r.Count(1)); len(b) > 0 {
		x.Change = r.decodeChange(b)
	}
	for i := range r.Count(36) {
		a := first
		if i > 0 {
			a = &Append{}
		}
		a.Part, a.ID, a.IfEnd = strconv.Itoa(i), format.TopicID(r.I64()), format.Offset(r.I64())
		a.Delay, a.Due = time.Duration(r.I64())*time.Microsecond, r.Time()
		for range r.Count(12) {
			p := &batchShare{request: x, append: a}
			index := int(r.U32())
			p.first, p.count = int(r.U32()), int(r.U32())
			if index >= len(set.batches) || p.count == 0 {
				r.Fail("a request has records in batch %d, of %d", index, len(set.batches))
				break
			}
			p.batch = set.batches[index]
			if p.batch.key.topic != a.ID {
				r.Fail("a request for one topic has records in a batch of another")
			}
			p.batch.shares = append(p.batch.shares, p)
			a.shares = append(a.shares, p)
		}
		if len(a.shares) == 0 {
			r.Fail("an append has no records")
		}
		x.Appends = append(x.Appends, a)
	}
	hashes := max(1, len(x.Appends))
	if len(x.Appends) == 0 && x.Change == nil || x.Key != nil && (len(x.Key.Hashes) != hashes || len(x.Key.Unscoped) > 0 && len(x.Key.Unscoped) != hashes) {
		r.Fail("a request is empty, or has not one hash of its idempotency key for each append")
	}
}

func (r *bundleReader) decodeChange(b []byte) Change {
	if of := pack.NewReader(b); of.U16() == sentSpent && of.Err() == nil {
		spent, err := format.DecodeSpent(of.Raw(of.Left()))
		if err != nil {
			r.Fail("%v", err)
			return nil
		}
		return tellSpent{spent}
	}
	if r.change == nil {
		r.Fail("this broker makes no changes for others")
		return nil
	}
	of := pack.NewReader(b)
	change := r.change(of)
	of.End()
	if err := of.Err(); err != nil {
		r.FailWith(err)
		return nil
	}
	return change
}

// tiled checks that the shares of each batch have all its records, one after the other, and that the batches of a request
// that shares none with others are adjacent.
func (r *bundleReader) tiled(set *batchSet) {
	if r.Err() != nil {
		return
	}
	for _, t := range set.batches {
		if len(t.shares) == 0 || t.row.Size < record.HeaderSize {
			r.Fail("a batch has no records, or no room for them")
			return
		}
		next := 0
		for _, p := range t.shares {
			if p.first != next {
				r.Fail("the records of a batch are not all of a request")
			}
			next += p.count
			if p.request.whole() {
				t.only = p.request
			}
		}
		if next != int(t.count) || t.only != nil && slices.ContainsFunc(t.shares, func(p *batchShare) bool { return p.request != t.only }) {
			r.Fail("a batch has %d records, and the requests have %d of them, or must not share them", t.count, next)
		}
	}
	for _, x := range set.requests {
		if !x.whole() || len(x.Appends) == 0 || r.Err() != nil {
			continue
		}
		var bs []*batch
		for _, t := range x.batches() {
			if !slices.Contains(bs, t) {
				bs = append(bs, t)
			}
		}
		i := slices.Index(set.batches, x.first())
		if !slices.Equal(set.batches[i:min(len(set.batches), i+len(bs))], bs) {
			r.Fail("the batches of a request are not adjacent")
		}
	}
}

// payload reads and checks the batches of a set that are in no data object.
func (r *bundleReader) payload(set *batchSet) {
	for _, t := range set.batches {
		t.bytes = bytes.Clone(r.Raw(int(t.row.Size))) // the cache may keep it for long, and must not keep the message with it
		if r.Err() != nil {
			return
		}
		head, err := record.Check(t.bytes, record.Limits{})
		switch {
		case err != nil:
			r.Fail("%v", err)
		case record.Verify(t.bytes, t.row.CRC) != nil, head.Base != 0, head.LeaderEpoch != 0, !head.Dense(), uint32(head.Count) != t.count, head.MaxTimestamp != t.maxTime:
			r.Fail("a batch has other records than it says")
		}
	}
}

// foreignCaller is a caller of another broker.
type foreignCaller struct {
	key   format.KeyID
	until time.Time
	open  bool
}

var errForeignCaller = errors.New("the caller may no longer make requests")

// May implements Caller.
func (c foreignCaller) May(in Keyring, now time.Time) error {
	switch {
	case c.open && in.NextKeyID() == 1:
		return nil
	case c.open, !in.HasKey(c.key), !c.until.IsZero() && !now.Before(c.until):
		return errForeignCaller
	}
	return nil
}

// Who implements Caller.
func (c foreignCaller) Who() (format.KeyID, bool, time.Time) { return c.key, c.open, c.until }
