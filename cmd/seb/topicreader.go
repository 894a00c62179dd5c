package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// How long a failed read is retried without --follow.
	readRetryMax = 30 * time.Second
	// How often --follow checks for added partitions. A check may cost the broker a GET.
	lookEvery = time.Minute
	// The most partitions that a message names.
	positionsShown = 16
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
	broker    *client
	form      outputForm
	from      url.Values // where to begin in each partition
	topicID   string     // id of the topic at the start; another topic may get the same name later
	warn      io.Writer
	lookEvery time.Duration
	committer *positionCommitter // nil unless --consumer is given

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
	from      url.Values // where to read next
	next      int64      // from as an offset; -1 before the first answer
	committed int64      // the consumer's committed position
	end       int64      // where the partition ended at the start; -1 if there was no such partition
	body      []byte     // buffer of the last answer
}

// readAll reads the partitions one after the other, or, with --follow, all at the same time.
func (r *topicReader) readAll(ctx context.Context) error {
	if err := r.find(ctx); err != nil {
		return err
	}
	if r.cmd.Follow {
		return r.follow(ctx)
	}
	for _, p := range r.readers {
		if err := p.readAll(ctx); err != nil {
			return atLimitIsNone(err)
		}
	}
	return nil
}

func atLimitIsNone(err error) error {
	if errors.Is(err, errAtLimit) {
		return nil
	}
	return err
}

// find sets r.readers to a reader for each partition to read. The ends of all partitions come from one answer.
func (r *topicReader) find(ctx context.Context) error {
	t, id, err := r.topic(ctx)
	if err != nil {
		return err
	}
	r.topicID = id
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
			p.end = t.Partitions[n].EndOffset
			r.expect(t.Partitions[n].StartOffset, p.end)
		}
		r.readers = []*partitionReader{p}
		return nil
	}
	if len(t.Partitions) > 1 && r.cmd.isOffset() {
		return usage(fmt.Errorf("--from %s is an offset in one partition, and the topic has %d partitions: choose one with --partition", r.cmd.From, len(t.Partitions)))
	}
	for _, p := range t.Partitions {
		r.readers = append(r.readers, &partitionReader{topicReader: r, partition: p.Partition, from: r.from, next: -1, end: p.EndOffset})
		r.expect(p.StartOffset, p.EndOffset)
	}
	return nil
}

// findConsumer is like find, for --consumer: each reader begins at the consumer's position.
func (r *topicReader) findConsumer(ctx context.Context, t topicInfo) error {
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
			r.readers = append(r.readers, r.readerAt(p, at.at(p.Partition)))
			r.expect(at.at(p.Partition), p.EndOffset)
		}
	}
	return nil
}

// readerAt returns a reader of p that begins at offset, the consumer's position.
func (r *topicReader) readerAt(p partitionInfo, offset int64) *partitionReader {
	from := url.Values{"offset": {strconv.FormatInt(offset, 10)}}
	return &partitionReader{topicReader: r, partition: p.Partition, from: from, next: -1, committed: offset, end: p.EndOffset}
}

// expect adds the number of records from start to end to the total of progress, if the run begins at the
// earliest record or has --consumer.
func (r *topicReader) expect(start, end int64) {
	if r.cmd.From != "earliest" {
		return
	}
	r.progress.counted = true
	r.progress.total += max(0, end-start)
	if r.cmd.Limit > 0 {
		r.progress.total = min(r.progress.total, r.cmd.Limit)
	}
}

