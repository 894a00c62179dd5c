package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/fsck"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/price"
)

const (
	doctorSmall  = 1 << 10
	doctorLarge  = 1 << 20
	doctorRanged = 64 << 10
	// If the store's clock and this machine's clock differ by more than this, the output adds a remark. S3
	// refuses requests if the clocks differ by 15 minutes.
	skewNoted = 30 * time.Second
)

type doctorCmd struct {
	storeFlag
	outputFlag
	Rounds  int `default:"8" help:"Rounds of racing creates (default ${default})."`
	Racers  int `default:"24" help:"Creates that race in a round (default ${default})."`
	Samples int `default:"20" help:"How many requests to measure latencies with (default ${default})."`

	StateMemory size `default:"256MiB" help:"The --state-memory of the brokers of this store, to tell how full it is (default ${default})."`
}

// Help shows examples.
func (doctorCmd) Help() string {
	return `Examples:

    seb doctor --store ./seb-data
    seb doctor --store 's3://bucket/prefix?region=eu-central-1'
    seb doctor --store 's3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=us-east-1'
    seb doctor --output json | jq .usable

It writes a few dozen small objects under probe/ and deletes them; the log is not touched. A directory must exist. Of
a log in the store, it reads the newest checkpoint, to tell how much of --state-memory the log takes, and the newest
commits, to tell which brokers wrote them, and whether this machine reaches each at the address that it advertises.
The exit code is 0 if the store is usable, 3 if it is not, 2 if the setup is wrong, such as the credentials, 4 if
the directory does not exist, and 6 if the store does not answer or has no room.`
}

// Run probes the store and prints a verdict.
func (c *doctorCmd) Run(ctx context.Context, std streams) error {
	if c.Rounds < 1 || c.Racers < 2 || c.Samples < 1 {
		return usage(fmt.Errorf("invalid --rounds %d, --racers %d or --samples %d: --racers must be at least 2, the others at least 1", c.Rounds, c.Racers, c.Samples))
	}
	if err := c.mustBeThere(); err != nil {
		return err
	}
	store, kind, err := c.open(ctx)
	if err != nil {
		return err
	}
	d := &diagnosis{prober: newProber(store), printer: *newPrinter(std.out), Store: c.Store, Kind: kind.String()}
	d.progress = newProgress(std.err, 0)
	d.progress.unit = "requests"
	if c.json() {
		d.w = io.Discard
	}
	d.printf("store %s (%v)\n\n", c.Store, kind)
	d.examine(ctx, c)
	if ctx.Err() != nil {
		return errInterrupted
	}
	d.Usable = d.failed == nil
	switch {
	case d.Usable:
		d.estimate(kind, pricesFlag{}.of(store))
		if err := d.logState(ctx, int64(c.StateMemory)); err != nil {
			d.printf("  state: unknown: %v\n", err)
		}
		if err := d.brokers(ctx); err != nil {
			d.printf("  brokers: unknown: %v\n", err)
		}
		d.printf("\nverdict: %s by any number of brokers\n", d.paint(green, "usable"))
		if key := d.foreignKey(ctx); key != "" {
			d.Warning = fmt.Sprintf("seb serve does not start on this store: it has no %s, but holds %s; use an empty directory or prefix, or restore %s", clusterKey, key, clusterKey)
			d.printf("%s\n", d.paint(red, "warning: "+d.Warning))
		}
	case objstore.SetupFailureOf(d.failed) != nil:
		d.printf("\nverdict: unknown: the URL of the store, the credentials or the permissions are wrong\n")
	case isFull(d.failed):
		d.printf("\nverdict: unknown: the store has no room\n")
	case d.answered:
		d.printf("\nverdict: %s for Seb\n", d.paint(red, "NOT usable"))
	default:
		d.printf("\nverdict: unknown: the first request to the store failed, so nothing else was checked\n")
	}
	if c.json() {
		d.err = printJSON(std.out, d)
	}
	return d.verdict()
}

// foreignKey returns an object because of which seb serve refuses to create a log in the store, "" if there is none.
func (d *diagnosis) foreignKey(ctx context.Context) string {
	if _, err := d.store.Get(ctx, clusterKey, 0, 1); !errors.Is(err, objstore.ErrNotFound) {
		return ""
	}
	page, err := d.store.List(ctx, "", "", 0)
	if err != nil {
		return "" // the checks have reported errors of the store
	}
	for _, key := range page.Keys {
		if key != clusterKey && !strings.HasPrefix(key, format.ProbePrefix) {
			return key
		}
	}
	return ""
}

