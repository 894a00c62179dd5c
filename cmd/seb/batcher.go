package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

const readChunkBytes = 256 << 10

// recordBatch holds records in the form of an append request. In the compact form, head has the number of
// records and the size of each (uint32, little-endian), and values has their values back to back. In JSON,
// values has the body of the request except for its end, jsonTail, and head is empty.
type recordBatch struct {
	json   bool
	n      int
	input  int64 // how many bytes the records have in the input
	head   []byte
	values []byte
	starts []int  // in JSON, the position in values at which each record begins
	whole  []byte // memory of body
}

const (
	jsonHead = `{"records":[`
	jsonTail = "]}\n"
)

func (b *recordBatch) reset() {
	b.n, b.input, b.head, b.values, b.starts = 0, 0, b.head[:0], b.values[:0], b.starts[:0]
	if b.json {
		b.values = append(b.values, jsonHead...)
	} else {
		b.head = append(b.head, 0, 0, 0, 0)
	}
}

func (b *recordBatch) count() int { return b.n }

func (b *recordBatch) size() int {
	if b.json {
		return len(b.values) + len(jsonTail)
	}
	return len(b.head) + len(b.values)
}

// sizeWith returns an upper bound of the batch's size after the addition of a record of the given size.
func (b *recordBatch) sizeWith(record int) int { return b.size() + 4 + record }

// add adds a record. In the compact form, record has the bytes of the value; in JSON, record is the record's
// JSON.
func (b *recordBatch) add(record []byte) {
	b.n++
	if b.json {
		if b.n > 1 {
			b.values = append(b.values, ',')
		}
		b.starts = append(b.starts, len(b.values))
		b.values = append(b.values, record...)
		return
	}
	b.head = binary.LittleEndian.AppendUint32(b.head, uint32(len(record)))
	b.values = append(b.values, record...)
	binary.LittleEndian.PutUint32(b.head, uint32(b.n))
}

func (b *recordBatch) encoding() client.Encoding {
	if b.json {
		return client.List
	}
	return client.Values
}

// body returns the request's body, in the memory of b.
func (b *recordBatch) body() []byte {
	if b.json {
		return append(b.values, jsonTail...)
	}
	b.whole = append(append(b.whole[:0], b.head...), b.values...)
	return b.whole
}

var (
	recordIndex = regexp.MustCompile(`^record \d+: `)
	atByte      = regexp.MustCompile(`^(.* byte )(\d+)(.*)$`)
)

// inLines changes an error of a broker that names a byte of the request. Afterwards the error names the line
// of the input, and the byte in that line, both counted from 1. before is how many lines of the input precede
// the batch.
func (b *recordBatch) inLines(err error, before int64) {
	e, ok := errors.AsType[*seb.Error](err)
	if !ok {
		return
	}
	named := atByte.FindStringSubmatch(e.Detail)
	if named == nil {
		return
	}
	at, err := strconv.Atoi(named[2])
	i, starts := slices.BinarySearch(b.starts, at)
	if err != nil || i == 0 && !starts {
		return // the byte is in no record
	}
	if !starts {
		i--
	}
	e.Detail = fmt.Sprintf("line %d: %s%d%s", before+int64(i)+1, recordIndex.ReplaceAllString(named[1], ""), at-b.starts[i]+1, named[3])
}

// batcher collects records from the input into the next batch, while the request with the previous batch is
// under way. So records of slow input are sent one by one, and records of fast input in batches of the
// largest size.
type batcher struct {
	form       *inputForm
	bytesMax   int // the largest size of a batch; a larger record is sent in a batch of its own
	recordsMax int

	mu      sync.Mutex
	changed *sync.Cond
	open    *recordBatch
	full    bool  // the next record does not fit into open
	err     error // why reading ended: io.EOF, or what went wrong
}

func newBatcher(form *inputForm, bytesMax, recordsMax int) *batcher {
	g := &batcher{form: form, bytesMax: bytesMax, recordsMax: recordsMax, open: &recordBatch{json: form.json}}
	g.open.reset()
	g.changed = sync.NewCond(&g.mu)
	return g
}

