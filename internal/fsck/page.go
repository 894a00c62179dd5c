package fsck

import (
	"context"
	"errors"
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// checkPage checks the head of an object, which is or should be a page, and in a deep check the section of the page.
func (c *checker) checkPage(ctx context.Context, ref format.DataRef, head []byte, size int64, want contents) (uint32, error) {
	cluster, p, err := format.DecodePageHead(head)
	switch {
	case err != nil:
		return 0, err
	case cluster != c.cluster || p.Ref.Key() != ref.Key():
		return 0, fmt.Errorf("%w: it is %s of cluster %v", format.ErrForeign, p.Ref.Key(), cluster)
	case int64(p.Ref.Size) != size:
		return 0, wrongSize(size, int64(p.Ref.Size))
	case want.page != nil && p != *want.page:
		return 0, fmt.Errorf("%w: it has %d idempotency keys in %d bytes with the checksum %08x, and the log refers to %d in %d bytes with the checksum %08x",
			format.ErrCorrupt, p.Keys, p.Size, p.CRC, want.page.Keys, want.page.Size, want.page.CRC)
	case ref.Size != 0 && p.Ref.Size != ref.Size:
		return 0, wrongSize(size, int64(ref.Size))
	case want.page == nil && ref.Size != 0 && !want.dead:
		return 0, fmt.Errorf("%w: it has idempotency keys, and the log looks for records in it", format.ErrCorrupt)
	case !c.opts.Deep:
		return p.Ref.Size, nil
	}
	_, release, err := c.readPage(ctx, &p)
	if err != nil {
		return 0, err
	}
	release()
	return p.Ref.Size, nil
}

// readPage reads the section of a page, and checks it. The caller calls release when it no longer needs the section.
func (c *checker) readPage(ctx context.Context, p *format.Page) (body []byte, release func(), err error) {
	if release, err = c.hold(ctx, int64(p.Size)); err != nil {
		return nil, nil, err
	}
	o, err := c.get(ctx, p.Ref.Key(), int64(p.Pos), int64(p.Size))
	if err == nil {
		err = p.Check(o.Body)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return o.Body, release, nil
}

// readPages reads the pages of a state that was decoded from the checkpoint under a key. It reports whether the state is complete:
// if not, it has added a finding, or a page is missing, which the check of data objects reports.
func (c *checker) readPages(ctx context.Context, key string, s *state.State) (complete bool, err error) {
	var bodies [][]byte
	for _, p := range s.Pages() {
		err := believe(ctx, func() error {
			body, release, err := c.readPage(ctx, &p)
			if err == nil {
				release() // the state keeps what is in the page, so the bound for payloads does not count it
				bodies = append(bodies, body)
			}
			return err
		})
		if errors.Is(err, objstore.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			c.data[keyOf(p.Ref)] = dataUse{size: p.Ref.Size, live: true, checked: true}
			return false, c.blame(p.Ref.Key(), fmt.Errorf("%w (%s refers to it)", err, key))
		}
	}
	if err := s.ReadPages(bodies); err != nil {
		return false, c.blame(key, err)
	}
	return true, nil
}

// pagesOf returns the pages to which states refer.
func pagesOf(states ...*state.State) map[dataKey]*format.Page {
	pages := map[dataKey]*format.Page{}
	for _, s := range states {
		if s == nil {
			continue
		}
		for _, p := range s.Pages() {
			pages[keyOf(p.Ref)] = &p
		}
	}
	return pages
}
