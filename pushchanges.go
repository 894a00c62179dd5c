package seb

import (
	"sync/atomic"

	"github.com/simple-event-broker/seb/internal/commitlog"
)

// pushChanges tells who delivers pushed records that there may be other queues to do so
// of than before.
type pushChanges struct {
	delivering atomic.Bool   // somebody does
	changed    chan struct{} // holds a token when something has changed
}

func (x *pushChanges) notify() {
	select {
	case x.changed <- struct{}{}:
	default:
	}
}

// applied takes note of a commit's item.
func (x *pushChanges) applied(it commitlog.Item) {
	switch it.(type) {
	case *commitlog.QueuePushSet, *commitlog.QueueSet, *commitlog.QueueDeleted, *commitlog.TopicDeleted,
		*commitlog.QueueOwned, *commitlog.QueueReleased:
		x.notify()
	}
}

// pushedQueue is a queue whose records are to be pushed, as the log has it.
type pushedQueue struct {
	owner
	q       *Queue
	topicID uint64
	target  *commitlog.QueuePush // which doesn't change
	here    bool                 // this broker owns it
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
		d := b.desks.of(q.ID)
		found[q.ID] = pushedQueue{
			owner: ownerOf(q), q: b.Queue(b.state.TopicByID(q.Topic).Name, q.Name), topicID: q.Topic, target: q.Push,
			here: d != nil && q.Owned && d.epoch == q.Epoch,
		}
	}
	return found
}

// due tells whether the queue has records that may be with its target now, or should be.
func (x *pushedQueue) due() bool {
	info, _, err := x.q.known()
	return err == nil && info.Ready+info.Held > 0
}
