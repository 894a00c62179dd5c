package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	deadPageMax = 1000   // records of one answer
	redriveMax  = 10_000 // records of one request
	placesMax   = 1000   // records that one request names
)

type queueDeadCmd struct {
	queueFlags
	Limit int `default:"100" placeholder:"N" help:"Show at most N (default ${default})."`
}

// Help shows examples.
func (queueDeadCmd) Help() string {
	return `Examples:

    seb queue dead orders mail
    seb queue dead orders mail --output json | jq -r '.messages[] | [.key, .reason] | @tsv'

By partition and offset. ATTEMPTS is how often the record was handed out, REASON what the last worker said. As json the records
come as a whole. seb queue redrive takes them back to work.`
}

// deadRecord is what of a parked record is shown in a line.
type deadRecord struct {
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Attempts  int       `json:"attempts"`
	Parked    time.Time `json:"parked"`
	Reason    string    `json:"reason"`
}

// Run prints a line per record.
func (c *queueDeadCmd) Run(ctx context.Context, std streams) error {
	if c.Limit < 1 {
		return usage(errors.New("--limit must be at least 1"))
	}
	broker, err := c.client()
	if err != nil {
		return err
	}
	dead, more, err := c.read(ctx, broker)
	if err != nil {
		return c.failed("show the dead of", err)
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"messages": dead, "more": more})
	}
	records := make([]deadRecord, len(dead))
	for i, whole := range dead {
		if err := json.Unmarshal(whole, &records[i]); err != nil {
			return c.failed("show the dead of", err)
		}
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("PARTITION\tOFFSET\tATTEMPTS\tPARKED\tREASON\n")
		for _, d := range records {
			row.printf("%d\t%d\t%d\t%s\t%s\n", d.Partition, d.Offset, d.Attempts, d.Parked.UTC().Format(time.RFC3339), oneLine(d.Reason))
		}
	})
	if more {
		note(std.err, "there are more: see --limit\n")
	}
	return out.err
}

// read returns as many as are wanted, and whether there are more.
func (c *queueDeadCmd) read(ctx context.Context, broker *client) (dead []json.RawMessage, more bool, _ error) {
	dead = []json.RawMessage{}
	query := url.Values{}
	for {
		query.Set("limit", strconv.Itoa(min(c.Limit-len(dead), deadPageMax)))
		var page struct {
			Messages []json.RawMessage `json:"messages"`
			Next     *string           `json:"next"`
		}
		if _, err := broker.call(ctx, http.MethodGet, broker.url(query, c.path("dead")...), nil, &page); err != nil {
			return nil, false, err
		}
		dead = append(dead, page.Messages...)
		if page.Next == nil || len(dead) >= c.Limit {
			return dead, page.Next != nil, nil
		}
		query.Set("next", *page.Next)
	}
}

// oneLine is text of strangers as it can stand in a line of a terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ReplaceAll(strings.TrimSpace(s), "\n", "; "))
}

// queueRedriveCmd has no defaults from the environment: they would redrive what nobody
// meant.
type queueRedriveCmd struct {
	queueFlags
	Partition *int32  `env:"-" placeholder:"N" help:"Partition of the records that --offset names (default: 0)."`
	Offset    []int64 `env:"-" placeholder:"N" help:"Take this record alone; may be repeated, or a list with commas (default: all that are parked)."`
}

// Help shows examples.
func (queueRedriveCmd) Help() string {
	return `Examples:

    seb queue redrive orders mail
    seb queue redrive orders mail --partition 3 --offset 41,57

They are handed out as if they had never been, with all the attempts that the queue allows. A record that is not
parked is passed over. What was copied to a dead-letter topic stays there.`
}

// Run redrives the records, and tells how many were parked.
func (c *queueRedriveCmd) Run(ctx context.Context, std streams) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	var redriven, remaining int64
	for {
		whole, _, err := c.ask(ctx, "redrive", http.MethodPost, body, "dead", "redrive")
		if err != nil {
			return err
		}
		var answer struct {
			Redriven  int64 `json:"redriven"`
			Remaining int64 `json:"remaining"`
		}
		if err := json.Unmarshal(whole, &answer); err != nil {
			return c.failed("redrive", err)
		}
		remaining = answer.Remaining
		if redriven += answer.Redriven; answer.Redriven < redriveMax {
			break
		}
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"redriven": redriven, "remaining": remaining})
	}
	_, err = fmt.Fprintf(std.out, "queue %s of %s redriven; records: %d; still parked: %d\n", c.Queue, c.Topic, redriven, remaining)
	return err
}

// body names the records that are meant.
func (c *queueRedriveCmd) body() (map[string]any, error) {
	switch {
	case c.Partition != nil && len(c.Offset) == 0:
		return nil, usageError{hinted(errors.New("--partition goes with --offset"), "leave it out to redrive all that are parked")}
	case len(c.Offset) > placesMax:
		return nil, usage(fmt.Errorf("%d offsets; there may be %d at a time", len(c.Offset), placesMax))
	case len(c.Offset) == 0:
		return map[string]any{}, nil
	}
	var partition int32
	if c.Partition != nil {
		partition = *c.Partition
	}
	places := make([]map[string]int64, len(c.Offset))
	for i, offset := range c.Offset {
		if offset < 0 || partition < 0 {
			return nil, usage(errors.New("--partition and --offset must be at least 0"))
		}
		places[i] = map[string]int64{"partition": int64(partition), "offset": offset}
	}
	return map[string]any{"records": places}, nil
}
