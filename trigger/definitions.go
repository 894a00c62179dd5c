package trigger

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/simple-event-broker/seb"
)

// The topics of triggers. Only admins may use them.
const (
	definitionsTopic = "_seb.triggers"
	stateTopic       = "_seb.triggers.state"
)

// Replace says what happens to the open runs of a trigger that a new version replaces.
type Replace string

// What happens to open runs.
const (
	Drain Replace = "drain" // they go on under the version that they began under
	Drop  Replace = "drop"  // they end
)

// Version is a version of a trigger.
type Version struct {
	Name       string      `json:"name"`
	Number     int64       `json:"version"`              // from 1 on
	Definition *Definition `json:"definition,omitempty"` // nil if the trigger was deleted with this version
	Replace    Replace     `json:"replace,omitempty"`
	CatchUp    bool        `json:"catch_up,omitempty"` // with a start in the past: what was due before the version also fires
	Log        string      `json:"log"`                // the tag of the topic of definitions: that of a restored or cloned log differs
	At         time.Time   `json:"at,omitzero"`        // the log time; set when the version is read
	// Restored says that the log is a restored or cloned copy of the one for which the version was stored. The trigger is paused until
	// a further version is stored.
	Restored bool `json:"restored,omitempty"`

	offset seb.Offset  // of the record
	id     seb.TopicID // of the topic of definitions
}

// position returns the place of the version in the log.
func (s *Version) position() position {
	return position{time: s.At.UnixMicro(), topic: s.id, offset: s.offset}
}

// definitions has the versions of all triggers, as far as they were read.
type definitions struct {
	b    *seb.Broker
	id   seb.TopicID
	tag  string
	next seb.Offset
	all  []*Version // in the order of the log
}

// createTopics creates the topics of triggers, unless they exist.
func createTopics(ctx context.Context, b *seb.Broker) error {
	for _, name := range []string{definitionsTopic, stateTopic} {
		if _, _, err := b.CreateTopic(ctx, name, seb.TopicOptions{}); err != nil {
			return fmt.Errorf("create the topic %s: %w", name, err)
		}
	}
	return nil
}

func openDefinitions(ctx context.Context, b *seb.Broker) (*definitions, error) {
	id, err := b.TopicID(ctx, definitionsTopic)
	if err != nil {
		return nil, err
	}
	return &definitions{b: b, id: id, tag: b.TopicTag(id)}, nil
}

// read reads the versions up to an offset.
func (d *definitions) read(ctx context.Context, end seb.Offset) error {
	for d.next < end {
		got, err := d.b.Fetch(ctx, definitionsTopic, 0, seb.At(d.next), seb.FetchOptions{TopicTag: d.tag})
		if err != nil {
			return fmt.Errorf("read the definitions of triggers: %w", err)
		}
		for i := range got.Records {
			s, err := decodeVersion(&got.Records[i], d.id)
			if err != nil {
				return err
			}
			s.Restored = s.Log != d.tag
			d.all = append(d.all, s)
		}
		d.next = got.Next
	}
	return nil
}

func decodeVersion(r *seb.Record, id seb.TopicID) (*Version, error) {
	s := &Version{}
	if err := json.Unmarshal(r.Value, s); err != nil {
		return nil, fmt.Errorf("the definition at offset %d of topic %s can't be read: %w", r.Offset, definitionsTopic, err)
	}
	s.At, s.offset, s.id = r.LogTime, r.Offset, id
	return s, nil
}

// latest returns the last version of a trigger; nil if there is none, or if the trigger was deleted.
func (d *definitions) latest(name string) *Version {
	for _, s := range slices.Backward(d.all) {
		if s.Name == name {
			if s.Definition == nil {
				return nil
			}
			return s
		}
	}
	return nil
}

// current returns the last versions of all triggers that were not deleted, by name.
func (d *definitions) current() map[string]*Version {
	last := map[string]*Version{}
	for _, s := range d.all {
		if s.Definition == nil {
			delete(last, s.Name)
		} else {
			last[s.Name] = s
		}
	}
	return last
}

// cycle returns an error if firings could become events of their own trigger.
func cycle(all map[string]*Version) error {
	leads := map[string][]string{}
	for _, s := range all {
		for _, from := range s.Definition.From {
			leads[from] = append(leads[from], s.Definition.To)
		}
	}
	for start := range leads {
		reached, next := map[string]bool{}, []string{start}
		for len(next) > 0 {
			topic := next[0]
			next = next[1:]
			for _, to := range leads[topic] {
				if to == start {
					return fmt.Errorf("to: the firings in topic %s would lead back to that topic, through the triggers that watch it", start)
				}
				if !reached[to] {
					reached[to], next = true, append(next, to)
				}
			}
		}
	}
	return nil
}

// Put stores a version of a trigger.
func (d *definitions) put(ctx context.Context, s Version) (*Version, error) {
	for {
		end, err := d.readAll(ctx)
		if err != nil {
			return nil, err
		}
		all := d.current()
		if s.Definition != nil {
			all[s.Name] = &s
			if err := cycle(all); err != nil {
				return nil, invalid(err)
			}
		}
		s.Number, s.Log = 1, d.tag
		for _, before := range slices.Backward(d.all) {
			if before.Name == s.Name {
				s.Number = before.Number + 1
				break
			}
		}
		value, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		_, err = d.b.Append(ctx, definitionsTopic, []seb.Record{{Key: []byte(s.Name), Value: value}}, seb.IfOffset(end))
		if seb.CodeOf(err) == seb.CodeOffsetConflict {
			continue // somebody else has stored a version meanwhile
		}
		if err != nil {
			return nil, err
		}
		if _, err := d.readAll(ctx); err != nil {
			return nil, &seb.Error{Code: cmp.Or(seb.CodeOf(err), "internal"), Outcome: seb.Unknown, Detail: "the version is stored, but could not be read", Err: err}
		}
		return d.all[len(d.all)-1], nil
	}
}

// readAll reads all versions that the broker knows, and returns the end of the topic.
func (d *definitions) readAll(ctx context.Context) (seb.Offset, error) {
	cut, err := d.b.Cut(ctx, []string{definitionsTopic}, seb.CutOptions{})
	if err != nil {
		return 0, err
	}
	end := cut.Topics[0].Ends[0]
	return end, d.read(ctx, end)
}
