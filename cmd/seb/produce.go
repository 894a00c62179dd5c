package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

type produceCmd struct {
	serverFlag
	formatFlags
	outputFlag
	recordFlags
	Topic        string        `arg:"" type:"topic" help:"Name of the topic; created if it does not exist."`
	File         string        `type:"existingfile" placeholder:"FILE" help:"Read records from FILE (default: standard input)."`
	Partition    *int32        `placeholder:"N" help:"Append to partition N (default: the partition that the record's JSON names, else one chosen by the record's key, else round robin)."`
	Repartition  bool          `help:"Choose partitions by key, not by the records' JSON."`
	Skip         int64         `placeholder:"N" help:"Skip the first N records, which an earlier call appended (default: none)."`
	BatchBytes   size          `default:"8MiB" help:"Largest request to send (default ${default})."`
	BatchRecords int           `default:"50000" help:"Most records in a request (default ${default})."`
	RetryFor     time.Duration `default:"2m" help:"How long to retry a request, also while no broker answers the first one, and to wait for a response; a response has at least 10s (default ${default})."`
	Delay        time.Duration `env:"-" placeholder:"DURATION" help:"Queues hand the records out this long after their append, such as 10m (default: at once)."`
	DeliverAt    *time.Time    `env:"-" placeholder:"TIME" help:"Queues hand the records out from this time on, such as 2026-01-31T12:00:00Z (default: at once)."`
	NoIdempotent bool          `env:"-" help:"Send requests without idempotency keys; a request that may have appended its records is then not retried, but ends seb produce."`
	// Earlier versions sent idempotency keys only with this flag.
	Idempotent bool `hidden:"" help:"Send every request with an idempotency key, and as soon as there are records."`
}

// Help shows examples.
func (produceCmd) Help() string {
	return `Every line becomes a record, without its LF. An empty line is an empty record; CR is kept; the last
line needs no LF. Records keep their order within a partition. They are sent as they come: records
that come during a request go into the next request.

Examples:

    echo hello | seb produce greetings
    seb produce events --file events.log
    tail -F app.log | seb produce app --partition 0
    echo paid | seb produce orders --key alice --header trace=4f1c
    printf 'alice\tpaid\n' | seb produce orders --key-separator '\t'
    echo reminder | seb produce orders --delay 24h
    seb produce pictures --format raw --file cat.png
    seb consume orders --format json | seb produce copy --format json

` + formatsHelp + `

With json, only a value is required; value_json holds JSON that becomes the value as it stands; offset is ignored.
With raw, all of the input is one record.

With --delay or --deliver-at, queues hand the records out later; readers of the topic see them at once.

While no broker answers, also at the start, seb produce tries again for --retry-for; 0s turns that off. A host that does
not exist ends it at once.

Each request has an idempotency key, which the log remembers for a day, so that a retry after a lost response appends
nothing twice. The log remembers a million keys. To use few of them, seb produce collects records for up to a second
before a request, once it has sent 1000 requests, unless the request is full before. If the log has no room for a key, a
request goes without one, and is not retried after a lost response. --no-idempotent sends no keys, and does not wait.

On Ctrl-C, SIGTERM or SIGHUP, seb produce waits for the request under way; a second signal ends it at once. If seb produce
fails or is interrupted, it says up to which line (or record) the input is acknowledged, and how to continue.`
}

