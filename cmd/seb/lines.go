package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	readChunkBytes = 256 << 10
	// A line is held in memory whole; a broker's limits are far below this.
	lineBytesMax = 256 << 20
)

// lineBatch holds lines in the form that an append request carries them: head
// is a count and that many sizes (uint32, little-endian), values are the lines
// back to back, without their LF.
type lineBatch struct {
	head   []byte
	values []byte
}

func (b *lineBatch) reset() {
	b.head, b.values = append(b.head[:0], 0, 0, 0, 0), b.values[:0]
}

func (b *lineBatch) count() int { return len(b.head)/4 - 1 }
func (b *lineBatch) size() int  { return len(b.head) + len(b.values) }

func (b *lineBatch) add(line []byte) {
	b.head = binary.LittleEndian.AppendUint32(b.head, uint32(len(line)))
	b.values = append(b.values, line...)
	binary.LittleEndian.PutUint32(b.head, uint32(b.count()))
}

// body returns the request's bytes; they are b's own.
func (b *lineBatch) body() io.Reader {
	return io.MultiReader(bytes.NewReader(b.head), bytes.NewReader(b.values))
}

// gatherer reads lines ahead of the requests that carry them. While a request
// is under way the next batch fills, so slow input goes out line by line and
// fast input in batches as large as they may be.
type gatherer struct {
	bytesMax   int // of a batch; a longer line makes a batch of its own
	recordsMax int

	mu      sync.Mutex
	changed *sync.Cond
	open    *lineBatch
	err     error // why reading ended: io.EOF, or what went wrong
}

func newGatherer(bytesMax, recordsMax int) *gatherer {
	g := &gatherer{bytesMax: bytesMax, recordsMax: recordsMax, open: &lineBatch{}}
	g.open.reset()
	g.changed = sync.NewCond(&g.mu)
	return g
}

// read gathers the lines of r after the first skip, until r or ctx ends. It
// can't be interrupted while r blocks.
func (g *gatherer) read(ctx context.Context, r io.Reader, skip int64) {
	defer context.AfterFunc(ctx, g.wake)()
	err := g.split(ctx, r, skip)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
	g.changed.Broadcast()
}

func (g *gatherer) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changed.Broadcast()
}

// split cuts what r yields into lines.
func (g *gatherer) split(ctx context.Context, r io.Reader, skip int64) error {
	buf := make([]byte, 0, readChunkBytes)
	for {
		if len(buf) == cap(buf) {
			if cap(buf) >= lineBytesMax {
				return fmt.Errorf("a line is longer than %s", size(lineBytesMax))
			}
			buf = append(make([]byte, 0, 2*cap(buf)), buf...)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		fresh := len(buf)
		buf = buf[:fresh+n]
		if end := bytes.LastIndexByte(buf[fresh:], '\n'); end >= 0 {
			end += fresh + 1
			if !g.add(ctx, buf[:end], &skip) {
				return context.Cause(ctx)
			}
			buf = buf[:copy(buf, buf[end:])]
		}
		if err == nil {
			continue
		}
		// The last line may lack its LF. If reading broke off, it may lack more.
		if errors.Is(err, io.EOF) && len(buf) > 0 && !g.add(ctx, append(buf, '\n'), &skip) {
			return context.Cause(ctx)
		}
		return err
	}
}

// add adds whole lines to the open batch, waiting for room as often as
// necessary. It returns false if ctx ended first.
func (g *gatherer) add(ctx context.Context, lines []byte, skip *int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.changed.Broadcast()
	for len(lines) > 0 {
		end := bytes.IndexByte(lines, '\n')
		line := lines[:end]
		lines = lines[end+1:]
		if *skip > 0 {
			*skip--
			continue
		}
		for g.fullLocked(len(line)) {
			g.changed.Broadcast()
			if ctx.Err() != nil {
				return false
			}
			g.changed.Wait()
		}
		g.open.add(line)
	}
	return true
}

func (g *gatherer) fullLocked(line int) bool {
	count := g.open.count()
	return count > 0 && (count >= g.recordsMax || g.open.size()+4+line > g.bytesMax)
}

// next waits for lines and returns them all, in a batch that is the caller's.
// spare, if not nil, is an old batch to fill next. After the last line it
// returns what ended the reading, io.EOF if all is well.
func (g *gatherer) next(ctx context.Context, spare *lineBatch) (*lineBatch, error) {
	defer context.AfterFunc(ctx, g.wake)()
	if spare == nil {
		spare = &lineBatch{}
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
