package state

import (
	"encoding/binary"
	"fmt"
	"iter"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// Bounds on push targets. A log that exceeds them is damaged. Without bounds, a damaged number
// could make a broker allocate all memory. The limits for requests are lower.
const (
	PushTextBytesMax = 32 << 10 // total size of all texts of one target
	PushHeadersMax   = 256
)

const pushHeaderMemory = int64(unsafe.Sizeof(format.PushHeader{}))

func pushMemory(p *format.QueuePush) int64 {
	if p == nil {
		return 0
	}
	return int64(unsafe.Sizeof(*p)) + int64(p.TextBytes()) + int64(len(p.Headers))*pushHeaderMemory
}

// QueuePush returns the push target of an existing queue, or nil. Callers must not change the
// target.
func (d *Draft) QueuePush(id format.QueueID) *format.QueuePush { return d.queue(id).push }

// PushedQueues iterates over the queues with a push target, in no order. It includes queues
// whose push is stopped.
func (s *State) PushedQueues() iter.Seq[*Queue] {
	return func(yield func(*Queue) bool) {
		for _, q := range s.queues.byID {
			if q.Push != nil && !yield(q) {
				return
			}
		}
	}
}

// takePush takes a push target. The error does not show the target, because the target may hold
// secrets.
func (d *Draft) takePush(x *format.QueuePushSet) error {
	q := d.queue(x.Queue)
	if q == nil {
		return fmt.Errorf("%w: queue %d can't be pushed, since it does not exist", ErrNonsense, x.Queue)
	}
	if x.Push != nil && !soundPush(x.Push) {
		return fmt.Errorf("%w: the push target of queue %d is invalid", ErrNonsense, x.Queue)
	}
	q.push = x.Push
	return nil
}

func soundPush(p *format.QueuePush) bool {
	last := ""
	for _, h := range p.Headers {
		if h.Name <= last {
			return false
		}
		last = h.Name
	}
	return p.URL != "" && p.InFlight > 0 && p.TimeoutMS > 0 && p.TimeoutMS <= QueueMSMax &&
		len(p.Headers) <= PushHeadersMax && p.TextBytes() <= PushTextBytesMax
}

func appendPush(b []byte, p *format.QueuePush) []byte {
	if p == nil {
		return b
	}
	b = appendText(appendText(appendText(b, p.URL), p.Secret), p.Stopped)
	b = binary.AppendUvarint(b, uint64(p.TimeoutMS))
	b = binary.AppendUvarint(b, uint64(p.InFlight))
	b = binary.AppendUvarint(b, uint64(len(p.Headers)))
	for _, h := range p.Headers {
		b = appendText(appendText(b, h.Name), h.Value)
	}
	return b
}

func decodePush(r *reader) *format.QueuePush {
	p := &format.QueuePush{URL: r.text(), Secret: r.text(), Stopped: r.text(), TimeoutMS: r.int64(), InFlight: uint32(r.max(1<<32 - 1))}
	for range r.count(2) {
		p.Headers = append(p.Headers, format.PushHeader{Name: r.text(), Value: r.text()})
		if r.err != nil {
			return p
		}
	}
	if r.err == nil && !soundPush(p) {
		r.fail("a push target is invalid; it has %d requests at a time, a timeout of %d ms and %d headers", p.InFlight, p.TimeoutMS, len(p.Headers))
	}
	return p
}
