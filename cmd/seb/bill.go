package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

type billCmd struct {
	serverFlag
	outputFlag
}

// Help shows examples.
func (billCmd) Help() string {
	return `Examples:

    seb bill
    seb bill --server http://broker.example:51313
    seb bill --output json | jq .calendar_month.so_far.total

Shows what the requests of all brokers to the store have cost in this calendar month (UTC), what they were for, and what the
whole month costs if it goes on like this; then what this broker has used since its start, and what the log keeps in the store.
Brokers tell each other in the log, at most once a minute, what they have sent: what another broker has sent since it last did so is
missing. The prices are those of the store's provider if the broker knows it, else what seb serve --prices says. All of it is an
estimate: the provider's bill is what counts.`
}

// requestsInfo are numbers of requests, in the classes that stores bill.
type requestsInfo struct {
	ClassA int64 `json:"class_a"`
	ClassB int64 `json:"class_b"`
	Free   int64
}

// causeInfo are the requests of one cause.
type causeInfo struct {
	Cause string
	requestsInfo
	Dollars *float64
}

// billInfo is the answer of GET /v1/bill.
type billInfo struct {
	Since    time.Time
	Serving  string
	Requests requestsInfo
	Causes   []causeInfo
	Bytes    struct{ Sent, Received int64 }
	Stored   struct {
		Objects, Bytes int64
		Live           int64 `json:"live_bytes"`
		Dead           int64 `json:"dead_bytes"`
		DeadInSegments int64 `json:"dead_in_segments_bytes"`
	}
	Prices *struct {
		Of       string
		AsOf     string `json:"as_of"`
		Source   string
		ClassA   float64 `json:"class_a_per_million"`
		ClassB   float64 `json:"class_b_per_million"`
		Storage  float64 `json:"storage_per_gb_month"`
		Sent     float64 `json:"sent_per_gb"`
		Received float64 `json:"received_per_gb"`
		Note     string
	}
	SoFar *costInfo `json:"so_far"`
	Month *costInfo
	All   struct {
		Since     time.Time
		Requests  requestsInfo
		Causes    []causeInfo
		SoFar     *costInfo `json:"so_far"`
		Projected *costInfo
	} `json:"calendar_month"`
	Cache struct {
		Hits    int64
		Dollars *float64 `json:"dollars_at_most"`
	}
	Hint string
}

type costInfo struct{ Requests, Storage, Total float64 }

// Run asks the broker for its bill, and prints it.
func (c *billCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	answer, err := broker.Bill(ctx)
	if err != nil {
		return fmt.Errorf("ask for the bill: %w", err)
	}
	var b billInfo
	if err := json.Unmarshal(answer, &b); err != nil {
		return fmt.Errorf("%s: the response is not what a broker sends: %w", c.Server, err)
	}
	if c.json() {
		return printJSON(std.out, json.RawMessage(answer))
	}
	return b.print(newPrinter(std.out))
}

func (b *billInfo) print(p *printer) error {
	p.table(func(t *printer) {
		t.printf("all brokers\tsince %s, an estimate\n", b.All.Since.UTC().Format(time.RFC3339))
		printRequests(t, b.All.Requests, b.All.Causes)
		b.All.SoFar.print(t, "so far")
		b.All.Projected.print(t, "whole month")
		t.printf("stored\t%v in %d objects: %v live, %v dead, %v dead in segments with live records\n",
			size(b.Stored.Bytes), b.Stored.Objects, size(b.Stored.Live), size(b.Stored.Dead), size(b.Stored.DeadInSegments))
		t.printf("this broker\tsince %s, %s ago\n", b.Since.UTC().Format(time.RFC3339), b.Serving)
		printRequests(t, b.Requests, b.Causes)
		t.printf("bytes\t%v sent, %v received\n", size(b.Bytes.Sent), size(b.Bytes.Received))
		t.printf("cache\t%d hits, so at most %d GETs less", b.Cache.Hits, b.Cache.Hits)
		if b.Cache.Dollars != nil {
			t.printf(" (%s)", dollars(*b.Cache.Dollars))
		}
		t.printf("\n")
		b.SoFar.print(t, "so far")
		b.Month.print(t, "30 days")
		if b.Prices != nil {
			t.printf("prices\t%s", b.Prices.Of)
			if b.Prices.AsOf != "" {
				t.printf(", as of %s", b.Prices.AsOf)
			}
			t.printf(": $%v per million class A requests, $%v per million class B requests, $%v per GB and month", b.Prices.ClassA, b.Prices.ClassB, b.Prices.Storage)
			if b.Prices.Sent+b.Prices.Received > 0 {
				t.printf(", $%v per GB sent, $%v per GB received", b.Prices.Sent, b.Prices.Received)
			}
			t.printf("\n")
		}
		if b.Prices != nil && b.Prices.Source != "" {
			t.printf("source\t%s\n", b.Prices.Source)
		}
	})
	if b.Prices != nil && b.Prices.Note != "" {
		p.printf("\n%s\n", b.Prices.Note)
	}
	if b.Hint != "" {
		p.printf("\n%s\n", b.Hint)
	}
	return p.err
}

// printRequests shows requests, and what they were for.
func printRequests(t *printer, all requestsInfo, causes []causeInfo) {
	t.printf("requests\t%d of class A (PUT, LIST), %d of class B (GET), %d free (DELETE)\n", all.ClassA, all.ClassB, all.Free)
	for _, c := range causes {
		t.printf("  %s\t%d A, %d B, %d free", c.Cause, c.ClassA, c.ClassB, c.Free)
		if c.Dollars != nil {
			t.printf(", %s", dollars(*c.Dollars))
		}
		t.printf("\n")
	}
}

func (c *costInfo) print(t *printer, when string) {
	if c != nil {
		t.printf("%s\t%s (requests %s, storage %s)\n", when, dollars(c.Total), dollars(c.Requests), dollars(c.Storage))
	}
}

// dollars writes d to the cent, and amounts below a cent to a millionth of a dollar.
func dollars(d float64) string {
	switch {
	case d == 0 || d >= 0.01:
		return fmt.Sprintf("$%.2f", d)
	case d >= 1e-6:
		return fmt.Sprintf("$%.6f", d)
	default:
		return "less than $0.000001"
	}
}
