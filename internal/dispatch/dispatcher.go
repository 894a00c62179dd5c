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
	// knownMax bounds the records in the table of one queue. At the bound the scan stops until some of
	// these records are done.
	knownMax = 64 << 10
	// scanRecords is how many records of a partition are scanned before the next partition's turn.
	scanRecords = 256
	// blockedMax bounds the records of an ordered queue that wait for an earlier record with the same
	// key. At the bound the scan stops, even for other keys.
	blockedMax = 4096
)

// Dispatcher hands out the records of a queue while this broker owns the queue. Each takeover of the
// queue makes a new dispatcher.
type Dispatcher struct {
	all     *Dispatchers
	queue   format.QueueID
	topic   format.TopicID
	names   Names
	epoch   format.Epoch
	opened  state.Moment
	held    time.Time     // until then, records that the previous owner may have handed out are held back (see uncertain.go)
	gone    chan struct{} // closed when the dispatcher has ended
	loading chan struct{} // holds a value while one receiver reads records, for all receivers

	mu            sync.Mutex
	config        Config
	table         *leases.Table
	parts         []part
	ahead         map[format.Partition][]aheadRun // runs of delayed records that were not scanned yet, ascending by offset; a new run is added just before the state gets its records
	turn          int                             // the partition to scan next
	scanned       int64                           // how many records of that partition were scanned in its present turn
	delayed       delays                          // runs of records that were scanned before they were due, and are not in the table
	extended      map[leases.Place]time.Time      // new ends of leases that workers extended, for records that were not scanned yet
	putBacks      map[leases.Place]time.Time      // for records that were put back and not scanned yet: until when each of them waits
	waiting       []inLine                        // receivers in line, the first in front
	wanted        int                             // how many records the receivers in line want at most
	claiming      int                             // number of record claims whose commits are under way
	claimed       chan struct{}                   // closed when the next of these commits has ended; nil if claiming is 0
	failed        []leases.Delivery               // last deliveries of records that are to become dead letters
	deadLettering int                             // number of goroutines that run deadLetterAll
	chunks        chunks
	holds         bool // whether any of parts has held ranges
	pace          pace
	shares        []int64       // memory for the list of sharesLocked
	behind        time.Time     // since when a limit should move; zero if no limit should move
	moved         chan struct{} // closed when the commit that moves limits has ended; nil if no such commit is under way
	urged         bool          // the commit that moves limits is urgent, since receivers wait for it
	shown         time.Time     // when this owner last wrote an entry to show that it runs
	contested     time.Time     // until then, the previous owner may take the queue back
	closed        bool
	received      rate
	acknowledged  rate
	deadLetters   int64 // records that became dead letters
}

// inLine is a receiver that waits.
type inLine struct {
	turn chan struct{} // closed when the receiver should try again
	most int           // how many records the receiver wants
}

// part is the progress of the scan in one partition.
type part struct {
	next    format.Offset // the first offset that was not scanned
	held    []offsets     // ranges of records before next that are held back, ascending
	lowered bool          // a commit under way lowers the dispatch limit to lower
	lower   format.Offset
}

// Names are the names of a queue and its topic.
type Names struct{ Topic, Queue string }

// newDispatcher returns a dispatcher for a queue that this broker took over by a commit. at is when
// that commit was applied.
func (x *Dispatchers) newDispatcher(s *state.State, q *state.Queue, at state.Moment) *Dispatcher {
	now, t := at.At, s.TopicByID(q.Topic)
	d := &Dispatcher{
		all: x, queue: q.ID, topic: t.ID, names: Names{t.Name, q.Name}, epoch: q.Epoch,
		opened: at, config: configOf(q.Config), gone: make(chan struct{}), loading: make(chan struct{}, 1), shown: now,
		table: leases.New(q.Config.Ordered), ahead: map[format.Partition][]aheadRun{}, extended: map[leases.Place]time.Time{},
		putBacks: map[leases.Place]time.Time{},
	}
	d.held = now.Add(d.config.Lease)
	d.growLocked(len(t.Partitions))
	for x := range s.DelayedOf(t.ID) {
		p := x.Partition
		d.ahead[p] = append(d.ahead[p], aheadRun{x.Offset, x.End(), d.opened.When(x.Due)})
	}
	for _, list := range d.ahead {
		slices.SortFunc(list, func(x, y aheadRun) int { return cmp.Compare(x.from, y.from) })
	}
	return d
}

