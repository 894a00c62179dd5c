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
	pageItems = 1000 // of one answer, at most and by default
	// pageBytes is how much a page holds at least before it ends although there are more items: one
	// topic may have very many partitions.
	pageBytes = 4 << 20

	// chunkReserved is what chunks take while they gather an answer.
	chunkReserved = chunkBytes + chunkBytes/2
)

// pageSpec is which part of a list the caller wants.
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

// listing is a list that is answered page by page.
type listing[T any] struct {
	name  string // of the field that holds the items
	items iter.Seq2[T, error]
	limit int
	add   func(c *chunks, item *T)
	next  func(c *chunks, last *T) // adds what the caller sends back as after
}

// write answers with a page. It holds one item at a time, for which items has memory reserved, and
// the chunks. Those count as a large answer when the page is longer than a chunk: then its client
// can make it hold them.
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
			more = true // also where there is no memory to go on now: the next page begins there
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

// endPage ends a page: next adds what the caller sends back for the page that follows, if there is more.
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

// reserveTopic reserves memory for an answer with something of each partition of a topic, of size bytes
// each: of those that the topic has, or will have.
func (h *Handler) reserveTopic(w *response, r *http.Request, size int64, partitions int) (release func(), err error) {
	n := max(partitions, h.broker.PartitionCount(r.PathValue("topic")))
	return h.reserveFor(w)(r.Context(), chunkReserved+int64(n)*size)
}

// partitionsBuffered is how many partitions fit a chunk, whatever is told of them. An answer with
// no more than that has a Content-Length.
const partitionsBuffered = 100

// writePartitions answers with what add adds: something of that many partitions.
func writePartitions(w *response, status, partitions int, add func(c *chunks)) error {
	w.Header().Set("Content-Type", typeJSON)
	out := newChunks(w)
	defer out.free()
	if partitions > partitionsBuffered {
		w.WriteHeader(status) // before the first chunk
	}
	add(out)
	out.text("\n")
	if w.status == 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(out.buf)))
		w.WriteHeader(status)
	}
	return out.flush()
}

// offset adds ,"name":n.
func (c *chunks) offset(name string, n seb.Offset) { c.number(name, int64(n)) }

// number adds ,"name":n.
func (c *chunks) number(name string, n int64) {
	c.buf = append(append(append(c.buf, `,"`...), name...), `":`...)
	c.integer(n)
}
