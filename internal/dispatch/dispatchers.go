package dispatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// doneMax is how many acknowledged deliveries a broker remembers. If a worker repeats the
// acknowledgement of one of these, the broker accepts it.
const doneMax = 16 << 10

// lossWarnEvery is the least time between two log messages about queues that other brokers took over.
const lossWarnEvery = time.Minute

// Options are the options of dispatchers.
type Options struct {
	State state.Viewer
	// Memory bounds the records that are read ahead, in bytes.
	Memory int64
	// Session is this broker's session, which the log names as the owner of the broker's queues.
	Session format.SessionKey
	// Address is where other brokers reach this one; it may be empty.
	Address string
	Logger  *slog.Logger
	// Life ends when the broker ends.
	Life context.Context //nolint:containedctx // it is the broker's life
}

// Dispatchers holds the dispatchers of all queues that this broker owns.
type Dispatchers struct {
	b      Broker
	opts   Options
	logger *slog.Logger
	chunks prefetched

	takeovers           takeovers
	warnOfSharedAddress sync.Once

	mu       sync.Mutex
	expected map[format.QueueID]takeover // takeovers whose commits are under way, by queue
	byID     map[format.QueueID]*Dispatcher
	byTopic  map[format.TopicID]map[format.QueueID]*Dispatcher // by topic, then by queue
	marked   map[format.QueueID]*Dispatcher                    // dispatchers whose limits should move with the next commit
	lost     map[format.QueueID]silence                        // queues that other brokers took over from this one
	done     doneLately

	warned time.Time // when warnOfLoss last logged a loss; only the commit loop uses warned
}

// New returns an empty set of dispatchers.
func New(b Broker, o Options) *Dispatchers {
	return &Dispatchers{
		b: b, opts: o, logger: o.Logger, chunks: prefetched{max: o.Memory},
		expected: map[format.QueueID]takeover{}, byID: map[format.QueueID]*Dispatcher{}, lost: map[format.QueueID]silence{},
		byTopic: map[format.TopicID]map[format.QueueID]*Dispatcher{}, marked: map[format.QueueID]*Dispatcher{},
		done: doneLately{numbers: map[doneRecord]uint32{}},
	}
}

// Of returns the dispatcher of a queue; nil if there is none.
func (x *Dispatchers) Of(queue format.QueueID) *Dispatcher {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byID[queue]
}

// drop removes and closes the dispatcher of a queue, and returns it; nil if there is none.
func (x *Dispatchers) drop(queue format.QueueID) *Dispatcher {
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

func (x *Dispatchers) list() []*Dispatcher {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := make([]*Dispatcher, 0, len(x.byID))
	for _, d := range x.byID {
		list = append(list, d)
	}
	return list
}

// ofTopic returns the dispatchers of the queues of a topic.
func (x *Dispatchers) ofTopic(topic format.TopicID) (list []*Dispatcher) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, d := range x.byTopic[topic] {
		list = append(list, d)
	}
	return list
}

func (x *Dispatchers) put(d *Dispatcher) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.byID[d.queue] = d
	if x.byTopic[d.topic] == nil {
		x.byTopic[d.topic] = map[format.QueueID]*Dispatcher{}
	}
	x.byTopic[d.topic][d.queue] = d
}

// Loaded ends all dispatchers. The broker calls Loaded when a checkpoint has replaced the state. The
// dispatchers have not seen all commits that the checkpoint covers, so they don't know what became of the
// records that they handed out.
func (x *Dispatchers) Loaded(*state.State) {
	for _, d := range x.list() {
		x.drop(d.queue)
	}
}

// Applying notes which records a commit delays. The broker calls Applying just before the state applies
// the commit. So when a dispatcher finds a record in the state, it already knows whether the record is
// delayed.
func (x *Dispatchers) Applying(entries []format.Entry, at state.Moment) {
	for _, it := range entries {
		if y, ok := it.(*format.RecordsDelayed); ok {
			for _, d := range x.ofTopic(y.Topic) {
				d.delay(y.Partition, aheadRun{y.Offset, y.End(), at.When(y.Due)}, at.At)
			}
		}
	}
}