// read collects the records of r, except for the first skip records, until r or ctx ends. The end of ctx does
// not interrupt a read of r that blocks.
func (g *batcher) read(ctx context.Context, r io.Reader, skip int64) {
	defer context.AfterFunc(ctx, g.wake)()
	err := g.split(ctx, r, skip)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
	g.changed.Broadcast()
}

func (g *batcher) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changed.Broadcast()
}

// split reads r and cuts the bytes into records.
func (g *batcher) split(ctx context.Context, r io.Reader, skip int64) error {
	buf := make([]byte, 0, readChunkBytes)
	at := int64(0) // records found so far, the skipped ones included
	for {
		if len(buf) == cap(buf) {
			if cap(buf) >= 2*recordBytesMax {
				return fmt.Errorf("%s %d is larger than %s", g.form.unit, at+1, size(recordBytesMax))
			}
			buf = append(make([]byte, 0, 2*cap(buf)), buf...)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		// Only io.EOF is the end of the input: after another error, the last record may be incomplete.
		used, cutErr := g.add(ctx, buf, errors.Is(err, io.EOF), &at, skip)
		if cutErr != nil {
			return cutErr
		}
		if errors.Is(err, io.EOF) && at < skip {
			return usage(hinted(fmt.Errorf("it has %d %ss, but --skip leaves out %d", at, g.form.unit, skip), "is it the same input as before?"))
		}
		if err != nil {
			return err
		}
		buf = buf[:copy(buf, buf[used:])]
	}
}

// add adds the complete records of data to the open batch, and waits whenever that batch is full. end is true
// if the input ends with data. used is how many bytes of data became records. add increments *at for each
// record of the input, also for the first skip records, which it leaves out of the batch.
func (g *batcher) add(ctx context.Context, data []byte, end bool, at *int64, skip int64) (used int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.changed.Broadcast()
	var encoded []byte
	for {
		f, whole, err := g.form.framing.cut(data[used:], end)
		if err != nil {
			return used, g.malformed(*at+1, err)
		}
		if !whole {
			return used, nil
		}
		used += f.took
		if *at++; *at <= skip {
			continue
		}
		record := f.value
		if g.form.encode != nil {
			if encoded, err = g.form.encode(encoded[:0], f); err != nil {
				return used, g.malformed(*at, err)
			}
			record = encoded
		}
		if !g.placeLocked(ctx, record, f.took) {
			return used, context.Cause(ctx)
		}
	}
}

// malformed adds to err the number of the record that can't be read. An io.EOF within the record becomes
// io.ErrUnexpectedEOF, since callers take io.EOF for the end of the input.
func (g *batcher) malformed(at int64, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s %d: %w", g.form.unit, at, err)
}

// placeLocked waits until the open batch has room, and adds one record. It returns false if ctx ended first.
func (g *batcher) placeLocked(ctx context.Context, record []byte, took int) bool {
	for g.open.count() > 0 && (g.open.count() >= g.recordsMax || g.open.sizeWith(len(record)) > g.bytesMax) {
		g.full = true
		g.changed.Broadcast()
		if ctx.Err() != nil {
			return false
		}
		g.changed.Wait()
	}
	g.open.add(record)
	g.open.input += int64(took)
	return true
}

// next waits until the open batch has records, and returns that batch, which then belongs to the caller.
// Until the time given, next returns a batch only if it is full or the last one. spare, if not nil, is a batch
// that the caller no longer needs; next makes it the open batch. After the last batch, next returns the error that
// ended the reading: io.EOF at the end of the input.
func (g *batcher) next(ctx context.Context, spare *recordBatch, collectUntil time.Time) (*recordBatch, error) {
	defer context.AfterFunc(ctx, g.wake)()
	if wait := time.Until(collectUntil); wait > 0 {
		defer time.AfterFunc(wait, g.wake).Stop()
	}
	if spare == nil {
		spare = &recordBatch{json: g.form.json}
	}
	spare.reset()
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case g.open.count() > 0 && (g.full || g.err != nil || !time.Now().Before(collectUntil)):
			batch := g.open
			g.open, g.full = spare, false
			g.changed.Broadcast()
			return batch, nil
		case g.err != nil:
			return nil, g.err
		}
		g.changed.Wait()
	}
}
