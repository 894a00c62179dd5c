package commitlog

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
)

// pageReads is how many pages of a checkpoint are read at once.
const pageReads = 16

// PageError says that a page of a checkpoint could not be read.
type PageError struct {
	Key string
	Err error
}

// Error names the page.
func (e *PageError) Error() string { return fmt.Sprintf("read the page %s: %v", e.Key, e.Err) }

// Unwrap returns the cause.
func (e *PageError) Unwrap() error { return e.Err }

// ReadPages returns the sections of pages, in their order, and checks them. Its errors are a *[PageError].
func ReadPages(ctx context.Context, store objstore.Store, pages []format.Page) ([][]byte, error) {
	bodies := make([][]byte, len(pages))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(pageReads)
	for i := range pages {
		g.Go(func() (err error) {
			if bodies[i], err = readPage(ctx, store, &pages[i]); err != nil {
				return &PageError{pages[i].Ref.Key(), err}
			}
			return nil
		})
	}
	return bodies, g.Wait()
}

func readPage(ctx context.Context, store objstore.Store, p *format.Page) ([]byte, error) {
	ctx, cancel := timeout(ctx, int64(p.Size))
	defer cancel()
	o, err := store.Get(ctx, p.Ref.Key(), int64(p.Pos), int64(p.Size))
	if err != nil {
		return nil, err
	}
	return o.Body, p.Check(o.Body)
}

// pages reads the pages of the checkpoint of slot s.
func (l *Log) pages(ctx context.Context, s format.Seq, pages []format.Page) ([][]byte, error) {
	bodies, err := ReadPages(ctx, l.store, pages)
	if x, ok := errors.AsType[*PageError](err); ok {
		if errors.Is(err, objstore.ErrNotFound) {
			l.with(func(p *Protocol) { p.PageMissing(x.Key) })
			return nil, fmt.Errorf("a page of %s is gone: %w", format.CheckpointKey(s), err)
		}
		return nil, l.judge(x.Key, fmt.Errorf("a page of %s can't be read: %w", format.CheckpointKey(s), err))
	}
	return bodies, err
}