// Run appends all records, in one request after the other. If two requests were under way at a time, and the
// first had to be retried, the records would change their order.
func (c *produceCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	if c.BatchBytes < 1 || c.BatchRecords < 1 || c.Skip < 0 {
		return usage(fmt.Errorf("invalid --batch-bytes %d, --batch-records %d or --skip %d: --skip must be at least 0, the others at least 1", c.BatchBytes, c.BatchRecords, c.Skip))
	}
	if c.Idempotent && c.NoIdempotent {
		return usage(errors.New("--idempotent and --no-idempotent exclude each other"))
	}
	if c.Delay < 0 || c.Delay > 0 && c.DeliverAt != nil {
		return usage(fmt.Errorf("invalid --delay %v: it must be at least 0, and can't be combined with --deliver-at", c.Delay))
	}
	if err := c.checkFormat(); err != nil {
		return err
	}
	if err := c.checkRecords(c.formatFlags); err != nil {
		return err
	}
	if c.Partition != nil && *c.Partition < 0 {
		return usage(fmt.Errorf("invalid --partition %d: it must be at least 0", *c.Partition))
	}
	// --partition goes into the query; a partition in a record's JSON would have priority, so form
	// drops it.
	form := c.formatFlags.input(c.Repartition || c.Partition != nil)
	c.addTo(form)
	in, total, err := c.input(std)
	if err != nil {
		return err
	}
	defer in.Close()

	g := newBatcher(form, int(c.BatchBytes), c.BatchRecords)
	// Run does not wait for this goroutine: its read from a terminal or a pipe may block until the other side
	// writes or closes.
	go g.read(ctx, in, c.Skip)

	p := &producer{cmd: c, broker: broker, run: rand.Text(), began: time.Now(), unit: form.unit, partitions: map[int32]*appendedPartition{}, acked: c.Skip, progress: newProgress(std.err, total)}
	p.waits = newWaitNotes(std.err, p.progress, "produce "+c.Topic, c.RetryFor)
	err = p.sendAll(ctx, g)
	p.progress.clear()
	if err != nil {
		return err
	}
	return p.summary(std)
}

// summary tells what was appended. The line for people goes to standard error, where no program takes it for
// output; the JSON for programs goes to standard output.
func (p *producer) summary(std streams) error {
	took := time.Since(p.progress.start)
	if !p.cmd.json() {
		count, unit := p.acked-p.cmd.Skip, "records"
		if count == 1 {
			unit = "record"
		}
		note(std.err, "%d %s, %s, in %v\n", count, unit, size(p.bytes), took.Round(time.Millisecond))
		return nil
	}
	return printJSON(std.out, struct {
		Topic      string                       `json:"topic"`
		Records    int64                        `json:"records"`
		Bytes      int64                        `json:"bytes"`
		Seconds    float64                      `json:"seconds"`
		Partitions map[int32]*appendedPartition `json:"partitions"`
	}{p.cmd.Topic, p.acked - p.cmd.Skip, p.bytes, took.Seconds(), p.partitions})
}

// appendedPartition tells what was appended to one partition. Records of other programs may be between the
// first and the last.
type appendedPartition struct {
	Records     int64      `json:"records"`
	FirstOffset seb.Offset `json:"first_offset"`
	LastOffset  seb.Offset `json:"last_offset"`
}

// took adds the offsets of an append, which the broker's answer names, to the summary.
func (p *producer) took(ranges []seb.Range) {
	for _, r := range ranges {
		a := p.partitions[r.Partition]
		if a == nil {
			a = &appendedPartition{FirstOffset: r.Offset}
			p.partitions[r.Partition] = a
		}
		a.Records += int64(r.Count)
		a.LastOffset = r.Offset + seb.Offset(r.Count) - 1
	}
}

// input opens what to read. It also returns the size of a regular file, 0 for all else.
func (c *produceCmd) input(std streams) (io.ReadCloser, int64, error) {
	f, ok := std.in.(*os.File)
	if c.File != "" {
		var err error
		if f, err = os.Open(c.File); err != nil {
			return nil, 0, err
		}
	} else if !ok {
		return io.NopCloser(std.in), 0, nil
	}
	var total int64
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		total = info.Size()
	}
	return f, total, nil
}

// producer is one run of produce.
type producer struct {
	cmd    *produceCmd
	broker interface {
		AppendEncoded(ctx context.Context, topic string, e client.Encoding, records []byte, opts ...seb.AppendOption) (seb.Appended, error)
	}
	progress *progress
	run      string // random text; run and acked together are a request's idempotency key
	unit     string // what acked counts: line or record
	acked    int64  // how many lines or records of the input are in the log or were skipped
	bytes    int64  // bytes of the input that were acknowledged in this run
	answered bool   // a broker has answered a request of this run
	waits    *waitNotes

	began    time.Time
	batches  int64     // batches taken from the batcher so far
	taken    time.Time // when the last batch was taken
	keysFull bool      // the log had no room for the key of the last request, which went without one

	partitions map[int32]*appendedPartition
}

