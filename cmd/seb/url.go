package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb"
)

// urlTTLMax is the longest time for which a URL is signed. There is a limit because a URL can't be revoked
// alone, but only together with its key.
const urlTTLMax = 366 * 24 * time.Hour

type urlCmd struct {
	serverFlag
	outputFlag
	Topic     string        `required:"" placeholder:"TOPIC" help:"Topic that may be read."`
	From      string        `default:"latest" placeholder:"POSITION" help:"Where to begin: earliest, latest, an offset N, -N for the last N records, a time like 2026-01-31T12:00:00Z, a day like 2026-01-31 (its beginning, UTC), or 1h for an hour before the URL is made (default ${default})."`
	Partition *int32        `placeholder:"N" help:"Partition to read (default: 0, or all for an event stream)."`
	TTL       time.Duration `name:"ttl" default:"1h" placeholder:"DURATION" help:"How long the URL is valid (default ${default})."`
}

// Help shows examples.
func (urlCmd) Help() string {
	return `Signs with the given API key, and sends nothing. Everyone who has the URL can read all records of the topic, from any
position, until the URL or the key expires or the key is revoked. The URL allows nothing else. Use a key that
can only read that topic: revoking it ends all URLs made with it.

Examples:

    seb url --topic orders --from latest --ttl 1h
    seb url --topic orders --from 2h
    curl "$(seb url --topic orders --from -10 --ttl 1m)"

In a page: new EventSource(URL).`
}

// Run prints the URL.
func (c *urlCmd) Run(std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	key, err := c.apiKey()
	if err != nil {
		return err
	}
	from, err := parsePosition(c.From, time.Now())
	if err != nil {
		return err
	}
	switch {
	case c.TTL <= 0 || c.TTL > urlTTLMax:
		return usage(fmt.Errorf("invalid --ttl %v: it must be greater than 0 and at most %v", c.TTL, urlTTLMax))
	case c.Partition != nil && *c.Partition < 0:
		return usage(fmt.Errorf("invalid --partition %d: it must be at least 0", *c.Partition))
	case key == "":
		return usageError{hinted(errors.New("signing a URL needs an API key"), "set SEB_API_KEY, or use --api-key-file")}
	}
	until := time.Now().Add(c.TTL + time.Second - time.Nanosecond).Truncate(time.Second) // rounded up, since a URL has whole seconds
	partition := seb.AllPartitions
	if c.Partition != nil {
		partition = *c.Partition
	}
	signed, err := broker.SignedURL(c.Topic, partition, from, until)
	if err != nil {
		return fmt.Errorf("sign a URL for topic %s: %w", c.Topic, err)
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"url": signed, "expires": until.UTC()})
	}
	note(std.err, "valid until %s, unless the key is revoked before\n", until.UTC().Format(time.RFC3339))
	_, err = fmt.Fprintln(std.out, signed)
	return err
}