// topic asks the broker for the topic that has the name now, and returns the topic and its id.
func (r *topicReader) topic(ctx context.Context) (t topicInfo, id string, err error) {
	_, header, err := r.broker.exchange(ctx, http.MethodGet, r.broker.url(nil, "topics", r.cmd.Topic), nil, &t)
	if err != nil {
		return t, "", err
	}
	if id = header.Get(topicIDHeader); id == "" {
		err = fmt.Errorf("%s: the response is not what a broker sends: it has no %s", r.broker.base, topicIDHeader)
	}
	return t, id, err
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
		t, id, err := r.topic(ctx)
		if err != nil || id != r.topicID {
			continue // the readers will report the error
		}
		r.mu.Lock()
		known := len(r.readers)
		for _, p := range t.Partitions[min(known, len(t.Partitions)):] {
			added := &partitionReader{topicReader: r, partition: p.Partition, from: url.Values{"offset": {"earliest"}}, next: -1, end: p.EndOffset}
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
	return strconv.FormatInt(p.next, 10)
}

// readAll writes the partition's records up to its end, or, with --follow, until ctx ends.
func (p *partitionReader) readAll(ctx context.Context) error {
	var pause backoff
	var failingSince time.Time
	for {
		f, err := p.fetch(ctx)
		if err == nil {
			pause, failingSince = backoff{}, time.Time{}
			done, err := p.write(f)
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
		if retry, _ := retryable(err); !retry || p.end < 0 {
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
	if p.committer == nil || p.next <= p.committed {
		return nil
	}
	var pause backoff
	for began := time.Now(); ; {
		err := p.committer.commit(ctx, p.partition, p.next)
		if err == nil {
			p.committed = p.next
			return nil
		}
		retry, _ := retryable(err)
		if !retry || ctx.Err() != nil || !p.cmd.Follow && time.Since(began) > readRetryMax {
			return commitError{err}
		}
		p.complain(err)
		pause.wait(ctx, err) // an interrupt ends the pause, and then there is one more attempt
	}
}

// complain reports a temporary error. After that it reports nothing until records come again, since most
// errors affect all partitions.
func (r *topicReader) complain(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.warned {
		note(r.warn, "seb: %v; trying again\n", err)
	}
	r.warned = true
}

// fetch asks the broker for the next records.
func (p *partitionReader) fetch(ctx context.Context) (f fetched, err error) {
	spec := fetchSpec{
		topic: p.cmd.Topic, topicID: p.topicID, partition: p.partition, from: p.from, limit: math.MaxInt64,
		accept: p.form.accept, mayFindNone: p.cmd.Follow,
	}
	p.mu.Lock()
	if p.cmd.Limit > 0 {
		spec.limit = max(1, p.cmd.Limit-p.written)
	}
	spec.bytes = fetchBytes
	if p.cmd.Follow { // with --follow, one answer of each partition is in memory at the same time
		spec.bytes = max(fetchBytes/len(p.readers), fetchBytesMin)
		spec.wait = followWait
	}
	p.mu.Unlock()
	f, p.body, err = p.broker.fetch(ctx, spec, p.body)
	return f, err
}

// write writes the records of f, and tells whether the reader is done. --limit counts the records of all
// readers together. The records of f count as written once the output took all of them.
func (p *partitionReader) write(f fetched) (done bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warned = false
	if p.end < 0 {
		p.end = f.end
	}
	stop := f.next
	if !p.cmd.Follow {
		stop = min(stop, p.end)
	}
	if p.cmd.Limit > 0 {
		stop = min(stop, f.first+p.cmd.Limit-p.written)
	}
	p.next = f.first
	var size int64
	for f.first < stop {
		record := f.pop()
		if err := p.form.write(p.out, record); err != nil {
			return true, outputError{err}
		}
		size += int64(len(record))
	}
	if err := p.out.Flush(); err != nil {
		return true, outputError{err}
	}
	p.written += f.first - p.next
	p.bytes += size
	p.progress.update(time.Now(), p.written, p.bytes)
	p.next = f.first
	p.from = url.Values{"offset": {strconv.FormatInt(p.next, 10)}}
	if p.cmd.Limit > 0 && p.written >= p.cmd.Limit {
		return true, errAtLimit
	}
	return !p.cmd.Follow && p.next >= p.end, nil
}
