package engine

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/metric"
)

// trafficTopicsMax is how many topics have counters of their own. All other topics share counters.
const trafficTopicsMax = 1000

// topicTraffic counts what was appended to a topic, and read from it, through this broker. Bytes are those
// of keys, values and headers.
type topicTraffic struct {
	appendedRecords, appendedBytes, readRecords, readBytes atomic.Int64
}

// traffic has the counters of topics. A topic gets counters of its own when it is first appended to or read,
// if fewer than trafficTopicsMax topics have some; it keeps them until it is deleted. So no counter ever
// falls. traffic is an [Observer]: it learns of deleted topics.
type traffic struct {
	state  state.Viewer
	others topicTraffic // of all topics without counters of their own

	// byID is replaced, never changed, so that appends and reads find their counters without a lock.
	byID atomic.Pointer[map[format.TopicID]*topicTraffic]

	mu sync.Mutex // guards the replacement of byID
}

func newTraffic(s state.Viewer) *traffic {
	x := &traffic{state: s}
	x.byID.Store(&map[format.TopicID]*topicTraffic{})
	return x
}

// of returns the counters of a topic.
func (x *traffic) of(id format.TopicID) *topicTraffic {
	own := *x.byID.Load()
	if t := own[id]; t != nil {
		return t
	}
	if len(own) >= trafficTopicsMax {
		return &x.others
	}
	return x.add(id)
}

// add gives a topic counters of its own, unless the topic was deleted or too many topics have some.
func (x *traffic) add(id format.TopicID) (t *topicTraffic) {
	x.state.View(func(s *state.State) { // while add has the state, no commit deletes the topic: so Applied comes later, and removes the counters
		x.mu.Lock()
		defer x.mu.Unlock()
		own := *x.byID.Load()
		switch t = own[id]; {
		case t != nil: // added since
		case len(own) >= trafficTopicsMax, s.TopicByID(id) == nil:
			t = &x.others
		default:
			t = &topicTraffic{}
			own = maps.Clone(own)
			own[id] = t
			x.byID.Store(&own)
		}
	})
	return t
}

// remove removes the counters of the topics for which gone returns true.
func (x *traffic) remove(gone func(id format.TopicID) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	own := maps.Clone(*x.byID.Load())
	maps.DeleteFunc(own, func(id format.TopicID, _ *topicTraffic) bool { return gone(id) })
	x.byID.Store(&own)
}

// tally counts the appends of a commit. It adds neighboring appends to one topic up first: that costs much less
// than to count each of them.
type tally struct {
	of             *traffic
	topic          format.TopicID
	records, bytes int64 // appended to topic, and not counted yet
}

// add adds appends that were committed.
func (y *tally) add(appends []*Append) {
	for _, a := range appends {
		if a.ID != y.topic {
			y.count()
			y.topic = a.ID
		}
		y.records += int64(a.Count)
		y.bytes += a.content
	}
}

// count counts what was added.
func (y *tally) count() {
	if y.records > 0 {
		t := y.of.of(y.topic)
		t.appendedRecords.Add(y.records)
		t.appendedBytes.Add(y.bytes)
	}
	y.records, y.bytes = 0, 0
}

// read counts records that a cursor has passed to its sink.
func (x *traffic) read(id format.TopicID, records, bytes int64) {
	t := x.of(id)
	t.readRecords.Add(records)
	t.readBytes.Add(bytes)
}

// Loaded implements [Observer].
func (x *traffic) Loaded(s *state.State) {
	x.remove(func(id format.TopicID) bool { return s.TopicByID(id) == nil })
}

// Applying implements [Observer].
func (*traffic) Applying([]format.Entry, state.Moment) {}

// Applied implements [Observer].
func (x *traffic) Applied(_ *state.State, entries []format.Entry, _ state.Moment) {
	for _, entry := range entries {
		if deleted, ok := entry.(*format.TopicDeleted); ok {
			x.remove(func(id format.TopicID) bool { return id == deleted.ID })
		}
	}
}

// families returns the metrics of topics. The series with an empty topic has the sums for the topics without
// counters of their own; it is absent as long as nothing was counted there.
func (x *traffic) families() []metric.Family {
	family := func(name, help string) metric.Family {
		return metric.Family{Name: name, Help: help, Kind: metric.Counter, Labels: []string{"topic"}}
	}
	families := []metric.Family{
		family("seb_topic_appended_records_total", "Records of the topic in commits that this broker wrote to the log."),
		family("seb_topic_appended_bytes_total", "Bytes of keys, values and headers of the topic's records in commits that this broker wrote to the log."),
		family("seb_topic_read_records_total", "Records of the topic that this broker read for its clients: for reads, streams, consumers and queues."),
		family("seb_topic_read_bytes_total", "Bytes of keys, values and headers of the topic's records that this broker read for its clients."),
	}
	add := func(topic string, t *topicTraffic) {
		for i, n := range []*atomic.Int64{&t.appendedRecords, &t.appendedBytes, &t.readRecords, &t.readBytes} {
			families[i].Add(float64(n.Load()), topic)
		}
	}
	own := *x.byID.Load()
	x.state.View(func(s *state.State) {
		for _, id := range slices.Sorted(maps.Keys(own)) {
			if t := s.TopicByID(id); t != nil {
				add(t.Name, own[id])
			}
		}
	})
	if o := &x.others; o.appendedRecords.Load()+o.readRecords.Load() > 0 {
		add("", o)
	}
	return families
}
