package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/httpapi"
)

// configFlags set which records a topic keeps.
type configFlags struct {
	Retention           *age       `placeholder:"DURATION|none" help:"Age up to which records are kept, such as 7d; older ones are deleted. none keeps them for ever (default: no limit for a new topic, unchanged for an existing one)."`
	RetentionBytes      *sizeLimit `placeholder:"SIZE|none" help:"How many bytes of each partition to keep, such as 1GiB; the oldest records beyond that are deleted. none sets no limit (default: as for --retention)."`
	RetentionPastQueues *bool      `negatable:"" help:"Delete records also if a queue has not done them (default: they stay until all queues of the topic have)."`
}

// update returns the settings of the flags that were given.
func (f configFlags) update() seb.TopicUpdate {
	return seb.TopicUpdate{Retention: (*time.Duration)(f.Retention), RetentionBytes: (*int64)(f.RetentionBytes), RetentionPastQueues: f.RetentionPastQueues}
}

// topicConfig returns the config of a new topic.
func (f configFlags) topicConfig() (c seb.TopicConfig) {
	if f.Retention != nil {
		c.Retention = time.Duration(*f.Retention)
	}
	if f.RetentionBytes != nil {
		c.RetentionBytes = int64(*f.RetentionBytes)
	}
	if f.RetentionPastQueues != nil {
		c.RetentionPastQueues = *f.RetentionPastQueues
	}
	return c
}

const unlimited = "none"

// age is a value of --retention: 0 stands for none.
type age time.Duration

// UnmarshalText reads a duration greater than 0, or "none".
func (a *age) UnmarshalText(text []byte) error {
	if string(text) == unlimited {
		*a = 0
		return nil
	}
	d, err := httpapi.ParseDuration(string(text))
	if err != nil || d <= 0 {
		return fmt.Errorf("invalid age %q: write an age above 0, such as 90m or 7d (units: s, m, h, d, w), or \"none\" for no limit", text)
	}
	*a = age(d)
	return nil
}

// sizeLimit is a value of --retention-bytes: 0 stands for none.
type sizeLimit size

// UnmarshalText reads a size greater than 0, or "none".
func (l *sizeLimit) UnmarshalText(text []byte) error {
	if string(text) == unlimited {
		*l = 0
		return nil
	}
	if err := (*size)(l).UnmarshalText(text); err != nil {
		return err
	}
	if *l == 0 {
		return errors.New("0 keeps nothing: write \"none\" for no limit")
	}
	return nil
}

// retentionText describes a topic's retention.
func retentionText(c seb.TopicConfig) string {
	var limits []string
	if c.Retention > 0 {
		limits = append(limits, c.Retention.String())
	}
	if c.RetentionBytes > 0 {
		limits = append(limits, size(c.RetentionBytes).String()+" of each partition")
	}
	text := "retention: " + strings.Join(limits, ", ")
	if len(limits) == 0 {
		text += "none"
	}
	if c.RetentionPastQueues {
		text += ", also of records that a queue has not done"
	}
	return text
}

// retentionProgress says how far retention has come.
func retentionProgress(r *seb.TopicRetention) string {
	if r == nil {
		return ""
	}
	var parts []string
	if !r.Oldest.IsZero() {
		parts = append(parts, "the oldest record was committed at "+r.Oldest.Format(time.RFC3339)+" or later")
	}
	switch {
	case r.Waits != "":
		parts = append(parts, "nothing is deleted for now: "+r.Waits)
	case r.Queue != "":
		parts = append(parts, fmt.Sprintf("the queue %s holds records that would be deleted: it has not done them, or has them as dead letters", r.Queue))
	case !r.Next.IsZero():
		parts = append(parts, "the next ones are deleted at "+r.Next.Format(time.RFC3339))
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, "; ") + "\n"
}
