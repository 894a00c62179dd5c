package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"golang.org/x/sync/errgroup"
)

const (
	// How long a failed read is retried without --follow.
	readRetryMax = 30 * time.Second
	// How often --follow checks for added partitions. A check may cost the broker a GET.
	lookEvery = time.Minute
	// The most partitions that a message names.
	positionsShown = 16

	fetchBytes    = 4 << 20
	fetchBytesMin = 64 << 10
	fetchRecords  = 32 << 10
	followWait    = 20 * time.Second
)

// errAtLimit ends the reading of all partitions once --limit records were written.
var errAtLimit = errors.New("all records of --limit were written")

// outputError means that the output took nothing, or only a part of what was written.
type outputError struct{ error }

func (e outputError) Error() string { return "write the output: " + e.error.Error() }
func (e outputError) Unwrap() error { return e.error }

// nobodyReads tells whether err means that the reader of the output has ended, as head does. A broken
// connection to the broker may also give EPIPE, but not as an outputError.
func nobodyReads(err error) bool {
	var output outputError
	return errors.As(err, &output) && errors.Is(output, syscall.EPIPE)
}

// topicReader reads a topic for one run of consume.
type topicReader struct {
	cmd       *consumeCmd
	broker    *client.Client
	form      outputForm
	from      seb.Position // where to begin in each partition
	tag       string       // of the topic at the start; another topic may get the same name later
	warn      io.Writer
	lookEvery time.Duration
	committer *positionCommitter // nil unless --consumer is given
	acks      *acknowledgements  // nil unless --ack-lines is given

	mu       sync.Mutex // guards the fields below, and warn
	out      *bufio.Writer
	progress *progress
	readers  []*partitionReader
	written  int64
	bytes    int64
	warned   bool
}

// partitionReader reads one partition.
type partitionReader struct {
	*topicReader
	partition int32
	from      seb.Position // where to read next
	next      seb.Offset   // from as an offset; -1 before the first answer
	committed seb.Offset   // the consumer's committed position
	end       seb.Offset   // where the partition ended at the start; -1 if there was no such partition
	body      []byte       // buffer of the last answer
}

// readAll reads the partitions one after the other, or, with --follow, all at the same time.
func (r *topicReader) readAll(ctx context.Context) error {
	if r.cmd.Follow {
		if err := untilAnswered(ctx, r.warn, func() error { return r.find(ctx) }); err != nil {
			return err
		}
		return r.follow(ctx)
	}
	if err := r.find(ctx); err != nil {
		return err
	}
	for _, p := range r.readers {
		if err := p.readAll(ctx); err != nil {
			return atLimitIsNone(err)
		}
	}
	return nil
}

// errAcknowledgementsEnded ends the reading when no more acknowledgements are committed.
var errAcknowledgementsEnded = errors.New("the acknowledgements have ended")

// readAcknowledged is like readAll, for --ack-lines. When the reading has ended, for whatever reason, it closes
// the output, unless the program that reads the output has ended. Then it waits until all written records are
// acknowledged, no more acknowledgements come, or a commit of positions fails.
func (r *topicReader) readAcknowledged(ctx context.Context, output io.Writer) error {
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	committed := make(chan error, 1)
	go func() {
		committed <- r.acks.run(func(positions seb.Offsets) error { return r.commit(ctx, positions) })
		stop(errAcknowledgementsEnded)
	}()
	err := r.readAll(reading)
	waiting := r.acks.finish()
	if c, ok := output.(io.Closer); ok && !nobodyReads(err) {
		if closeErr := c.Close(); err == nil && closeErr != nil {
			err = outputError{closeErr}
		}
	}
	if ctx.Err() != nil && waiting > 0 {
		note(r.warn, "seb: writing no more records; waiting for the acknowledgements of %s (another Ctrl-C ends it)\n", counted(waiting, "record", "records"))
	}
	ended := <-committed
	byEnd := errors.Is(context.Cause(reading), errAcknowledgementsEnded)
	if ended != nil && (err == nil || byEnd || nobodyReads(err) || errors.As(ended, new(commitError))) {
		return ended
	}
	return err
}

func atLimitIsNone(err error) error {
	if errors.Is(err, errAtLimit) {
		return nil
	}
	return err
}

