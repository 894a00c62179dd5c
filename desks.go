package seb

import (
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/push"
	"github.com/simple-event-broker/seb/internal/state"
)

// What was done lately is remembered, so that an answer that is sent again is known.
const doneMax = 16 << 10

// lossWarnEvery is how long the loss of queues to other brokers is not logged again.
const lossWarnEvery = time.Minute

// desks are those of the queues that this broker owns.
type desks struct {
	b         *Broker
	taking    singleflight.Group
	takeovers sync.WaitGroup // those that are under way
	pushes    pushChanges
	chunks    keptChunks

	mu       sync.Mutex
	over     bool                // the broker shuts down: it takes over no more queues
	expected map[uint64]takeover // by queue
	byID     map[uint64]*desk
	byTopic  map[uint64]map[uint64]*desk // by queue
	marked   map[uint64]*desk            // those whose dispatch limits should move
	lost     map[uint64]silence          // queues that other brokers took over from this one, and the silence of their owners
	done     doneLately

	warned time.Time // when a loss was logged; the commit loop's
}

func (x *desks) init(b *Broker) {
	x.b, x.chunks.max = b, b.opts.Memory/chunksShare
	x.expected, x.byID, x.lost = map[uint64]takeover{}, map[uint64]*desk{}, map[uint64]silence{}
	x.byTopic, x.marked = map[uint64]map[uint64]*desk{}, map[uint64]*desk{}
	x.done.numbers = map[doneRecord]uint32{}
	x.pushes.changed, x.pushes.pushers = make(chan struct{}, 1), map[uint64]*push.Pusher{}
}

func (x *desks) of(queue uint64) *desk {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byID[queue]
}

// drop ends the desk of a queue, if there is one.
func (x *desks) drop(queue uint64) *desk {
	x.mu.Lock()
	d := x.byID[queue]
	delete(x.byID, queue)
	delete(x.marked, queue)
	if d != nil {
		delete(x.byTopic[d.topic], queue)
		if len(x.byTopic[d.topic]) == 0 {
			delete(x.byTopic, d.topic)
		}
	}
	x.mu.Unlock()
	if d != nil {
		d.close()
	}
	return d
}

func (x *desks) all() []*desk {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := make([]*desk, 0, len(x.byID))
	for _, d := range x.byID {
		list = append(list, d)
	}
	return list
}

// ofTopic returns the desks of a topic's queues.
func (x *desks) ofTopic(topic uint64) (list []*desk) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, d := range x.byTopic[topic] {
		list = append(list, d)
	}
	return list
}

// put makes a desk known.
func (x *desks) put(d *desk) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.byID[d.queue] = d
	if x.byTopic[d.topic] == nil {
		x.byTopic[d.topic] = map[uint64]*desk{}
	}
	x.byTopic[d.topic][d.queue] = d
}

// loaded implements observer: it ends all desks, since nobody knows any more what became of what
// they handed out.
func (x *desks) loaded(*state.State) {
	for _, d := range x.all() {
		x.drop(d.queue)
	}
	x.pushes.notify()
}

// applying implements observer: before anybody can look at records, the desks know which of them
// are not to be handed out at once.
func (x *desks) applying(items []format.Item, at logTime) {
	for _, it := range items {
		if y, ok := it.(*format.RecordsDelayed); ok {
			for _, d := range x.ofTopic(y.Topic) {
				d.delay(int32(y.Partition), aheadRun{y.Offset, y.End(), at.when(y.Due)}, at.at)
			}
		}
	}
}

// applied implements observer.
func (x *desks) applied(_ *state.State, items []format.Item, at logTime) {
	for _, it := range items {
		x.pushes.applied(it)
		x.apply(it, at)
	}
	for _, it := range items {
		if y, ok := it.(*format.QueueOwned); ok {
			x.b.openDesk(y.Queue, at)
		}
	}
}

