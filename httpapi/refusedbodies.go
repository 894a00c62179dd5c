package httpapi

import (
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// Every holder may have refusedBurst bytes of large bodies refused at once, and then
	// refusedBytesPerSecond. Large is more than smallBytes.
	refusedBurst          = 8 << 20
	refusedBytesPerSecond = 256 << 10
	// refusedWaitMax is how long a holder waits at most until it may send large bodies again.
	refusedWaitMax = time.Minute
	// refusedHoldersMax is how many holders (API keys, addresses) are counted at a time. Others are not limited.
	refusedHoldersMax = 4096
	// refusedDelay is how long the broker waits before it tells a holder that it may send no large bodies. Without
	// the delay a client that repeats its request at once would cost much CPU time.
	refusedDelay = time.Second
)

// refusedBodies counts, for each holder, the bytes of the large bodies that the broker decoded and parsed only to
// refuse the request because of a mistake of the client. A holder with too many of them may send no large bodies
// for a while: decoding and parsing take CPU time that other holders need.
type refusedBodies struct {
	mu sync.Mutex
	of map[seb.Holder]refusedBytes
}

// refusedBytes is the count of one holder.
type refusedBytes struct {
	bytes int64     // how many bytes were refused since the time in the next field
	since time.Time // when the first of these bytes was refused
	until time.Time // when the holder may have refusedBurst bytes refused again
}

func newRefusedBodies() *refusedBodies { return &refusedBodies{of: map[seb.Holder]refusedBytes{}} }

// durationOf returns the time in which a holder may have n bytes refused.
func durationOf(n int64) time.Duration {
	return time.Duration(float64(n) / refusedBytesPerSecond * float64(time.Second))
}

// check returns an error if the holder may send no large bodies now.
func (b *refusedBodies) check(of seb.Holder) error {
	b.mu.Lock()
	x, counted := b.of[of]
	b.mu.Unlock()
	now := time.Now()
	if full := now.Add(durationOf(refusedBurst)); !counted || x.until.Before(full) {
		return nil
	}
	wait := x.until.Sub(now) - durationOf(refusedBurst)
	who := "API key"
	if of.Key == 0 {
		who = "address"
	}
	return &seb.Error{
		Code: codeTooMuchRefused, Outcome: seb.NotCommitted, RetryAfter: wait,
		Detail: fmt.Sprintf("in the last %[1]v the broker refused requests from this %[2]s with %[3]d MiB of bodies in all: it accepts no large bodies from this %[2]s for the next %[4]v",
			max(time.Second, now.Sub(x.since).Round(time.Second)), who, x.bytes>>20, time.Duration(math.Ceil(wait.Seconds()))*time.Second),
		Hint: "correct those requests before you send them again: the response to each of them says why the broker refused it. The broker accepts requests with small bodies at once",
	}
}

// add counts a refused body of n bytes.
func (b *refusedBodies) add(of seb.Holder, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if len(b.of) >= refusedHoldersMax {
		for h, x := range b.of {
			if !now.Before(x.until) {
				delete(b.of, h)
			}
		}
	}
	x, known := b.of[of]
	if !known && len(b.of) >= refusedHoldersMax {
		return
	}
	if !now.Before(x.until) {
		x = refusedBytes{since: now, until: now}
	}
	x.bytes += n
	x.until = x.until.Add(durationOf(n))
	if most := now.Add(durationOf(refusedBurst) + refusedWaitMax); x.until.After(most) {
		x.until = most
	}
	b.of[of] = x
}

// countRefused counts the request's body if the broker read or decoded it, and then refused the request with that
// problem, because of a mistake of the client.
func (h *Handler) countRefused(w *response, p problem) {
	if !w.bodyRead && p.Code != seb.CodeRequestTooLarge {
		return // the client or the connection cut the body off
	}
	n := max(w.bytesIn, w.bytesDecoded)
	if n <= smallBytes {
		return
	}
	switch p.Status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		h.refused.add(w.holder(), n)
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity:
		// Such conflicts are part of normal work. But a client can have them on purpose, and an encoded body may
		// decode to a thousand times its size.
		if w.bytesDecoded > 0 {
			h.refused.add(w.holder(), n)
		}
	}
}

// delayRefusal waits before the answer to a holder that may send no large bodies. The request holds no memory of the
// budget while it waits.
func (h *Handler) delayRefusal(w *response) {
	timer := time.NewTimer(refusedDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.clientContext.Done():
	case <-h.draining.Done():
	}
}