// Applied notes a commit that the state has applied.
func (x *Dispatchers) Applied(s *state.State, entries []format.Entry, at state.Moment) {
	for _, it := range entries {
		x.apply(it, at)
	}
	for _, it := range entries {
		if y, ok := it.(*format.QueueOwned); ok {
			x.open(s, y.Queue, at)
		}
	}
	x.warnOfDeaths(s, entries)
}

func (x *Dispatchers) apply(it format.Entry, at state.Moment) {
	tell := func(queue format.QueueID) {
		if d := x.Of(queue); d != nil {
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
		if d := x.Of(y.Queue); d != nil {
			x.mu.Lock()
			x.lost[y.Queue] = silence{} // before drop, so that HasLost always finds this entry or the dispatcher
			x.mu.Unlock()
			x.drop(y.Queue)
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

// warnOfLoss logs that another broker has taken over a queue from this broker, which is still running.
// The message names the option to set. Only the commit loop calls warnOfLoss.
func (x *Dispatchers) warnOfLoss(d *Dispatcher) {
	if !x.warned.IsZero() && time.Since(x.warned) < lossWarnEvery {
		return
	}
	x.warned = time.Now()
	why, hint := "this broker advertises no address, so the other broker could not check that this broker was running", "advertise an address at which the other brokers reach this broker: seb serve --advertise"
	if x.opts.Address != "" {
		why = "the other broker got no response at the address that this broker advertises, or this broker could not reach the store"
		hint = "make sure that all brokers reach the address, and that it leads to this broker alone; to advertise another address, use seb serve --advertise"
	}
	x.logger.Warn("another broker has taken over a queue from this broker, which is still running: "+why,
		"topic", d.names.Topic, "queue", d.names.Queue, "address", x.opts.Address, "hint", hint)
}

// warnOfDeaths logs that records of pushed queues have become dead letters. There is one line for the dead letters
// of a queue in a commit. It describes the first one, since a target usually fails for all records in one way.
func (x *Dispatchers) warnOfDeaths(s *state.State, entries []format.Entry) {
	var died map[format.QueueID][]*format.RecordPutBack // nil for most commits
	for _, it := range entries {
		if y, ok := it.(*format.RecordPutBack); ok && y.DeadLetter {
			if died == nil {
				died = map[format.QueueID][]*format.RecordPutBack{}
			}
			died[y.Queue] = append(died[y.Queue], y)
		}
	}
	for queue, records := range died {
		d, q, y := x.Of(queue), s.QueueByID(queue), records[0]
		if d == nil || q == nil || q.Push == nil {
			continue
		}
		attrs := []any{
			"topic", d.names.Topic, "queue", d.names.Queue, "partition", y.Partition, "offset", y.Offset,
			"attempts", d.Attempt(leases.Delivery{Place: place(y.Partition, y.Offset), Attempt: y.Number}), "why", y.Reason,
		}
		if len(records) > 1 {
			attrs = append(attrs, "others", len(records)-1)
		}
		x.logger.Warn("a pushed record died: its last attempt failed, and it is a dead letter now",
			append(attrs, "hint", "list dead letters with seb queue dead "+d.names.Topic+" "+d.names.Queue)...)
	}
}

// doneLately holds the most recently acknowledged deliveries.
type doneLately struct {
	numbers map[doneRecord]uint32
	order   []doneRecord // the keys of numbers, in a ring buffer
	next    int
}

type doneRecord struct {
	queue     format.QueueID
	partition format.Partition
	offset    format.Offset
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

// DoneBy tells whether a delivery is one of the doneMax deliveries that were acknowledged last.
func (x *Dispatchers) DoneBy(queue format.QueueID, delivery leases.Delivery) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.done.numbers[doneRecord{queue, delivery.Partition, delivery.Offset}] == delivery.Attempt
}