func (p *producer) sendAll(ctx context.Context, g *batcher) error {
	var batch *recordBatch
	for {
		var err error
		batch, err = g.next(ctx, batch, p.collectUntil())
		if errors.Is(err, io.EOF) {
			return nil
		}
		if ctx.Err() != nil {
			return p.stopped(0, seb.NotCommitted, errInterrupted)
		}
		if err != nil {
			return p.stopped(0, seb.NotCommitted, fmt.Errorf("read the input: %w", err))
		}
		p.batches, p.taken = p.batches+1, time.Now()
		if outcome, err := p.sendBatch(ctx, batch); err != nil {
			if p.cmd.Format == formatJSON {
				batch.inLines(err, p.acked)
			}
			return p.stopped(batch.count(), outcome, err)
		}
		p.acked += int64(batch.count())
		p.bytes += batch.input
		p.progress.update(time.Now(), p.acked-p.cmd.Skip, p.bytes)
	}
}

// A run uses up to keysAtOnce idempotency keys as fast as the input comes, and about one each keyEvery after that,
// in addition to one for each full batch. So slow input uses a tenth of the keys that a log remembers by default.
const (
	keysAtOnce = 1000
	keyEvery   = time.Second
)

// collectUntil returns until when the next batch collects records unless it is full before.
func (p *producer) collectUntil() time.Time {
	paced := !p.cmd.Idempotent && !p.cmd.NoIdempotent
	if !paced || p.batches < keysAtOnce+int64(time.Since(p.began)/keyEvery) {
		return time.Time{}
	}
	return p.taken.Add(keyEvery)
}

// sendBatch appends a batch, and retries as far as the flags allow. The end of ctx, at the first signal, stops the
// retries, but does not interrupt a request under way, whose outcome would then be unknown. A second signal does.
func (p *producer) sendBatch(ctx context.Context, batch *recordBatch) (seb.Outcome, error) {
	var pause backoff
	outcome := seb.NotCommitted // of all attempts together: Unknown if any of them is
	began := time.Now()
	retrying, cancel := context.WithTimeout(ctx, p.cmd.RetryFor)
	defer cancel()
	hurry, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer onSecondSignal(ctx, end)()
	p.keysFull = false
	for {
		err := p.postToEnd(ctx, hurry, began, batch)
		if err == nil {
			p.answered = true
			return "", nil
		}
		if seb.OutcomeOf(err) == seb.Unknown {
			outcome = seb.Unknown
		}
		if hurry.Err() != nil {
			return outcome, errInterrupted
		}
		if p.keyed() && !p.cmd.Idempotent && seb.CodeOf(err) == seb.CodeIdempotencyKeysFull && outcome != seb.Unknown {
			p.waits.once(err, "going on without idempotency keys: if a response is lost, seb produce ends")
			p.keysFull, p.answered = true, true
			continue
		}
		retry := retryable(err) && (outcome != seb.Unknown || p.keyed())
		unreachable := seb.CodeOf(err) == client.CodeUnreachable
		// If no broker has answered yet, the host is probably mistyped.
		hopeless := !p.answered && outcome != seb.Unknown && noSuchHost(err)
		switch {
		case !retry || hopeless || p.cmd.RetryFor == 0:
		case outcome == seb.Unknown, unreachable && !p.answered:
			p.waits.tellNow(err)
		default:
			p.waits.tell(err)
		}
		if !retry || hopeless {
			return outcome, err
		}
		if !pause.wait(retrying, err) {
			if ctx.Err() != nil { // a signal, not the end of --retry-for
				err = errInterrupted
			}
			return outcome, err
		}
		p.answered = p.answered || !unreachable
	}
}

