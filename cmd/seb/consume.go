package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	fetchBytes   = 4 << 20
	fetchRecords = 32 << 10
	// What an answer may hold at most: its one record may be larger than fetchBytes.
	fetchBodyMax = 1 << 30
	followWait   = 20 * time.Second
	// How long a read that worked before is retried, unless following.
	readRetryMax = 30 * time.Second
)

type consumeCmd struct {
	serverFlag
	Topic     string `arg:"" help:"Name of the topic."`
	Partition int32  `default:"0" placeholder:"N" help:"Partition to read (default ${default})."`
	From      string `default:"earliest" placeholder:"POSITION" help:"Where to begin: earliest, latest, an offset N, or -N for the last N records (default ${default})."`
	Follow    bool   `short:"f" help:"Wait for records to come instead of stopping at the end."`
	Limit     int64  `placeholder:"N" help:"Stop after N records (default: no limit)."`
}

// Help shows examples.
func (consumeCmd) Help() string {
	return `Writes every record's value and LF to standard output, in order. Stops at the end of the partition as it
was at the start. With --follow it goes on until it is interrupted, also across restarts of the broker.

Examples:

    seb consume greetings
    seb consume events --from -10 --follow
    seb consume clicks --partition 3 --from 41 --limit 1`
}

// Run writes records until the end, the limit, an interrupt, or until nobody
// reads its output any more.
func (c *consumeCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	if _, err := seb.ParsePosition(c.From); err != nil {
		return usage(fmt.Errorf("--from: %w", err))
	}
	if c.Limit < 0 {
		return usage(errors.New("--limit must be at least 0"))
	}
	r := &consumer{cmd: c, broker: broker, out: bufio.NewWriterSize(std.out, 64<<10), warn: std.err, end: -1, next: c.From}
	err = r.copyAll(ctx)
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && c.Follow:
		return nil
	case ctx.Err() != nil:
		err = errors.New("interrupted")
	}
	err = fmt.Errorf("consume %s: %w", c.Topic, err)
	if r.written > 0 && !errors.As(err, new(hintError)) {
		err = hinted(err, fmt.Sprintf("%d records were written; go on with --from %s", r.written, r.next))
	}
	return err
}

// consumer is one run of consume.
type consumer struct {
	cmd    *consumeCmd
	broker *client
	out    *bufio.Writer
	warn   io.Writer

	next    string // where to read next: --from, then an offset
	end     int64  // of the partition as first seen; -1 before
	written int64
	body    []byte // buffer of the last answer
}

// fetched is one answer. values are those of sizes, back to back.
type fetched struct {
	first, next, end int64
	sizes, values    []byte
}

func (r *consumer) copyAll(ctx context.Context) error {
	var pause backoff
	var failingSince time.Time
	for {
		f, err := r.fetch(ctx)
		if err == nil {
			pause, failingSince = backoff{}, time.Time{}
			done, err := r.write(f)
			if err != nil || done {
				return err
			}
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if retry, _ := retryable(err); !retry || r.end < 0 {
			return err
		}
		if failingSince.IsZero() {
			failingSince = time.Now()
			note(r.warn, "seb: %v; trying again\n", err)
		}
		if (!r.cmd.Follow && time.Since(failingSince) > readRetryMax) || !pause.wait(ctx, err) {
			return err
		}
	}
}

// write writes what was fetched, and tells whether that was all.
func (r *consumer) write(f fetched) (done bool, err error) {
	if r.end < 0 {
		r.end = f.end
	}
	stop := f.next
	if !r.cmd.Follow {
		stop = min(stop, r.end)
	}
	if r.cmd.Limit > 0 {
		stop = min(stop, f.first+r.cmd.Limit-r.written)
	}
	for offset := f.first; offset < stop; offset++ {
		n := binary.LittleEndian.Uint32(f.sizes)
		if _, err := r.out.Write(f.values[:n]); err != nil {
			return true, fmt.Errorf("write records: %w", err)
		}
		if err := r.out.WriteByte('\n'); err != nil {
			return true, fmt.Errorf("write records: %w", err)
		}
		f.sizes, f.values = f.sizes[4:], f.values[n:]
	}
	if err := r.out.Flush(); err != nil {
		return true, fmt.Errorf("write records: %w", err)
	}
	r.written += max(0, stop-f.first)
	r.next = strconv.FormatInt(max(stop, f.first), 10)
	atLimit := r.cmd.Limit > 0 && r.written >= r.cmd.Limit
	return atLimit || (!r.cmd.Follow && stop >= r.end), nil
}

func (r *consumer) fetch(ctx context.Context) (fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	limit := int64(fetchRecords)
	if r.cmd.Limit > 0 {
		limit = min(limit, r.cmd.Limit-r.written)
	}
	query := url.Values{
		"partition": {strconv.Itoa(int(r.cmd.Partition))},
		"offset":    {r.next},
		"limit":     {strconv.FormatInt(limit, 10)},
		"max_bytes": {strconv.Itoa(fetchBytes)},
	}
	if r.cmd.Follow {
		query.Set("wait", followWait.String())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.broker.url(query, "topics", r.cmd.Topic, "records"), nil)
	if err != nil {
		return fetched{}, err
	}
	req.Header.Set("Accept", batchType)
	res, err := r.broker.do(req)
	if err != nil {
		return fetched{}, err
	}
	defer res.Body.Close()
	if r.body, err = readInto(r.body[:0], io.LimitReader(res.Body, fetchBodyMax)); err != nil {
		return fetched{}, unanswered(r.broker.base, err)
	}
	f, err := parseFetched(res.Header, r.body)
	if err != nil {
		return fetched{}, fmt.Errorf("%s: the answer is not what a broker sends: %w", r.broker.base, err)
	}
	if f.first == f.next && f.next < f.end && !r.cmd.Follow {
		return fetched{}, fmt.Errorf("%s sent no record at offset %d, though the log ends at %d", r.broker.base, f.next, f.end)
	}
	return f, nil
}

// readInto appends all of r to buf.
func readInto(buf []byte, r io.Reader) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}

// parseFetched checks an answer in the compact form: a count, that many sizes
// (uint32, little-endian), and values of these sizes.
func parseFetched(header http.Header, body []byte) (fetched, error) {
	var f fetched
	for name, to := range map[string]*int64{"Seb-Next-Offset": &f.next, "Seb-End-Offset": &f.end} {
		n, err := strconv.ParseInt(header.Get(name), 10, 64)
		if err != nil || n < 0 {
			return f, fmt.Errorf("header %s is %q", name, header.Get(name))
		}
		*to = n
	}
	if len(body) < 4 {
		return f, fmt.Errorf("%d bytes are no batch", len(body))
	}
	count := int64(binary.LittleEndian.Uint32(body))
	if body = body[4:]; int64(len(body)) < 4*count {
		return f, fmt.Errorf("a batch of %d records has %d bytes", count, len(body))
	}
	f.first = f.next - count
	if first := header.Get("Seb-Offset"); f.first < 0 || (count > 0 && first != strconv.FormatInt(f.first, 10)) {
		return f, fmt.Errorf("%d records before offset %d begin at %q", count, f.next, first)
	}
	f.sizes, f.values = body[:4*count], body[4*count:]
	var sum int64
	for rest := f.sizes; len(rest) > 0; rest = rest[4:] {
		sum += int64(binary.LittleEndian.Uint32(rest))
	}
	if sum != int64(len(f.values)) {
		return f, fmt.Errorf("sizes add up to %d bytes, values have %d", sum, len(f.values))
	}
	return f, nil
}
