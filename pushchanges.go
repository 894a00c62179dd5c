package seb

import (
	"sync"
	"sync/atomic"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/push"
	"github.com/simple-event-broker/seb/internal/state"
)

// pushChanges tells who delivers pushed records that there may be other queues to do so
// of than before.
type pushChanges struct {
	delivering atomic.Bool   // somebody does
	changed    chan struct{} // holds a token when something has changed

	mu      sync.Mutex
	pushers map[uint64]*push.Pusher // that run here, by queue
}

func (x *pushChanges) init() {
	x.changed, x.pushers = make(chan struct{}, 1), map[uint64]*push.Pusher{}
}

// began takes note of a pusher that runs.
func (x *pushChanges) began(queue uint64, p *push.Pusher) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pushers[queue] = p
}

// ended forgets a pusher, unless the queue has another by now.
func (x *pushChanges) ended(queue uint64, p *push.Pusher) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pushers[queue] == p {
		delete(x.pushers, queue)
	}
}

// blocked tells why this broker may not push a queue to where its URL leads, "" if it may, or
// does not push it.
func (x *pushChanges) blocked(queue uint64) string {
	x.mu.Lock()
	p := x.pushers[queue]
	x.mu.Unlock()
	if p == nil {
		return ""
	}
	return p.Status().Blocked
}

func (x *pushChanges) notify() {
	select {
	case x.changed <- struct{}{}:
	default:
	}
}

// loaded implements observer.
func (x *pushChanges) loaded(*state.State) { x.notify() }

// applying implements observer.
func (x *pushChanges) applying([]format.Item, logTime) {}

// applied implements observer.
func (x *pushChanges) applied(_ *state.State, items []format.Item, _ logTime) {
	for _, it := range items {
		switch it.(type) {
		case *format.QueuePushSet, *format.QueueSet, *format.QueueDeleted, *format.TopicDeleted,
			*format.QueueOwned, *format.QueueReleased:
			x.notify()
		}
	}
}

// pushedQueue is a queue whose records are to be pushed, as the log has it.
type pushedQueue struct {
	owner
	q       *Queue
	topicID uint64
	target  *format.QueuePush // which doesn't change
	here    bool              // this broker owns it
}

// pushedQueues returns those that are to be pushed now: not the stopped and paused ones.
func (b *Broker) pushedQueues() map[uint64]pushedQueue {
	found := map[uint64]pushedQueue{}
	b.mu.RLock()
	defer b.mu.RUnlock()
	for q := range b.state.PushedQueues() {
		if q.Push.Stopped != "" || q.Config.Paused {
			continue
		}
		d := b.dispatchers.Of(q.ID)
		found[q.ID] = pushedQueue{
			owner: ownerOf(q), q: b.Queue(b.state.TopicByID(q.Topic).Name, q.Name), topicID: q.Topic, target: q.Push,
			here: d != nil && q.Owned && d.Epoch() == q.Epoch,
		}
	}
	return found
}

// due tells whether the queue has records that may be with its target now, or should be.
func (x *pushedQueue) due() bool {
	info, _, err := x.q.known()
	return err == nil && info.Ready+info.Held > 0
}