// verdict returns an error if the store is not usable; if it is usable, the error of writing the output, if any.
func (d *diagnosis) verdict() error {
	switch {
	case d.failed == nil:
		return d.err
	case objstore.SetupFailureOf(d.failed) != nil:
		return codedError{hinted(fmt.Errorf("store %s can't be used with this setup (its URL, the credentials or the permissions): see the check above that failed", d.Store), objstore.SetupFailureOf(d.failed).Hint), exitUsage}
	case isFull(d.failed):
		return codedError{fmt.Errorf("store %s has no room: %w", d.Store, d.failed), exitUnreachable}
	case !d.answered:
		return codedError{hinted(fmt.Errorf("the first request to the store %s failed", d.Store),
			"check the endpoint, bucket and region in --store, and the credentials; the failed check above shows the store's error"), exitUnreachable}
	default:
		return codedError{hinted(fmt.Errorf("store %s is not usable: %w", d.Store, d.failed),
			"Seb needs a store that passes every check above, each time; docs/stores.md lists the stores that were tested"), exitDamage}
	}
}

// diagnosis prints one line per check and remembers the first that failed.
type diagnosis struct {
	*prober  `json:"-"`
	printer  `json:"-"`
	failed   error
	answered bool // the store answered the first request

	Store     string        `json:"store"`
	Kind      string        `json:"kind"`
	Usable    bool          `json:"usable"`
	Warning   string        `json:"warning,omitempty"` // why seb serve does not start, although the store is usable
	Checks    []checked     `json:"checks"`
	Latencies []latencyInfo `json:"latencies,omitempty"`
	Cost      string        `json:"cost,omitempty"`
	State     *stateInfo    `json:"state,omitempty"`   // of the log in the store, if it has a checkpoint
	Brokers   []brokerInfo  `json:"brokers,omitempty"` // those that wrote the newest commits of the log in the store
}

type checked struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// latencyInfo has the latencies of one kind of request, in seconds.
type latencyInfo struct {
	Request string  `json:"request"`
	Count   int     `json:"count"`
	P50     float64 `json:"p50_seconds"`
	P90     float64 `json:"p90_seconds"`
	P99     float64 `json:"p99_seconds"`
	Max     float64 `json:"max_seconds"`
}

// examine runs all checks. The check "delete" removes the objects of the other checks, whatever their
// results.
func (d *diagnosis) examine(ctx context.Context, c *doctorCmd) {
	if d.answered = d.check(ctx, "answers", d.answers); !d.answered {
		return // after this failure every other check would run into a time-out
	}
	for _, check := range []struct {
		name string
		run  func(context.Context) (string, error)
	}{
		{"free keys", d.unobstructed},
		{"racing creates", func(ctx context.Context) (string, error) { return d.race(ctx, c.Rounds, c.Racers) }},
		{"create of existing", func(ctx context.Context) (string, error) { return d.exists(ctx, c.Rounds) }},
		{"read what was written", func(ctx context.Context) (string, error) { return d.roundTrips(ctx, c.Samples) }},
		{"list after write", d.lists},
		{"ranged reads", d.ranges},
	} {
		d.check(ctx, check.name, check.run)
		if objstore.SetupFailureOf(d.failed) != nil || isFull(d.failed) { // the other checks would fail for the same reason
			if err := d.cleanup(ctx); err != nil {
				d.printf("  objects of this test may remain: their keys begin with %s\n", d.prefix())
			}
			return
		}
	}
	d.check(ctx, "delete", d.deletes)
	d.check(ctx, "store time", d.clock)
}

// check runs one check and reports its result. After an interrupt it still runs the check, so that "delete"
// removes the objects, but reports nothing: a check that was cut short says nothing about the store.
func (d *diagnosis) check(ctx context.Context, name string, run func(context.Context) (string, error)) (ok bool) {
	detail, err := run(ctx)
	d.progress.clear()
	if ctx.Err() != nil {
		return false
	}
	mark, shade := "ok", green
	if err != nil {
		mark, shade, detail = "BAD", red, err.Error()
		if isFull(err) {
			mark = "FULL"
		}
		if d.failed == nil {
			d.failed = fmt.Errorf("%s: %w", name, err)
		}
	}
	d.Checks = append(d.Checks, checked{name, err == nil, detail})
	d.printf("  %s %-22s %s\n", d.paint(shade, fmt.Sprintf("%-4s", mark)), name, detail)
	return err == nil
}

