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
    seb bill --output json | jq .month.total

Shows what the broker's requests to its store cost since its start, what the log keeps there, and what 30 days
cost at this rate. The broker counts its own requests: with more brokers on one bucket, add up
their requests, and count the storage once. The prices are those of the store's provider if the broker knows it, else
what seb serve --prices says. It is an estimate: the provider's bill is what counts.`
}

// billInfo is the answer of GET /v1/bill.
type billInfo struct {
	Since    time.Time
	Serving  string
	Requests struct {
		ClassA int64 `json:"class_a"`
		ClassB int64 `json:"class_b"`
		Free   int64
	}
	Causes []struct {
		Cause   string
		ClassA  int64 `json:"class_a"`
		ClassB  int64 `json:"class_b"`
		Free    int64
		Dollars *float64
	}
	Bytes  struct{ Sent, Received int64 }
	Stored struct{ Objects, Bytes int64 }
	Prices *struct {
		Of      string
		AsOf    string  `json:"as_of"`
		ClassA  float64 `json:"class_a_per_million"`
		ClassB  float64 `json:"class_b_per_million"`
		Storage float64 `json:"storage_per_gb_month"`
		Note    string
	}
	SoFar *costInfo `json:"so_far"`
	Month *costInfo
	Hint  string
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
		t.printf("since\t%s, %s ago\n", b.Since.UTC().Format(time.RFC3339), b.Serving)
		t.printf("requests\t%d of class A (PUT, LIST), %d of class B (GET), %d free (DELETE)\n", b.Requests.ClassA, b.Requests.ClassB, b.Requests.Free)
		for _, c := range b.Causes {
			t.printf("  %s\t%d A, %d B, %d free", c.Cause, c.ClassA, c.ClassB, c.Free)
			if c.Dollars != nil {
				t.printf(", %s", dollars(*c.Dollars))
			}
			t.printf("\n")
		}
		t.printf("bytes\t%v sent, %v received\n", size(b.Bytes.Sent), size(b.Bytes.Received))
		t.printf("stored\t%v in %d objects, of all brokers\n", size(b.Stored.Bytes), b.Stored.Objects)
		if b.Prices != nil {
			t.printf("prices\t%s", b.Prices.Of)
			if b.Prices.AsOf != "" {
				t.printf(", as of %s", b.Prices.AsOf)
			}
			t.printf(": $%v per million class A requests, $%v per million class B requests, $%v per GB and month\n", b.Prices.ClassA, b.Prices.ClassB, b.Prices.Storage)
		}
		b.SoFar.print(t, "so far")
		b.Month.print(t, "a month")
	})
	if b.Prices != nil && b.Prices.Note != "" {
		p.printf("\n%s\n", b.Prices.Note)
	}
	if b.Hint != "" {
		p.printf("\n%s\n", b.Hint)
	}
	return p.err
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