// Queue returns the id of the queue.
func (d *Dispatcher) Queue() format.QueueID { return d.queue }

// Topic returns the id of the queue's topic.
func (d *Dispatcher) Topic() format.TopicID { return d.topic }

// Names returns the names of the queue and its topic.
func (d *Dispatcher) Names() Names { return d.names }

// Epoch returns the queue's epoch in which this broker is the owner.
func (d *Dispatcher) Epoch() format.Epoch { return d.epoch }

// view calls f with the topic and the queue unless they were deleted.
func (d *Dispatcher) view(f func(t *state.Topic, q *state.Queue)) {
	d.all.opts.State.View(func(s *state.State) {
		if t, q := s.TopicByID(d.topic), s.QueueByID(d.queue); t != nil && q != nil {
			f(t, q)
		}
	})
}

// viewOwned does what view does, but only while the queue has no later owner.
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

// wakeLocked takes the first receiver out of the line, and wakes it.
func (d *Dispatcher) wakeLocked() {
	if len(d.waiting) > 0 {
		close(d.waiting[0].turn)
		d.wanted -= d.waiting[0].most
		d.waiting = d.waiting[1:]
	}
}

func (d *Dispatcher) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wakeLocked()
}

// applied notes an entry of a commit that the state has applied. It runs in the commit loop.
func (d *Dispatcher) applied(it format.Entry, at state.Moment) {
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
				delete(d.putBacks, place(x.Partition, o))
			}
			d.acknowledged.add(now, int64(r.Count))
		}
	case *format.RecordPutBack:
		if x.DeadLetter {
			d.table.Remove(place(x.Partition, x.Offset))
			delete(d.putBacks, place(x.Partition, x.Offset))
			d.deadLetters++
			break
		}
		put := leases.Delivery{Place: place(x.Partition, x.Offset), Attempt: x.Number}
		d.enterHeldLocked(put)
		d.putBackLocked(put, at.When(x.NotBefore))
	case *format.RecordsAttempted:
		for _, a := range x.Attempts {
			d.table.Claimed(leases.Delivery{Place: place(x.Partition, a.Offset), Attempt: a.Number})
		}
	case *format.RecordsRedriven:
		d.redrivenLocked(x, now)
	case *format.QueuePurged:
		d.skipLocked(x.Partition, x.Before)
	case *format.StartMoved:
		d.skipLocked(x.Partition, x.Start)
	}
	d.wakeLocked()
}

// putBackLocked notes that a worker put a record back. The record waits until the given time.
func (d *Dispatcher) putBackLocked(x leases.Delivery, until time.Time) {
	if !d.table.PutBack(x, until) && len(d.putBacks) < knownMax {
		d.putBacks[x.Place] = until
	}
}

// redrivenLocked enters redriven records into the table if they were already scanned. The scan will enter
// all other redriven records.
func (d *Dispatcher) redrivenLocked(x *format.RecordsRedriven, now time.Time) {
	d.view(func(_ *state.Topic, q *state.Queue) {
		for _, o := range x.Offsets {
			if int(x.Partition) < len(d.parts) && o < d.parts[x.Partition].next {
				a, _ := q.Last(x.Partition, o)
				d.table.AddAgain(leases.Delivery{Place: place(x.Partition, o), Attempt: a.Number}, leases.NoKey, now)
			}
		}
	})
}

// skipLocked drops the records of a partition before an offset.
func (d *Dispatcher) skipLocked(partition format.Partition, before format.Offset) {
	d.growLocked(int(partition) + 1)
	d.parts[partition].next = max(d.parts[partition].next, before)
	d.table.RemoveBelow(partition, before)
	maps.DeleteFunc(d.putBacks, func(at leases.Place, _ time.Time) bool { return at.Partition == partition && at.Offset < before })
}

func place(partition format.Partition, offset format.Offset) leases.Place {
	return leases.Place{Partition: partition, Offset: offset}
}
