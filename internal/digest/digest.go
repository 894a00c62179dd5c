// Package digest hashes what requests ask for. With these hashes, the log recognises a request that a caller sends again. The
// hashes are stored, so a request must have the same hash in all versions of Seb.
package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/option"
	"github.com/simple-event-broker/seb/internal/record"
)

// Digester hashes a sequence of numbers and strings. It delimits each of them, so that
// different sequences have different hashes.
type Digester struct {
	hash    hash.Hash
	scratch []byte
}

// New returns a Digester of an empty sequence.
func New() *Digester { return &Digester{hash: sha256.New()} }

// Number adds a number.
func (d *Digester) Number(n int64) {
	d.scratch = binary.AppendVarint(d.scratch[:0], n)
	d.hash.Write(d.scratch)
}

// Bytes adds a string.
func (d *Digester) Bytes(b []byte) {
	d.Number(int64(len(b)))
	d.hash.Write(b)
}

// Texts adds strings.
func (d *Digester) Texts(all ...string) {
	for _, s := range all {
		d.Bytes([]byte(s))
	}
}

// Offsets adds offsets by partition.
func (d *Digester) Offsets(o map[int32]format.Offset) {
	d.Number(int64(len(o)))
	for _, p := range slices.Sorted(maps.Keys(o)) {
		d.Number(int64(p))
		d.Number(int64(o[p]))
	}
}

// Records are the records of an append: an engine.Records.
type Records interface {
	Record(i int, r *record.Record)
}

// Append adds the count records of an append, and its options. For a record without a timestamp it adds -1, because the
// broker gives such a record the current time, which differs in a retry.
func (d *Digester) Append(records Records, count int, o option.Append) {
	d.Number(int64(o.Partition))
	d.Number(int64(o.IfOffset))
	d.Number(int64(len(o.Partitions)))
	for _, p := range o.Partitions {
		d.Number(int64(p))
	}
	var r record.Record
	for i := range count {
		r.Headers, r.Timestamp = r.Headers[:0], -1
		records.Record(i, &r)
		d.Number(int64(len(r.Headers)))
		for _, h := range r.Headers {
			d.Texts(h.Key)
			d.Bytes(h.Value)
		}
		if r.Key == nil {
			d.Number(-1)
		} else {
			d.Bytes(r.Key)
		}
		d.Bytes(r.Value)
		d.Number(r.Timestamp)
	}
	if o.Delay != 0 || !o.Due.IsZero() { // an append without a delay must have the same hash as in old versions of Seb, which have no delays
		d.Number(int64(o.Delay))
		d.Number(o.Due.UnixMicro())
	}
}

// Sum returns the hash of the sequence.
func (d *Digester) Sum() format.Digest {
	return format.Digest(d.hash.Sum(nil)[:len(format.Digest{})])
}