// find sets r.readers to a reader for each partition to read. The ends of all partitions come from one answer.
func (r *topicReader) find(ctx context.Context) error {
	t, tag, err := r.broker.TaggedTopic(ctx, r.cmd.Topic)
	if err != nil {
		return err
	}
	r.tag = tag
	if r.committer != nil {
		return r.findConsumer(ctx, t)
	}
	if r.cmd.Partition != "all" {
		n, err := strconv.ParseInt(r.cmd.Partition, 10, 32)
		if err != nil {
			return err
		}
		p := &partitionReader{topicReader: r, partition: int32(n), from: r.from, next: -1, end: -1}
		if int(n) < len(t.Partitions) {
			p.end = t.Partitions[n].End
			r.expect(t.Partitions[n].Start, p.end)
		}
		r.readers = []*partitionReader{p}
		return nil
	}
	if len(t.Partitions) > 1 && r.cmd.isOffset() {
		return usage(fmt.Errorf("--from %s is an offset in one partition, and the topic has %d partitions: choose one with --partition", r.cmd.From, len(t.Partitions)))
	}
	if n, ok := strings.CutPrefix(r.cmd.From, "-"); ok && len(t.Partitions) > 1 && isTerminal(r.warn) {
		note(r.warn, "the last %s records of each of the %d partitions; records of different partitions are not sorted by time\n", n, len(t.Partitions))
	}
	for _, p := range t.Partitions {
		r.readers = append(r.readers, &partitionReader{topicReader: r, partition: p.Partition, from: r.from, next: -1, end: p.End})
		r.expect(p.Start, p.End)
	}
	return nil
}

// findConsumer is like find, for --consumer: each reader begins at the consumer's position.
func (r *topicReader) findConsumer(ctx context.Context, t seb.Topic) error {
	at, err := r.committer.open(ctx)
	if err != nil {
		return err
	}
	only, err := strconv.ParseInt(r.cmd.Partition, 10, 32)
	if err == nil && int(only) >= len(t.Partitions) { // there is no such partition: the broker will refuse the read
		r.readers = []*partitionReader{{topicReader: r, partition: int32(only), from: r.from, next: -1, end: -1}}
		return nil
	}
	for _, p := range t.Partitions {
		if err != nil || int32(only) == p.Partition {
			r.readers = append(r.readers, r.readerAt(p, at[p.Partition]))
			r.expect(at[p.Partition], p.End)
		}
	}
	return nil
}

// readerAt returns a reader of p that begins at offset, the consumer's position.
func (r *topicReader) readerAt(p seb.Partition, offset seb.Offset) *partitionReader {
	return &partitionReader{topicReader: r, partition: p.Partition, from: seb.At(offset), next: -1, committed: offset, end: p.End}
}

// expect adds the number of records from start to end to the total of progress, if the run begins at the
// earliest record or has --consumer.
func (r *topicReader) expect(start, end seb.Offset) {
	if r.cmd.From != "earliest" {
		return
	}
	r.progress.counted = true
	r.progress.total += int64(max(0, end-start))
	if r.cmd.Limit > 0 {
		r.progress.total = min(r.progress.total, r.cmd.Limit)
	}
}

// follow reads all partitions at the same time, also those that are added meanwhile.
func (r *topicReader) follow(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	for _, p := range r.readers {
		all.Go(func() error { return p.readAll(ctx) })
	}
	if r.cmd.Partition == "all" {
		all.Go(func() error {
			r.watch(ctx, func(p *partitionReader) { all.Go(func() error { return p.readAll(ctx) }) })
			return nil
		})
	}
	return atLimitIsNone(all.Wait())
}

// watch calls added with a reader for each partition that is added to the topic, until ctx ends.
func (r *topicReader) watch(ctx context.Context, added func(*partitionReader)) {
	ticker := time.NewTicker(r.lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		t, tag, err := r.broker.TaggedTopic(ctx, r.cmd.Topic)
		if err != nil || tag != r.tag {
			continue // the readers will report the error
		}
		r.mu.Lock()
		known := len(r.readers)
		for _, p := range t.Partitions[min(known, len(t.Partitions)):] {
			added := &partitionReader{topicReader: r, partition: p.Partition, from: seb.Earliest, next: -1, end: p.End}
			if r.committer != nil {
				added = r.readerAt(p, 0) // a consumer's position in a new partition is 0
			}
			r.readers = append(r.readers, added)
		}
		fresh := r.readers[known:]
		r.mu.Unlock()
		for _, p := range fresh {
			added(p)
		}
	}
}

// positions returns the flags with which a later run continues where the readers are.
func (r *topicReader) positions() string {
	if len(r.readers) == 1 {
		return "--from " + r.readers[0].position()
	}
	var parts []string
	for _, p := range r.readers {
		if len(parts) == positionsShown {
			parts = append(parts, "...")
			break
		}
		parts = append(parts, fmt.Sprintf("--partition %d --from %s", p.partition, p.position()))
	}
	return strings.Join(parts, ", ")
}

// position returns where the reader is, as a value for --from.
func (p *partitionReader) position() string {
	if p.next < 0 {
		return p.cmd.From
	}
	return strconv.FormatInt(int64(p.next), 10)
}

