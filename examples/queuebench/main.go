// Queuebench compares Seb's queues with the usual pattern in PostgreSQL: a table of
// jobs, from which workers take rows by FOR UPDATE SKIP LOCKED. Seb and PostgreSQL run
// on the same machine and disk, one after the other. Each makes a change durable
// before it acknowledges the change.
//
// Queuebench prints how many messages per second all workers together take and finish,
// and how long workers take to receive and to finish messages. A worker does nothing
// with a message, so that only the queue is measured.
//
// Each kind of queue that is compared is called a side.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// options are the values of the flags.
type options struct {
	messages int
	payload  int // bytes
	workers  int
	rate     int // messages per second of all workers; 0 means as many as possible
	batches  []int
	sides    []string
	postgres string // URL of a running server; "" means that this program starts one
	seb      string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "queuebench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("queuebench", flag.ContinueOnError)
	flags.IntVar(&o.messages, "messages", 20_000, "how many messages a queue has when its workers begin")
	flags.IntVar(&o.payload, "payload", 200, "how many `bytes` each message has")
	flags.IntVar(&o.workers, "workers", 64, "how many workers take messages, each over a connection of its own")
	flags.IntVar(&o.rate, "rate", 0, "the most messages per second that all workers take together, to see latencies without overload; 0: no limit")
	batches := flags.String("batches", "1,10", "how many messages a worker takes at a time: a run for each")
	sides := flags.String("sides", strings.Join(sideNames, ","), "what to compare")
	flags.StringVar(&o.postgres, "postgres", "", "use the PostgreSQL server at `URL`, and create its table queuebench again (default: start one)")
	flags.StringVar(&o.seb, "seb", "", "use the broker at `URL`, and create its topic queuebench again (default: start one, on a directory)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for b := range strings.SplitSeq(*batches, ",") {
		n, err := strconv.Atoi(b)
		if err != nil || n < 1 {
			return o, fmt.Errorf("-batches: %q is not a number greater than 0", b)
		}
		o.batches = append(o.batches, n)
	}
	for s := range strings.SplitSeq(*sides, ",") {
		if openers[s] == nil {
			return o, fmt.Errorf("-sides: there is no side %q; the sides are %s", s, strings.Join(sideNames, ", "))
		}
		o.sides = append(o.sides, s)
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.messages < 1 || o.payload < 1 || o.workers < 1 || o.rate < 0 {
		return o, fmt.Errorf("-messages is %d, -payload is %d, -workers is %d and -rate is %d: -rate must be at least 0, the others at least 1", o.messages, o.payload, o.workers, o.rate)
	}
	return o, nil
}

// turn returns the time between two batches of a worker; 0 means no wait.
func (o options) turn(batch int) time.Duration {
	if o.rate == 0 {
		return 0
	}
	return time.Duration(float64(batch*o.workers) / float64(o.rate) * float64(time.Second))
}

func run(ctx context.Context, args []string, out io.Writer) (result error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	header := fmt.Sprintf("%s/%s, %d CPUs, %s\n%d messages of %d bytes, %d workers",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), o.messages, o.payload, o.workers)
	if o.rate > 0 {
		header += fmt.Sprintf(" at %d a second", o.rate)
	}
	header += "\n"
	if _, err := io.WriteString(out, header); err != nil {
		return err
	}
	row := func(cells ...any) error {
		_, err := fmt.Fprint(table, strings.Join(strings.Fields(fmt.Sprintln(cells...)), "\t")+"\t\n")
		return err
	}
	if err := row("side", "at-once", "messages/s", "receive-p50", "receive-p99", "finish-p50", "finish-p99", "filled/s"); err != nil {
		return err
	}
	for _, name := range o.sides {
		s, err := openers[name](ctx, o)
		var what string
		if err == nil {
			defer func() { result = errors.Join(result, s.Remove()) }()
			what, err = measureSide(ctx, name, s, o, row)
		}
		if err != nil {
			// Print the results so far, because it took a while to measure them.
			return errors.Join(fmt.Errorf("%s: %w", name, err), table.Flush())
		}
		if _, err := fmt.Fprintf(out, "%s: %s\n", name, what); err != nil {
			return err
		}
	}
	return table.Flush()
}

// measureSide measures one side, and returns what s.Describe returns.
func measureSide(ctx context.Context, name string, s side, o options, row func(...any) error) (what string, err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, batch := range o.batches {
		m, err := measure(ctx, s, o, batch)
		if err != nil {
			return "", err
		}
		if err := row(name, batch, m.rate, m.receive.at(50), m.receive.at(99), m.finish.at(50), m.finish.at(99), m.filled); err != nil {
			return "", err
		}
	}
	return s.Describe(ctx)
}

// rounded returns a duration rounded to a thousandth of the duration, but at least to a microsecond.
func rounded(d time.Duration) time.Duration { return d.Round(max(time.Microsecond, d/1000)) }
