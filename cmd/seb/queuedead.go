package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	deadPageMax = 1000   // the most records in one answer
	redriveMax  = 10_000 // the most records that one request redrives
	placesMax   = 1000   // the most records that one request names
)

type queueDeadCmd struct {
	queueFlags
	Limit int    `default:"100" placeholder:"N" help:"Show at most N (default ${default})."`
	Next  string `env:"-" placeholder:"PARTITION:OFFSET" help:"Go on where the previous call ended, as its last line says (default: the first)."`
}

// Help shows examples.
func (queueDeadCmd) Help() string {
	return `Examples:

    seb queue dead orders mail
    seb queue dead orders mail --limit 20 --next 0:41
    seb queue dead orders mail --output json | jq -r '.messages[] | [.key, .reason] | @tsv'

Dead letters (parked records) by partition and offset. ATTEMPTS counts the attempts since the last redrive. REASON is
what the last worker said, or that its lease ran out. If there are more, the last line says how to go on. With
--output json records are complete, and "next" is null or the value for --next. seb queue redrive hands dead letters
out again.`
}

// deadRecord is what a line shows of a dead letter (parked record).
type deadRecord struct {
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Attempts  int       `json:"attempts"`
	Parked    time.Time `json:"parked"`
	Reason    string    `json:"reason"`
}

// placePattern is the form of --next; the broker checks the value.
var placePattern = regexp.MustCompile(`^[0-9]{1,10}:[0-9]{1,19}$`)

// Run prints a line per record.
func (c *queueDeadCmd) Run(ctx context.Context, std streams) error {
	if c.Limit < 1 {
		return usage(fmt.Errorf("invalid --limit %d: it must be at least 1", c.Limit))
	}
	if c.Next != "" && !placePattern.MatchString(c.Next) {
		return usage(fmt.Errorf("invalid --next %q: use the PARTITION:OFFSET that the previous call ended with, such as 0:41", c.Next))
	}
	broker, err := c.client()
	if err != nil {
		return err
	}
	dead, next, err := c.read(ctx, broker)
	if err != nil {
		return c.failed("show the dead letters of", err)
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"messages": dead, "more": next != nil, "next": next})
	}
	records := make([]deadRecord, len(dead))
	for i, whole := range dead {
		if err := json.Unmarshal(whole, &records[i]); err != nil {
			return c.failed("show the dead letters of", err)
		}
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("PARTITION\tOFFSET\tATTEMPTS\tPARKED\tREASON\n")
		for _, d := range records {
			row.printf("%d\t%d\t%d\t%s\t%s\n", d.Partition, d.Offset, d.Attempts, d.Parked.UTC().Format(time.RFC3339), oneLine(d.Reason))
		}
	})
	if next != nil {
		note(std.err, "there are more: go on with --next %s\n", *next)
	}
	return out.err
}

// read returns at most --limit dead letters. next is the value for --next, nil if no dead letters follow.
func (c *queueDeadCmd) read(ctx context.Context, broker *client) (dead []json.RawMessage, next *string, _ error) {
	dead = []json.RawMessage{}
	query := url.Values{}
	if c.Next != "" {
		query.Set("next", c.Next)
	}
	for {
		query.Set("limit", strconv.Itoa(min(c.Limit-len(dead), deadPageMax)))
		var page struct {
			Messages []json.RawMessage `json:"messages"`
			Next     *string           `json:"next"`
		}
		if _, err := broker.call(ctx, http.MethodGet, broker.url(query, c.path("dead")...), nil, &page); err != nil {
			return nil, nil, err
		}
		dead = append(dead, page.Messages...)
		if page.Next == nil || len(dead) >= c.Limit {
			return dead, page.Next, nil
		}
		query.Set("next", *page.Next)
	}
}

// oneLine makes one line of untrusted text, and replaces characters that can't be printed.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ReplaceAll(strings.TrimSpace(s), "\n", "; "))
}

// queueRedriveCmd takes nothing from the environment: a forgotten variable could redrive records other than
// those that the user means.
type queueRedriveCmd struct {
	queueFlags
	Partition *int32  `env:"-" placeholder:"N" help:"Partition of the records that --offset names (default: 0)."`
	Offset    []int64 `env:"-" placeholder:"N" help:"Redrive this record only; may be repeated, or a list with commas (default: all parked records)."`
	Limit     *int64  `env:"-" placeholder:"N" help:"Redrive the first N only, by partition and offset (default: all parked records)."`
}

// Help shows examples.
func (queueRedriveCmd) Help() string {
	return `Examples:

    seb queue redrive orders mail
    seb queue redrive orders mail --limit 100
    seb queue redrive orders mail --partition 3 --offset 41,57

The records are handed out again, with all the attempts that the queue allows. A record that is not parked is skipped.
Copies in a dead-letter topic stay there.`
}

// Run redrives the records, and tells how many dead letters it redrove and how many are left.
func (c *queueRedriveCmd) Run(ctx context.Context, std streams) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	var redriven, remaining int64
	for {
		most := int64(redriveMax) // how many records this request redrives at most
		if c.Limit != nil {
			most = min(most, *c.Limit-redriven)
			body["limit"] = most
		}
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
		redriven += answer.Redriven
		if answer.Redriven < most || c.Limit != nil && redriven >= *c.Limit {
			break
		}
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"redriven": redriven, "remaining": remaining})
	}
	_, err = fmt.Fprintf(std.out, "queue %s of %s redriven; records: %d; still parked: %d\n", c.Queue, c.Topic, redriven, remaining)
	return err
}

// body returns the body of the request. It names the records of --offset, or no records, which means all dead
// letters.
func (c *queueRedriveCmd) body() (map[string]any, error) {
	switch {
	case c.Partition != nil && len(c.Offset) == 0:
		return nil, usageError{hinted(errors.New("--partition needs --offset"), "name the records with --offset, or leave --partition out to redrive all parked records")}
	case c.Limit != nil && len(c.Offset) > 0:
		return nil, usage(errors.New("--limit can't be combined with --offset"))
	case c.Limit != nil && *c.Limit < 1:
		return nil, usage(fmt.Errorf("invalid --limit %d: it must be at least 1", *c.Limit))
	case len(c.Offset) > placesMax:
		return nil, usage(fmt.Errorf("%d offsets were given; at most %d are allowed in a call", len(c.Offset), placesMax))
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
			return nil, usage(fmt.Errorf("--partition and --offset must be at least 0, but are %d and %d", partition, offset))
		}
		places[i] = map[string]int64{"partition": int64(partition), "offset": offset}
	}
	return map[string]any{"records": places}, nil
}
