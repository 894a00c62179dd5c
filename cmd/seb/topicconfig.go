package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/httpapi"
)

// configFlags set a topic's retention, which this version stores but does not apply.
type configFlags struct {
	Retention      *age       `placeholder:"DURATION|none" help:"Age after which a later version may delete records, such as 7d, or none; this version only stores the setting (default of a new topic: none)."`
	RetentionBytes *sizeLimit `placeholder:"SIZE|none" help:"How many bytes of each partition to keep at least, such as 1GiB; none means no such minimum (default: as with --retention)."`
}

// update returns the settings of the flags that were given.
func (f configFlags) update() seb.TopicUpdate {
	return seb.TopicUpdate{Retention: (*time.Duration)(f.Retention), RetentionBytes: (*int64)(f.RetentionBytes)}
}

// topicConfig returns the config of a new topic.
func (f configFlags) topicConfig() (c seb.TopicConfig) {
	if f.Retention != nil {
		c.Retention = time.Duration(*f.Retention)
	}
	if f.RetentionBytes != nil {
		c.RetentionBytes = int64(*f.RetentionBytes)
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
		return fmt.Errorf("invalid age %q: write an age above 0, such as 90m or 7d, or \"none\" for no limit", text)
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
	if len(limits) == 0 {
		return "retention: none"
	}
	return "retention: " + strings.Join(limits, ", ") + "; stored, but not applied by this version"
}
