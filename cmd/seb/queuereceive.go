package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/httpapi"
)

// valueShownMax is how many characters of a key or value the table of received records shows.
const valueShownMax = 60

// queueReceiveCmd reads its own flags from no variable: a forgotten variable could lease records that the user
// does not mean.
type queueReceiveCmd struct {
	queueFlags
	Max   int           `env:"-" default:"1" placeholder:"N" help:"Receive at most N records, 1 to 1000 (default ${default})."`
	Wait  time.Duration `env:"-" placeholder:"DURATION" help:"How long to wait for the first record (default: not at all)."`
	Lease time.Duration `env:"-" placeholder:"DURATION" help:"How long the records are yours, 1s to 12h (default: the queue's)."`
}

// Help shows examples.
func (queueReceiveCmd) Help() string {
	return `Examples:

    seb queue receive orders mail
    seb queue receive orders mail --max 10 --wait 20s --lease 10m
    seb queue receive orders mail --output json | jq -r '.messages[] | .token'

Receives records by hand, as a worker does: each counts an attempt, and nobody else gets the records while their leases
last. Answer each with seb queue ack or seb queue nack; without an answer, it is handed out again when its lease has
ended. The text shows the beginnings of keys and values; --output json has the records complete.`
}

// Run prints a line per record.
func (c *queueReceiveCmd) Run(ctx context.Context, std streams) error {
	switch {
	case c.Max < 1 || c.Max > workersMax:
		return usage(fmt.Errorf("invalid --max %d: it must be 1 to %d", c.Max, workersMax))
	case c.Wait < 0 || c.Lease < 0:
		return usage(fmt.Errorf("invalid --wait %v or --lease %v: they must not be negative", c.Wait, c.Lease))
	}
	queue, err := c.queue()
	if err != nil {
		return err
	}
	messages, err := queue.Receive(ctx, seb.ReceiveOptions{Max: c.Max, Wait: c.Wait, Lease: c.Lease})
	if mayHaveReceived(err) {
		check := fmt.Sprintf("records may be leased, each with an attempt counted: check with `seb queue show %s %s`; they come again after their leases", c.Topic, c.Queue)
		return codedError{hinted(c.failed("receive from", err), check), exitUnknown}
	}
	if err != nil {
		return c.failed("receive from", err)
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"messages": each(messages, httpapi.MessageJSON)})
	}
	if len(messages) == 0 {
		note(std.err, "no record can be handed out now: all may be done, delayed, held, or with workers, or the queue is paused; `seb queue show %s %s` shows which\n", c.Topic, c.Queue)
		return nil
	}
	out := newPrinter(std.out)
	out.table(func(row *printer) {
		row.printf("TOKEN\tPARTITION\tOFFSET\tATTEMPT\tLEASED UNTIL\tKEY\tVALUE\n")
		for _, m := range messages {
			key := "-"
			if m.Key != nil {
				key = beginning(m.Key)
			}
			row.printf("%s\t%d\t%d\t%d\t%s\t%s\t%s\n", m.Token, m.Partition, m.Offset, m.Attempt, m.LeasedUntil.UTC().Format(time.RFC3339), key, beginning(m.Value))
		}
	})
	note(std.err, "answer with `seb queue ack %s %s TOKEN`, or put back with `seb queue nack`\n", c.Topic, c.Queue)
	return out.err
}

// mayHaveReceived tells whether the broker may have leased records although the receive failed with err.
func mayHaveReceived(err error) bool {
	e, ok := errors.AsType[*seb.Error](err)
	if !ok {
		return false
	}
	switch e.Code {
	case seb.CodeCanceled:
		return true
	case client.CodeUnexpectedResponse:
		status, isStatus := errors.AsType[client.StatusError](e)
		return !isStatus || status >= 500
	case client.CodeUnreachable:
		return wasSent(e)
	default:
		return false
	}
}

// wasSent tells whether a broker may have got the request that failed with e, which has client.CodeUnreachable.
func wasSent(e *seb.Error) bool {
	op, isOp := errors.AsType[*net.OpError](e)
	dialed := !isOp || op.Op != "dial"
	return dialed && e.RetryAfter > 0 // a retry can't help if the server speaks no HTTPS, or only that, or is not trusted
}

// beginning returns the beginning of untrusted bytes, on one line.
func beginning(b []byte) string {
	text := []rune(oneLine(string(b[:min(len(b), 4*valueShownMax)])))
	if len(text) > valueShownMax {
		return string(text[:valueShownMax-3]) + "..."
	}
	return string(text)
}