// apply takes note of a commit's item.
func (x *desks) apply(it format.Item, at logTime) {
	tell := func(queue uint64) {
		if d := x.of(queue); d != nil {
			d.applied(it, at)
		}
	}
	switch y := it.(type) {
	case *format.Batch:
		for _, d := range x.ofTopic(y.Topic) {
			d.wake()
		}
	case *format.TopicDeleted:
		for _, d := range x.ofTopic(y.ID) {
			x.drop(d.queue)
		}
	case *format.QueueDeleted:
		x.drop(y.ID)
	case *format.QueueReleased:
		x.drop(y.Queue)
	case *format.QueueOwned:
		if d := x.drop(y.Queue); d != nil {
			x.mu.Lock()
			x.lost[y.Queue] = silence{}
			x.mu.Unlock()
			x.warnOfLoss(d)
		}
	case *format.RecordsDone:
		x.mu.Lock()
		x.done.add(y)
		x.mu.Unlock()
		tell(y.Queue)
	case *format.StartMoved:
		for _, d := range x.ofTopic(y.Topic) {
			d.applied(it, at)
		}
	case *format.QueueSet:
		tell(y.ID)
	case *format.WindowMoved:
		tell(y.Queue)
	case *format.RecordsAttempted:
		tell(y.Queue)
	case *format.RecordPutBack:
		tell(y.Queue)
	case *format.RecordsRedriven:
		tell(y.Queue)
	case *format.QueuePurged:
		tell(y.Queue)
	}
}

// warnOfLoss says what to set where another broker has taken over a queue although this one
// runs: it could not ask this one. It runs in the commit loop.
func (x *desks) warnOfLoss(d *desk) {
	if !x.warned.IsZero() && time.Since(x.warned) < lossWarnEvery {
		return
	}
	x.warned = time.Now()
	why, hint := "this broker advertises no address where the other could ask it", "name one that the other brokers reach, with seb serve --advertise"
	if d.b.opts.Address != "" {
		why = "the other got no answer from this broker at the address that it advertises, or this one could not reach the store"
		hint = "see that all brokers reach the address, and that it leads to this one alone; seb serve --advertise names another"
	}
	d.b.logger.Warn("another broker has taken over a queue from this one, which runs: "+why,
		"topic", d.topicName, "queue", d.queueName, "address", d.b.opts.Address, "hint", hint)
}

// doneLately is which deliveries did the records that were done last.
type doneLately struct {
	numbers map[doneRecord]uint32
	order   []doneRecord // a ring
	next    int
}

type doneRecord struct {
	queue     uint64
	partition uint32
	offset    int64
}

func (l *doneLately) add(x *format.RecordsDone) {
	for _, r := range x.Runs {
		for o := r.Offset; o < r.End(); o++ {
			k := doneRecord{x.Queue, x.Partition, o}
			if _, ok := l.numbers[k]; ok {
				continue
			}
			if len(l.order) < doneMax {
				l.order = append(l.order, k)
			} else {
				delete(l.numbers, l.order[l.next])
				l.order[l.next] = k
				l.next = (l.next + 1) % doneMax
			}
			l.numbers[k] = r.Number
		}
	}
}

// doneBy tells whether a record is known to have been done by that delivery.
func (x *desks) doneBy(t receipt) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.done.numbers[doneRecord{t.queue, uint32(t.partition), t.offset}] == t.number
}

func (x *desks) hasLost(queue uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, lost := x.lost[queue]
	return lost
}

// silence is since when, by this machine's monotonic clock, a broker has known that the log
// heard of an owner last at that time of the log.
type silence struct {
	seen  time.Time
	since time.Time
}

// silentFor returns for how long at least the owner of a queue that was lost to it has not shown
// itself. The log's time does not tell: it is ahead of the store's when that was set back.
func (x *desks) silentFor(o owner) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, lost := x.lost[o.queue]
	if !lost {
		return 0
	}
	if !s.seen.Equal(o.seen) {
		s = silence{o.seen, time.Now()}
		x.lost[o.queue] = s
	}
	return time.Since(s.since)
}
