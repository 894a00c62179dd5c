package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const readChunkBytes = 256 << 10

// recordBatch holds records in the form of an append request. In the compact form, head has a count and
// that many sizes (uint32, little-endian), and values has the values back to back. In JSON, values is the
// whole request without jsonTail.
type recordBatch struct {
	json   bool
	n      int
	input  int64 // bytes of the input that the records took
	head   []byte
	values []byte
	starts []int // in JSON, where each record begins in values
}

const (
	jsonHead = `{"records":[`
	jsonTail = "]}\n"

	recordsType = "application/vnd.seb.records+json"
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

// sizeWith returns an upper bound of the batch's size with one more record of that many bytes.
func (b *recordBatch) sizeWith(record int) int { return b.size() + 4 + record }

// add adds a value, or a record's JSON.
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

func (b *recordBatch) mediaType() string {
	if b.json {
		return recordsType
	}
	return batchType
}

// body returns a reader of the request's bytes, which are the same at every attempt. The reader uses the
// memory of b.
func (b *recordBatch) body() io.Reader {
	if b.json {
		return io.MultiReader(bytes.NewReader(b.values), strings.NewReader(jsonTail))
	}
	return io.MultiReader(bytes.NewReader(b.head), bytes.NewReader(b.values))
}

var (
	recordIndex = regexp.MustCompile(`^record \d+: `)
	atByte      = regexp.MustCompile(`^(.* byte )(\d+)(.*)$`)
)

// inLines changes a broker's error that names a byte of the request: afterwards the error names the line
// of the input, and the byte in that line, both counted from 1. before is the number of lines before the
// batch.
func (b *recordBatch) inLines(err error, before int64) {
	e, ok := errors.AsType[*apiError](err)
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

// batcher reads records ahead of the requests that carry them. While a request is under way the next batch
// fills: slow input goes out record by record, fast input in batches of the largest size.
type batcher struct {
	form       *inputForm
	bytesMax   int // of a batch; a larger record makes a batch of its own
	recordsMax int

	mu      sync.Mutex
	changed *sync.Cond
	open    *recordBatch
	err     error // why reading ended: io.EOF, or what went wrong
}

func newBatcher(form *inputForm, bytesMax, recordsMax int) *batcher {
	g := &batcher{form: form, bytesMax: bytesMax, recordsMax: recordsMax, open: &recordBatch{json: form.json}}
	g.open.reset()
	g.changed = sync.NewCond(&g.mu)
	return g
}

// read collects the records of r, without the first skip records, until r or ctx ends. It can't be
// interrupted while r blocks.
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

// split cuts what r yields into records.
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
		// A failed read is not the end of the input: the last record may be incomplete then.
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

// add adds the complete records of data to the open batch, and waits for room whenever the batch is full.
// used is how many bytes of data the records took. at counts the records of the input; the first skip
// records are left out.
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

// malformed adds to err the number of the record that err is about. An io.EOF within the record becomes
// io.ErrUnexpectedEOF, since callers take io.EOF for the end of the input.
func (g *batcher) malformed(at int64, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s %d: %w", g.form.unit, at, err)
}

// placeLocked adds one record, once there is room. It returns false if ctx ended first.
func (g *batcher) placeLocked(ctx context.Context, record []byte, took int) bool {
	for g.open.count() > 0 && (g.open.count() >= g.recordsMax || g.open.sizeWith(len(record)) > g.bytesMax) {
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

// next waits for records and returns all that were read, in a batch that belongs to the caller. spare, if
// not nil, is an old batch that next fills again. After the last batch, next returns the error that ended
// the reading: io.EOF at the end of the input.
func (g *batcher) next(ctx context.Context, spare *recordBatch) (*recordBatch, error) {
	defer context.AfterFunc(ctx, g.wake)()
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
		case g.open.count() > 0:
			full := g.open
			g.open = spare
			g.changed.Broadcast()
			return full, nil
		case g.err != nil:
			return nil, g.err
		}
		g.changed.Wait()
	}
}
