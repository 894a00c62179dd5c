package trigger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb"
)

// kindHeader is the header of a record in the topic of the state that says what the record is.
const kindHeader = "kind"

// The kinds of records in the topic of the state.
const (
	kindJournal  = "journal"
	kindPage     = "page"
	kindManifest = "manifest"
)

// journal is an entry of the journal. It is in one commit with the firings that it tells of.
type journal struct {
	Runner string         `json:"runner"` // the id of the session that has written it
	Fired  []journalFired `json:"fired,omitempty"`
	Failed []failedFiring `json:"failed,omitempty"`
	Next   int64          `json:"next,omitempty"` // the next deadline that the runner knows, in microseconds since 1970
}

// journalFired says up to which firing a version has fired. The firings of a version are ordered by their moment, and at one deadline by
// the entity.
type journalFired struct {
	Trigger string   `json:"trigger"`
	Version int64    `json:"version"`
	Last    lastFire `json:"last"`
	Count   int      `json:"count"` // firings of this commit
}

// lastFire is the place of a firing among those of its version.
type lastFire struct {
	Time      int64       `json:"time"`               // microseconds since 1970
	Deadline  bool        `json:"deadline,omitempty"` // at the deadline of that time; else at a record
	Topic     seb.TopicID `json:"topic,omitempty"`
	Partition int32       `json:"partition,omitempty"`
	Offset    seb.Offset  `json:"offset,omitempty"`
	Entity    string      `json:"entity"`
}

func placeOf(f *firing) lastFire {
	l := lastFire{Time: f.at.time, Entity: f.entity}
	if f.at.topic == deadlineTopic {
		l.Deadline = true
		return l
	}
	l.Topic, l.Partition, l.Offset = f.at.topic, f.at.partition, f.at.offset
	return l
}

func (l lastFire) position() position {
	if l.Deadline {
		return deadlineAt(l.Time)
	}
	return position{time: l.Time, topic: l.Topic, partition: l.Partition, offset: l.Offset}
}

// covers reports whether a firing is not behind l.
func (l lastFire) covers(f *firing) bool {
	if c := f.at.compare(l.position()); c != 0 {
		return c < 0
	}
	return f.entity <= l.Entity
}

// failedFiring is a firing that can't be appended.
type failedFiring struct {
	Trigger string   `json:"trigger"`
	Version int64    `json:"version"`
	Last    lastFire `json:"last"`
	ID      string   `json:"id"`
	Reason  string   `json:"reason"`
}

// Firing is a record that a trigger has appended.
type Firing struct {
	ID      string         `json:"id"` // the same whenever the same firing is computed
	Trigger string         `json:"trigger"`
	Version int64          `json:"version"`
	Entity  string         `json:"entity"`
	Due     time.Time      `json:"due"`            // when the expression became true
	Fired   time.Time      `json:"fired,omitzero"` // the log time of the record; set when the record is read
	Events  []FiringEvent  `json:"events"`         // those that made the expression true, in its order
	Emit    map[string]any `json:"emit,omitempty"`
}

// FiringEvent is an event that made a part of an expression true.
type FiringEvent struct {
	Event     string     `json:"event"`
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	Offset    seb.Offset `json:"offset"`
	LogTime   time.Time  `json:"log_time"`
}

// id returns the id of the firing, which is the same whenever the same firing is computed.
func (f *firing) id() string {
	h := sha256.New()
	b := appendText(nil, f.trigger.name)
	b = binary.AppendVarint(b, f.trigger.number)
	b = appendText(f.at.append(b), f.entity)
	h.Write(b)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// public returns the firing as readers see it. topicName returns the name of a topic.
func (f *firing) public(topicName func(seb.TopicID) string) Firing {
	p := Firing{
		ID: f.id(), Trigger: f.trigger.name, Version: f.trigger.number, Entity: f.entity, Due: timeOf(f.at.time), Emit: f.emit, Events: []FiringEvent{},
	}
	for _, s := range f.events {
		p.Events = append(p.Events, FiringEvent{s.name, topicName(s.at.topic), s.at.partition, s.at.offset, timeOf(s.at.time)})
	}
	return p
}

// record returns the record of the firing.
func (f *firing) record(topicName func(seb.TopicID) string) (seb.Record, error) {
	p := f.public(topicName)
	value, err := json.Marshal(p)
	if err != nil {
		return seb.Record{}, fmt.Errorf("emit: %w", err)
	}
	header := func(name, value string) seb.Header { return seb.Header{Name: name, Value: []byte(value)} }
	return seb.Record{Key: []byte(f.entity), Value: value, Headers: []seb.Header{
		header(ceVersion, "1.0"), header("ce_id", p.ID), header("ce_source", "/triggers/"+p.Trigger), header(ceType, p.Trigger),
		header(ceSubject, p.Entity), header("ce_time", p.Due.Format(time.RFC3339Nano)), header("content-type", "application/json"),
	}}, nil
}

// decodeFiring returns the firing of a record. It is false if the record is not that of a firing.
func decodeFiring(r *seb.Record) (f Firing, ok bool) {
	if json.Unmarshal(r.Value, &f) != nil || f.ID == "" || f.Trigger == "" {
		return f, false
	}
	f.Fired = r.LogTime
	return f, true
}

func decodeJournal(b []byte) (j journal, err error) {
	if err := json.Unmarshal(b, &j); err != nil {
		return j, fmt.Errorf("%w: an entry of the journal: %w", errState, err)
	}
	return j, nil
}