func (d *diagnosis) answers(ctx context.Context) (string, error) {
	_, err := d.list(ctx, "", "", 1)
	if err != nil && !errors.Is(err, objstore.ErrNotRegular) { // the next check reports ErrNotRegular
		return "", err
	}
	return "it can be reached", nil
}

// unobstructed checks that a directory has no file or subdirectory of the wrong kind where Seb keeps objects,
// and that seb.json can be read if it exists.
func (d *diagnosis) unobstructed(ctx context.Context) (string, error) {
	obstacles, err := fsck.Obstacles(ctx, d.store)
	if err != nil {
		return "", err
	}
	if len(obstacles) > 0 {
		return "", fmt.Errorf("%s (number of such faults: %d; `seb fsck` names each)", obstacles[0].Detail, len(obstacles))
	}
	if _, err := d.get(ctx, "", clusterKey, 0, 1); err != nil && !errors.Is(err, objstore.ErrNotFound) {
		return "", err
	}
	return "Seb can use every path that it needs", nil
}

// roundTrips writes objects of two sizes, and reads each right after that. Most latencies are measured
// here.
func (d *diagnosis) roundTrips(ctx context.Context, samples int) (string, error) {
	for i, body := range [][]byte{make([]byte, doctorSmall), make([]byte, doctorLarge)} {
		n, what := samples, "1 KiB"
		if i == 1 {
			n, what = (samples+3)/4, "1 MiB"
		}
		for j := range n {
			body[0], body[len(body)-1] = byte(j), ^byte(j)
			key := d.key("object-%d-%d", i, j)
			if err := d.create(ctx, "create "+what, key, body); err != nil {
				return "", fmt.Errorf("create: %w", err)
			}
			o, err := d.get(ctx, "get "+what, key, 0, int64(len(body))+1)
			if err != nil {
				return "", fmt.Errorf("get: %w", err)
			}
			if !bytes.Equal(o.Body, body) {
				return "", fmt.Errorf("object %s was read back with bytes other than those written", key)
			}
		}
	}
	return "1 KiB and 1 MiB, bytes unchanged", nil
}

// lists checks that a list in pages has all keys that were created so far, in order.
func (d *diagnosis) lists(ctx context.Context) (string, error) {
	want := slices.Sorted(slices.Values(d.keys))
	var got []string
	after := ""
	for page := (objstore.Page{More: true}); page.More; {
		var err error
		if page, err = d.list(ctx, "list", after, 7); err != nil {
			return "", err
		}
		if len(page.Keys) == 0 {
			break
		}
		got = append(got, page.Keys...)
		after = got[len(got)-1]
		if len(got) > 2*len(want) {
			return "", fmt.Errorf("%d keys were created, but the list goes on after %d", len(want), len(got))
		}
	}
	if !slices.Equal(got, want) {
		return "", fmt.Errorf("%d keys were created; the list of %d keys lacks some of them, has others, or is out of order", len(want), len(got))
	}
	return fmt.Sprintf("%d keys, in order, in pages", len(want)), nil
}

func (d *diagnosis) ranges(ctx context.Context) (string, error) {
	body := make([]byte, doctorRanged)
	for i := range body {
		body[i] = byte(i * 7 >> 3)
	}
	key := d.key("ranges")
	if err := d.create(ctx, "", key, body); err != nil {
		return "", err
	}
	const end = doctorRanged
	for _, r := range []struct{ off, n, from, to int64 }{
		{1000, 5000, 1000, 6000},       // inside
		{end - 10, 100, end - 10, end}, // across the end
		{end, 10, end, end},            // at the end
		{100, -1, 100, end},            // to the end
	} {
		o, err := d.get(ctx, "", key, r.off, r.n)
		if err != nil {
			return "", fmt.Errorf("get %d bytes (-1: to the end) at offset %d: %w", r.n, r.off, err)
		}
		if !bytes.Equal(o.Body, body[r.from:r.to]) || o.Size != end {
			return "", fmt.Errorf("get %d bytes (-1: to the end) at offset %d of an object of %d bytes: wrong response: %d bytes, of an object of %d bytes", r.n, r.off, end, len(o.Body), o.Size)
		}
	}
	if _, err := d.get(ctx, "", d.key("never-created"), 0, 1); !errors.Is(err, objstore.ErrNotFound) {
		return "", fmt.Errorf("get of a missing object: want the response that it does not exist, got: %w", orNil(err))
	}
	return "inside, across and after the end; missing objects are reported", nil
}