// keyed tells whether the next request has an idempotency key.
func (p *producer) keyed() bool { return !p.cmd.NoIdempotent && !p.keysFull }

// postToEnd sends one request with the context hurry; the first request for this batch began at began. If ctx ends
// meanwhile, postToEnd says that seb produce waits.
func (p *producer) postToEnd(ctx, hurry context.Context, began time.Time, batch *recordBatch) error {
	told := make(chan struct{})
	unsaid := context.AfterFunc(ctx, func() {
		defer close(told)
		p.progress.clear()
		note(p.waits.w, "waiting for the request under way (another Ctrl-C or SIGTERM ends seb produce)\n")
	})
	err := inTime(hurry, p.cmd.Server, began, p.cmd.RetryFor, func(ctx context.Context) error { return p.post(ctx, batch) })
	if !unsaid() {
		<-told
	}
	return err
}

// post sends one request.
func (p *producer) post(ctx context.Context, batch *recordBatch) error {
	var opts []seb.AppendOption
	if p.cmd.Partition != nil {
		opts = append(opts, seb.ToPartition(*p.cmd.Partition))
	}
	if p.cmd.Delay > 0 {
		opts = append(opts, seb.Delay(p.cmd.Delay))
	}
	if p.cmd.DeliverAt != nil {
		opts = append(opts, seb.DeliverAt(*p.cmd.DeliverAt))
	}
	if p.keyed() {
		opts = append(opts, seb.IdempotencyKey(fmt.Sprintf("%s-%d", p.run, p.acked)))
	}
	answer, err := p.broker.AppendEncoded(ctx, p.cmd.Topic, batch.encoding(), batch.body(), opts...)
	if err != nil {
		return err
	}
	if answer.Count != batch.count() {
		return fmt.Errorf("%s did not confirm the %d records sent: is it a broker?", p.cmd.Server, batch.count())
	}
	p.took(answer.Ranges)
	return nil
}

// stopped adds to err what is in the log, what may be there, and how to continue. count is how many records
// were sent after the acknowledged ones.
func (p *producer) stopped(count int, outcome seb.Outcome, err error) error {
	from, to := p.acked+1, p.acked+int64(count)
	_, hint := said(err)
	code := seb.CodeOf(err)
	elsewhere := code == seb.CodePartitionNotFound && p.cmd.Format == formatJSON && p.cmd.Partition == nil
	if p.acked == p.cmd.Skip && outcome == seb.NotCommitted && hint != "" && !elsewhere {
		return fmt.Errorf("produce %s: nothing appended: %w", p.cmd.Topic, err)
	}
	done := fmt.Sprintf("%d %ss are acknowledged", p.acked, p.unit)
	if outcome == seb.Unknown {
		next := ""
		switch {
		case p.keysFull:
			next = "; seb retries such requests when the log has room for idempotency keys"
		case p.cmd.NoIdempotent:
			next = "; without --no-idempotent seb retries such requests"
		}
		return codedError{hinted(fmt.Errorf("produce %s: %ss %d to %d: %w", p.cmd.Topic, p.unit, from, to, err),
			fmt.Sprintf("%s; %ss %d to %d may or may not be in the log: check the last record with `seb consume %s --from -1`,"+
				" then go on with --skip %d if they are missing, or with --skip %d if they are in the log%s",
				done, p.unit, from, to, p.cmd.Topic, p.acked, to, next)), exitUnknown}
	}
	goOn := fmt.Sprintf("remove the cause of the error, then continue with --skip %d", p.acked)
	if code == seb.CodeRequestTooLarge && count > 1 {
		goOn += " and a smaller --batch-bytes or --batch-records"
	}
	if elsewhere { // the records name partitions that the topic does not have
		goOn += " and --repartition, which lets keys choose the partitions"
	}
	if count > 0 {
		err = fmt.Errorf("%ss %d to %d: %w", p.unit, from, to, err)
	}
	return hinted(fmt.Errorf("produce %s: %w", p.cmd.Topic, err),
		fmt.Sprintf("%s, and none after these is in the log; %s", done, goOn))
}
