package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

const (
	// knownMax bounds the records of one queue that are out, or are to go out again:
	// past it nothing new is handed out until some of them are done.
	knownMax = 64 << 10
	// walkRecords is how many records are looked at in one go.
	walkRecords = 256
	// blockedMax bounds, where keys keep their order, the records that wait behind others of
	// their key: past it none are looked at, of whatever key.
	blockedMax = 4096
)

// Dispatcher hands out the records of a queue that this broker owns. A new owner gets a new one.
type Dispatcher struct {
	all     *Dispatchers
	queue   uint64
	topic   uint64
	names   Names
	epoch   uint64
	opened  Time
	held    time.Time     // until then what another owner may have handed out is kept back
	gone    chan struct{} // closed when it has ended
	loading chan struct{} // holds a token while one reads for all

	mu            sync.Mutex
	config        Config
	table         *leases.Table
	parts         []part
	ahead         map[int32][]aheadRun       // the delayed records of each partition that were not looked at, ascending by offset; the state may not have the last yet
	turn          int                        // the partition to look into next
	walked        int64                      // records of it that were looked at since it has its turn
	delayed       delays                     // records passed over, since they were not due
	extended      map[leases.Place]time.Time // leases of records that were not looked at yet
	rests         map[leases.Place]time.Time // when records are due that were put back before the table knew them
	waiting       []inLine                   // receivers, the longest-waiting first
	wanted        int                        // how many records they want at most
	claiming      int                        // next attempts on their way into the log, for receivers
	failed        []leases.Delivery          // last deliveries, whose records are to become dead letters
	deadLettering int                        // goroutines that do so
	chunks        chunks
	holds         bool // ranges of parts are held back
	pace          pace
	behind        time.Time     // since when a limit should move; zero if none should
	moved         chan struct{} // closed when the limits, which are being moved, have been; nil if they are not
	urged         bool          // receivers wait for that
	shown         time.Time     // when the log last heard of this owner
	contested     time.Time     // until then the owner before may want the queue back
	closed        bool
	received      rate
	acknowledged  rate
}

// inLine is a receiver that waits.
type inLine struct {
	turn chan struct{} // closed when it is to look again
	most int           // how many records it wants
}

// part is the dispatcher's place in one partition.
type part struct {
	next  int64     // the first offset that was not looked at
	held  []offsets // before it, ascending: records that are held back, and not known
	lower int64     // where a limit is to be that comes back; 0 if none does
}

// Names are those of a queue and its topic.
type Names struct{ Topic, Queue string }

// newDispatcher returns a dispatcher for a queue that a commit, applied at that time, gave to this broker.
func (x *Dispatchers) newDispatcher(s *state.State, q *state.Queue, at Time) *Dispatcher {
	now, t := at.At, s.TopicByID(q.Topic)
	d := &Dispatcher{
		all: x, queue: q.ID, topic: t.ID, names: Names{t.Name, q.Name}, epoch: q.Epoch,
		opened: at, config: configOf(q.Config), gone: make(chan struct{}), loading: make(chan struct{}, 1), shown: now,
		table: leases.New(q.Config.Ordered), ahead: map[int32][]aheadRun{}, extended: map[leases.Place]time.Time{},
		rests: map[leases.Place]time.Time{},
	}
	d.held = now.Add(d.config.Lease)
	d.growLocked(len(t.Partitions))
	for x := range s.DelayedOf(t.ID) {
		p := int32(x.Partition)
		d.ahead[p] = append(d.ahead[p], aheadRun{x.Offset, x.End(), d.opened.When(x.Due)})
	}
	for _, list := range d.ahead {
		slices.SortFunc(list, func(x, y aheadRun) int { return cmp.Compare(x.from, y.from) })
	}
	return d
}

// Queue returns the id of the queue.
func (d *Dispatcher) Queue() uint64 { return d.queue }

// Topic returns the id of the queue's topic.
func (d *Dispatcher) Topic() uint64 { return d.topic }

// Names returns the names of the queue and its topic.
func (d *Dispatcher) Names() Names { return d.names }

// Epoch tells which of the queue's owners this broker is.
func (d *Dispatcher) Epoch() uint64 { return d.epoch }

// Gone is closed when the dispatcher has ended.
func (d *Dispatcher) Gone() <-chan struct{} { return d.gone }