// readAll writes the partition's records up to its end, or, with --follow, until ctx ends.
func (p *partitionReader) readAll(ctx context.Context) error {
	var pause backoff
	var failingSince time.Time
	for {
		f, err := p.fetch(ctx)
		if err == nil {
			pause, failingSince = backoff{}, time.Time{}
			done, err := p.write(ctx, f)
			if notCommitted := p.commitPosition(ctx); notCommitted != nil {
				return notCommitted
			}
			if err != nil || done {
				return err
			}
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !retryable(err) || p.end < 0 {
			return err
		}
		if failingSince.IsZero() {
			failingSince = time.Now()
			p.complain(err)
		}
		if (!p.cmd.Follow && time.Since(failingSince) > readRetryMax) || !pause.wait(ctx, err) {
			return err
		}
	}
}

// commitPosition commits the position after the records that the output took, if --consumer is given. It does
// so even after an interrupt.
func (p *partitionReader) commitPosition(ctx context.Context) error {
	if p.committer == nil || p.acks != nil || p.next <= p.committed {
		return nil
	}
	if err := p.commit(ctx, seb.Offsets{p.partition: p.next}); err != nil {
		return err
	}
	p.committed = p.next
	return nil
}

// commit commits positions of the consumer. It retries for up to readRetryMax, or without a limit with --follow.
func (r *topicReader) commit(ctx context.Context, positions seb.Offsets) error {
	var pause backoff
	for began := time.Now(); ; {
		err := r.committer.commit(ctx, positions)
		if err == nil {
			return nil
		}
		if !retryable(err) || ctx.Err() != nil || !r.cmd.Follow && time.Since(began) > readRetryMax {
			return commitError{err}
		}
		r.complain(err)
		pause.wait(ctx, err) // an interrupt ends the pause, and then there is one more attempt
	}
}

// complain reports a temporary error. After that it reports nothing until records come again, since most
// errors affect all partitions.
func (r *topicReader) complain(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.warned {
		message, _ := said(err)
		note(r.warn, "seb: %s; trying again\n", message)
	}
	r.warned = true
}

// fetch asks the broker for the next records.
func (p *partitionReader) fetch(ctx context.Context) (client.Encoded, error) {
	opts := seb.FetchOptions{TopicTag: p.tag, Limit: fetchRecords, MaxBytes: fetchBytes}
	p.mu.Lock()
	if p.cmd.Limit > 0 {
		opts.Limit = int(min(fetchRecords, max(1, p.cmd.Limit-p.written)))
	}
	if p.cmd.Follow { // with --follow, one answer of each partition is in memory at the same time
		opts.MaxBytes = int64(max(fetchBytes/len(p.readers), fetchBytesMin))
		opts.Wait = followWait
	}
	p.mu.Unlock()
	f, err := p.broker.FetchEncoded(ctx, p.cmd.Topic, p.partition, p.from, opts, p.form.encoding, p.body)
	if err != nil {
		return f, err
	}
	p.body = f.Body
	if f.First == f.Next && f.Next < f.End && !p.cmd.Follow {
		return f, fmt.Errorf("%s sent no record at offset %d, though the partition ends at %d", p.cmd.Server, f.Next, f.End)
	}
	return f, nil
}

// write writes the records of f, and tells whether the reader is done. --limit counts the records of all
// readers together. The records of f count as written once the output took all of them.
func (p *partitionReader) write(ctx context.Context, f client.Encoded) (done bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warned = false
	if p.end < 0 {
		p.end = f.End
	}
	stop := f.Next
	if !p.cmd.Follow {
		stop = min(stop, p.end)
	}
	if p.cmd.Limit > 0 {
		stop = min(stop, f.First+seb.Offset(p.cmd.Limit-p.written))
	}
	p.next = f.First
	if p.acks != nil {
		if err := p.acks.expect(ctx, p.partition, f.First, max(f.First, stop)); err != nil {
			return true, err
		}
	}
	var size int64
	for offset, record := range f.Each() {
		if offset >= stop {
			break
		}
		if err := p.form.write(p.out, record); err != nil {
			return true, outputError{err}
		}
		size += int64(len(record))
	}
	if err := p.out.Flush(); err != nil {
		return true, outputError{err}
	}
	p.next = max(f.First, stop)
	p.written += int64(p.next - f.First)
	p.bytes += size
	p.progress.update(time.Now(), p.written, p.bytes)
	p.from = seb.At(p.next)
	if p.cmd.Limit > 0 && p.written >= p.cmd.Limit {
		return true, errAtLimit
	}
	return !p.cmd.Follow && p.next >= p.end, nil
}
