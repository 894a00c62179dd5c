package change_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// Limits from below level 6 apply once somebody sets both: setting one alone must not apply the other.
func TestLimitsOfEarlierVersions(t *testing.T) {
	s := state.New()
	both := format.TopicConfig{RetentionMS: 60_000, RetentionBytes: 5}
	for i, entries := range [][]format.Entry{
		{
			&format.TopicCreated{ID: 1, Partitions: 1, Name: "both"}, &format.TopicConfigured{Topic: 1, Config: both},
			&format.TopicCreated{ID: 2, Partitions: 1, Name: "age"}, &format.TopicConfigured{Topic: 2, Config: format.TopicConfig{RetentionMS: 60_000}},
		},
		{&format.LevelRaised{Level: format.LevelSegments, DeleteDelay: time.Hour}},
	} {
		if err := s.Apply(&format.Commit{Seq: format.Seq(i + 1), Time: int64(i + 1), Entries: entries}); err != nil {
			t.Fatal(err)
		}
	}
	const one = `setting one limit would apply the other one too`
	age, none, size := int64(60_000), int64(0), int64(5)
	for _, c := range []struct {
		name   string
		change interface {
			Apply(d *state.Draft) ([]format.Entry, error)
		}
		want, refusal string
	}{
		{"one of two", change.UpdateTopic{Name: "both", RetentionMS: &age}, "", one},
		{"no age", change.UpdateTopic{Name: "both", RetentionMS: &none}, "", one},
		{"no size", change.UpdateTopic{Name: "both", RetentionBytes: &none}, "", one},
		{"both", change.UpdateTopic{Name: "both", RetentionMS: &age, RetentionBytes: &size}, "{1 {60000 5 false}}", ""},
		{"neither", change.UpdateTopic{Name: "both", RetentionMS: &none, RetentionBytes: &none}, "{1 {0 0 false}}", ""},
		{"the only one", change.UpdateTopic{Name: "age", RetentionMS: &age}, "{2 {60000 0 false}}", ""},
		{"another one", change.UpdateTopic{Name: "age", RetentionBytes: &size}, "", one},
		{"partitions", change.UpdateTopic{Name: "both", Partitions: 1}, "", ""},
		{"created again with all", change.CreateTopic{Name: "both", Partitions: 1, Config: both}, "{1 {60000 5 false}}", ""},
		{"created again with one", change.CreateTopic{Name: "both", Partitions: 1, Config: format.TopicConfig{RetentionMS: 60_000}}, "", ""},
		{"created again", change.CreateTopic{Name: "age", Partitions: 1}, "", ""},
		{"queues passed", change.UpdateTopic{Name: "age", RetentionMS: &age, PastQueues: new(true)}, "{2 {60000 0 false}} {2 true}", ""},
	} {
		got, err := c.change.Apply(s.Draft(9))
		text := ""
		for _, e := range got {
			switch x := e.(type) {
			case *format.TopicConfigured:
				text += fmt.Sprint(*x)
			case *format.QueuesPassed:
				text += " " + fmt.Sprint(*x)
			}
		}
		if text != c.want || (err != nil) != (c.refusal != "") || err != nil && !strings.Contains(err.Error(), c.refusal) {
			t.Errorf("%s: %q, %v", c.name, text, err)
		}
	}
}