// view calls f with the topic and the queue as the log has them, if it has them.
func (d *Dispatcher) view(f func(t *state.Topic, q *state.Queue)) {
	d.all.b.View(func(s *state.State) {
		if t, q := s.TopicByID(d.topic), s.QueueByID(d.queue); t != nil && q != nil {
			f(t, q)
		}
	})
}

// viewOwned is view while the queue has no later owner.
func (d *Dispatcher) viewOwned(f func(t *state.Topic, q *state.Queue)) {
	d.view(func(t *state.Topic, q *state.Queue) {
		if q.Epoch == d.epoch {
			f(t, q)
		}
	})
}

func (d *Dispatcher) growLocked(partitions int) {
	for len(d.parts) < partitions {
		d.parts = append(d.parts, part{})
	}
}

// close ends the dispatcher: somebody else owns the queue, or nobody.
func (d *Dispatcher) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.closed = true
		close(d.gone)
		d.all.chunks.remove(d.chunks...)
		d.chunks = nil
	}
}

// wakeLocked lets the receiver look again that has waited the longest.
func (d *Dispatcher) wakeLocked() {
	if len(d.waiting) > 0 {
		close(d.waiting[0].turn)
		d.wanted -= d.waiting[0].most
		d.waiting = d.waiting[1:]
	}
}

// Wake lets the receiver that has waited the longest try again.
func (d *Dispatcher) Wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wakeLocked()
}

// applied takes note of a commit's item. It runs in the commit loop, behind the state.
func (d *Dispatcher) applied(it format.Item, at Time) {
	now := at.At
	d.mu.Lock()
	defer d.mu.Unlock()
	switch x := it.(type) {
	case *format.QueueSet:
		d.config = configOf(x.Config)
	case *format.RecordsDone:
		for _, r := range x.Runs {
			for o := r.Offset; o < r.End(); o++ {
				d.table.Remove(place(x.Partition, o))
				delete(d.rests, place(x.Partition, o))
			}
			d.acknowledged.add(now, int64(r.Count))
		}
	case *format.RecordPutBack:
		if x.Parked {
			d.table.Remove(place(x.Partition, x.Offset))
			delete(d.rests, place(x.Partition, x.Offset))
			break
		}
		put := leases.Delivery{Place: place(x.Partition, x.Offset), Number: x.Number}
		d.meetHeldLocked(put)
		d.putBackLocked(put, at.When(x.NotBefore))
	case *format.RecordsAttempted:
		for _, a := range x.Attempts {
			d.table.Claimed(leases.Delivery{Place: place(x.Partition, a.Offset), Number: a.Number})
		}
	case *format.RecordsRedriven:
		d.redrivenLocked(x, now)
	case *format.QueuePurged:
		d.passLocked(x.Partition, x.Before)
	case *format.StartMoved:
		d.passLocked(x.Partition, x.Start)
	}
	d.wakeLocked()
}

// putBackLocked has a record wait that its worker put back.
func (d *Dispatcher) putBackLocked(x leases.Delivery, until time.Time) {
	if !d.table.PutBack(x, until) && len(d.rests) < knownMax {
		d.rests[x.Place] = until
	}
}

// redrivenLocked makes records known again that were parked, as far as the dispatcher has come.
func (d *Dispatcher) redrivenLocked(x *format.RecordsRedriven, now time.Time) {
	d.view(func(_ *state.Topic, q *state.Queue) {
		for _, o := range x.Offsets {
			if int(x.Partition) < len(d.parts) && o < d.parts[x.Partition].next {
				a, _ := q.Last(int32(x.Partition), o)
				d.table.AddAgain(leases.Delivery{Place: place(x.Partition, o), Number: a.Number}, leases.NoKey, now)
			}
		}
	})
}

// passLocked forgets the records of a partition before an offset.
func (d *Dispatcher) passLocked(partition uint32, before int64) {
	d.growLocked(int(partition) + 1)
	d.parts[partition].next = max(d.parts[partition].next, before)
	d.table.RemoveBelow(int32(partition), before)
	maps.DeleteFunc(d.rests, func(at leases.Place, _ time.Time) bool { return at.Partition == int32(partition) && at.Offset < before })
}

func place(partition uint32, offset int64) leases.Place {
	return leases.Place{Partition: int32(partition), Offset: offset}
}