// orNil returns err, or an error that says "success" if err is nil.
func orNil(err error) error {
	if err == nil {
		return errors.New("success")
	}
	return err
}

func (d *diagnosis) deletes(ctx context.Context) (string, error) {
	if err := d.cleanup(ctx); err != nil {
		return "", err
	}
	page, err := d.list(ctx, "", "", 1)
	if err != nil {
		return "", err
	}
	if len(page.Keys) > 0 {
		return "", fmt.Errorf("deleted object %s is still listed", page.Keys[0])
	}
	if _, err := d.get(ctx, "", d.keys[0], 0, 1); !errors.Is(err, objstore.ErrNotFound) {
		return "", fmt.Errorf("get of deleted object %s: want the response that it does not exist, got: %w", d.keys[0], orNil(err))
	}
	return "all objects of these checks", nil
}

// clock checks that all answers carried dates, and estimates the difference of the clocks.
func (d *diagnosis) clock(context.Context) (string, error) {
	if d.undated > 0 {
		return "", fmt.Errorf("%d of %d responses carried no date", d.undated, d.undated+len(d.dates))
	}
	if len(d.dates) == 0 {
		return "", errors.New("no response carried a date")
	}
	// least and most are the smallest and the largest skew that agree with every answer: the store
	// executed the request between sent and received, and the date in the answer may be cut to seconds.
	granularity := time.Second
	for _, at := range d.dates {
		if at.store.Nanosecond() != 0 {
			granularity = time.Nanosecond
			break
		}
	}
	least, most := time.Duration(math.MinInt64), time.Duration(math.MaxInt64)
	for _, at := range d.dates {
		least = max(least, at.store.Sub(at.received))
		most = min(most, at.store.Add(granularity).Sub(at.sent))
	}
	skew := (least/2 + most/2).Round(10 * time.Millisecond)
	detail := "on every answer"
	if granularity == time.Second {
		detail += ", in whole seconds"
	}
	switch {
	case skew > 0:
		detail += fmt.Sprintf(", about %v ahead of this machine", skew)
	case skew < 0:
		detail += fmt.Sprintf(", about %v behind this machine", -skew)
	}
	if skew.Abs() > skewNoted {
		detail += " (harmless to the log; set this machine's clock)"
	}
	return detail, nil
}

// estimate prints latencies, and what they mean for appends and for the bill.
func (d *diagnosis) estimate(kind storeKind, prices *price.List) {
	ms := func(t time.Duration) string { return fmt.Sprintf("%.1f ms", float64(t)/1e6) }
	msOf := func(seconds float64) string { return fmt.Sprintf("%.1f ms", seconds*1e3) }
	d.printf("\n")
	d.table(func(t *printer) {
		t.printf("  LATENCY\tN\tP50\tP90\tP99\tMAX\n")
		for _, name := range []string{"create 1 KiB", "create 1 MiB", "get 1 KiB", "get 1 MiB", "list", "delete"} {
			s := d.samples[name]
			l := latencyInfo{name, len(s), percentile(s, 50).Seconds(), percentile(s, 90).Seconds(),
				percentile(s, 99).Seconds(), percentile(s, 100).Seconds()}
			d.Latencies = append(d.Latencies, l)
			t.printf("  %s\t%d\t%s\t%s\t%s\t%s\n", l.Request, l.Count, msOf(l.P50), msOf(l.P90), msOf(l.P99), msOf(l.Max))
		}
	})
	linger, budget := kind.linger(), budgetFor(kind, prices)
	if budget > 0 {
		linger = lingerDirectory
	}
	creates := d.samples["create 1 KiB"]
	d.printf("\n  a lone append is acknowledged after about %v (linger) + %s; in the slowest case, %s later\n",
		linger, ms(percentile(creates, 50)), ms(percentile(creates, 100)-percentile(creates, 50)))
	if d.Cost = costOf(batchTimed, linger, prices); budget > 0 {
		d.Cost = budgetCost(budget, prices)
	}
	d.printf("  cost: %s\n", d.Cost)
}

// percentile returns the smallest sample that at least p percent of the samples do not exceed.
func percentile(samples []time.Duration, p int) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}
