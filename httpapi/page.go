package httpapi

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	pageItems = 1000 // the most items of one page, and the default
	// pageBytes is the size at which a page ends even if the page has fewer items than the client asked
	// for: an item may be large, such as a topic with very many partitions.
	pageBytes = 4 << 20

	// chunkReserved is the capacity of a buffer of a [chunks]. The piece with which a buffer gets larger than
	// chunkBytes has at most chunkBytes/12 bytes.
	chunkReserved = chunkBytes + chunkBytes/8
)

// pageSpec says which part of a list the caller wants. For after="b" and limit=10 that is the first ten items
// whose names (for API keys: ids) come after "b".
type pageSpec struct {
	after string
	limit int
}

func parsePage(r *http.Request) (p pageSpec, _ error) {
	q, err := parseQuery(r, "after", "limit")
	if err != nil {
		return p, err
	}
	limit, err := q.count("limit", 1, pageItems, pageItems)
	return pageSpec{q["after"], int(limit)}, err
}

// listing is a list that a caller reads page by page.
type listing[T any] struct {
	name  string // the name of the JSON field with the items
	items iter.Seq2[T, error]
	limit int
	add   func(c *chunks, item *T)
	next  func(c *chunks, last *T) // writes the value that the client sends as ?after= to get the next page
}

// write answers with a page. It needs memory for the buffer of a [chunks], and for one item at a time. The
// iterator l.items reserves the memory of the item. If the page is longer than the buffer, the buffer's
// memory is taken from the share for large answers, since a slow client can then occupy the buffer for long.
func (l listing[T]) write(ctx context.Context, h *Handler, w *response) error {
	m := h.newAnswerMemory(w)
	if err := m.take(ctx, seb.ShareSmall, chunkReserved, time.Hour); err != nil {
		return err
	}
	defer m.free()
	w.Header().Set("Content-Type", typeJSON)
	out := newChunks(w)
	defer out.free()
	out.large = func() error { return m.take(ctx, seb.ShareAnswers, chunkReserved, time.Hour) }
	out.text(`{"` + l.name + `":[`)
	var last T
	n, more := 0, false
	for item, err := range l.items {
		if out.err != nil {
			break
		}
		if err != nil && n == 0 {
			return err
		}
		if err != nil || n == l.limit || out.size() >= pageBytes {
			more = true // if there is no memory for this item now, the next page begins with this item
			break
		}
		if n > 0 {
			out.text(",")
		}
		l.add(out, &item)
		last = item
		n++
	}
	return out.endPage(more, func() { l.next(out, &last) })
}

// endPage ends a page. If there are more items, next writes the value that the client sends to get the next page.
func (c *chunks) endPage(more bool, next func()) error {
	c.text(`],"next":`)
	if more {
		next()
	} else {
		c.text("null")
	}
	c.text("}\n")
	return c.flush()
}

// reserveTopic reserves memory for an answer that takes size bytes for each partition of a topic. partitions is
// the number of partitions that the topic shall have after the request, or 0 if the request does not say.
func (h *Handler) reserveTopic(w *response, r *http.Request, size int64, partitions int) (release func(), err error) {
	n := max(partitions, h.broker.PartitionCount(r.PathValue("topic")))
	return h.reserveFor(w)(r.Context(), chunkReserved+int64(n)*size)
}

// partitionsBuffered is how many partitions fit in the buffer of a [chunks], whatever fields the answer has for
// each partition. An answer about up to 100 partitions is complete in the buffer, so it has a Content-Length.
const partitionsBuffered = 100

// writePartitions answers with a JSON object that describes the given number of partitions. add writes the
// object.
func writePartitions(w *response, status, partitions int, add func(c *chunks)) error {
	w.Header().Set("Content-Type", typeJSON)
	out := newChunks(w)
	defer out.free()
	if partitions > partitionsBuffered {
		w.WriteHeader(status) // the status must be written before the first chunk
	}
	add(out)
	out.text("\n")
	if w.status == 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(out.buf)))
		w.WriteHeader(status)
	}
	return out.flush()
}

// offset writes ,"name":n.
func (c *chunks) offset(name string, n seb.Offset) { c.number(name, int64(n)) }

// number writes ,"name":n.
func (c *chunks) number(name string, n int64) {
	c.buf = append(append(append(c.buf, `,"`...), name...), `":`...)
	c.integer(n)
}
