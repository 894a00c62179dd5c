package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	linesType = "application/x-ndjson"

	topicIDHeader     = "Seb-Topic-Id"
	nextOffsetHeader  = "Seb-Next-Offset"
	startOffsetHeader = "Seb-Start-Offset"
	endOffsetHeader   = "Seb-End-Offset"

	fetchWaitMax = 5 * time.Minute // a broker allows no longer wait
	followWait   = 20 * time.Second

	offsetMax = "9223372036854775807" // no partition has a record at this offset
)

// positionQuery adds where to begin to a query. onward is true if the position is made by [seb.AtOrAfter]: the
// API has no such position, so the query names the offset. In the API, a negative offset counts from the end, so
// the query names offsetMax instead, which every partition refuses, too.
func positionQuery(q url.Values, from seb.Position) (onward bool) {
	s := from.String()
	s, onward = strings.CutSuffix(s, " or later")
	switch {
	case onward && strings.HasPrefix(s, "-"):
		q.Set("offset", "0")
	case belowZero(from):
		q.Set("offset", offsetMax)
	case strings.Contains(s, "T"):
		q.Set("time", s)
	default:
		q.Set("offset", s)
	}
	return onward
}

// belowZero tells whether from is a negative offset.
func belowZero(from seb.Position) bool {
	offset, exact := from.Offset()
	return exact && offset < 0
}

// asAsked lets an error about offsetMax name the offset of from, for which it stood.
func asAsked(err error, from seb.Position) error {
	var e *seb.Error
	if belowZero(from) && errors.As(err, &e) {
		e.Detail = strings.ReplaceAll(e.Detail, offsetMax, from.String())
	}
	return err
}

// Fetch does what [seb.Broker.Fetch] does.
func (c *Client) Fetch(ctx context.Context, topic string, partition int32, from seb.Position, opts seb.FetchOptions) (seb.Fetched, error) {
	if err := checkBounds(opts); err != nil {
		return seb.Fetched{}, err
	}
	until := time.Now().Add(opts.Wait)
	for {
		opts.Wait = max(0, time.Until(until))
		f, err := c.fetch(ctx, topic, partition, from, opts)
		if err != nil || len(f.Records) > 0 || time.Until(until) <= 0 {
			return f, err
		}
		from, opts.TopicTag = seb.At(f.Next), f.TopicTag
	}
}

// checkBounds refuses what a broker in the process refuses.
func checkBounds(o seb.FetchOptions) error {
	if o.Limit < 0 || o.MaxBytes < 0 || o.Wait < 0 {
		return invalid(fmt.Sprintf("limit is %d, max_bytes is %d and wait is %v; none may be negative", o.Limit, o.MaxBytes, o.Wait), "")
	}
	return nil
}

// fetch sends one read.
func (c *Client) fetch(ctx context.Context, topic string, partition int32, from seb.Position, opts seb.FetchOptions) (f seb.Fetched, _ error) {
	res, err := c.read(ctx, topic, partition, from, opts, linesType, nil)
	if err != nil {
		return f, err
	}
	return f, fetched(&f, res)
}

// read sends one read, and returns the records in the form of a media type.
func (c *Client) read(ctx context.Context, topic string, partition int32, from seb.Position, opts seb.FetchOptions, mediaType string, into []byte) (*response, error) {
	q := url.Values{"partition": {strconv.Itoa(int(partition))}}
	onward := positionQuery(q, from)
	limit, maxBytes := opts.Limit, opts.MaxBytes
	if opts.Reserve != nil {
		var err error
		if limit, maxBytes, err = opts.Reserve(ctx, limit, maxBytes); err != nil {
			return nil, err
		}
	}
	if limit != 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	if maxBytes != 0 {
		q.Set("max_bytes", strconv.FormatInt(maxBytes, 10))
	}
	wait := min(opts.Wait, fetchWaitMax)
	if wait > 0 {
		q.Set("wait", wait.String())
	}
	if opts.TopicTag != "" {
		q.Set("topic_id", opts.TopicTag)
	}
	r := &request{
		method: http.MethodGet, path: []string{"topics", topic, "records"}, query: q, wait: wait,
		header: http.Header{"Accept": {mediaType}}, into: into,
	}
	res, err := c.send(ctx, r)
	var e *seb.Error
	if onward && errors.As(err, &e) && e.Code == seb.CodeOffsetOutOfRange && e.Start > 0 {
		q.Set("offset", strconv.FormatInt(int64(e.Start), 10))
		return c.send(ctx, r)
	}
	return res, asAsked(err, from)
}

// bounds reads from the headers of a response where its records end, and where the partition does.
func bounds(f *seb.Fetched, res *response) error {
	f.TopicTag = res.header.Get(topicIDHeader)
	for name, to := range map[string]*seb.Offset{nextOffsetHeader: &f.Next, startOffsetHeader: &f.Start, endOffsetHeader: &f.End} {
		n, err := strconv.ParseInt(res.header.Get(name), 10, 64)
		if err != nil || n < 0 {
			return unexpected(res.server, fmt.Errorf("invalid header %s: %q", name, res.header.Get(name)), false)
		}
		*to = seb.Offset(n)
	}
	return nil
}

// fetched reads the response to a read.
func fetched(f *seb.Fetched, res *response) error {
	if err := bounds(f, res); err != nil {
		return err
	}
	f.Records = make([]seb.Record, 0, bytes.Count(res.body, []byte{'\n'}))
	for line := range bytes.Lines(res.body) {
		var j recordJSON
		if err := json.Unmarshal(line, &j); err != nil {
			return unexpected(res.server, err, false)
		}
		f.Records = append(f.Records, j.record())
	}
	if n := len(f.Records); n > 0 && f.Records[n-1].Offset != f.Next-1 {
		return unexpected(res.server, fmt.Errorf("the last record has the offset %d, and the next offset is %d", f.Records[n-1].Offset, f.Next), false)
	}
	return nil
}

// Read does what [seb.Broker.Read] does.
func (c *Client) Read(ctx context.Context, topic string, partition int32, from seb.Position) iter.Seq2[seb.Record, error] {
	return func(yield func(seb.Record, error) bool) {
		end := seb.Offset(-1)
		for opts := (seb.FetchOptions{}); ; {
			f, err := c.Fetch(ctx, topic, partition, from, opts)
			if err != nil {
				yield(seb.Record{}, err)
				return
			}
			if end < 0 {
				end = f.End
			}
			for _, r := range f.Records {
				if r.Offset >= end || !yield(r, nil) {
					return
				}
			}
			if f.Next >= end {
				return
			}
			from, opts.TopicTag = seb.At(f.Next), f.TopicTag
		}
	}
}

// Follow does what [seb.Broker.Follow] does.
func (c *Client) Follow(ctx context.Context, topic string, partition int32, from seb.Position) iter.Seq2[seb.Record, error] {
	return func(yield func(seb.Record, error) bool) {
		for opts := (seb.FetchOptions{Wait: followWait}); ; {
			f, err := c.Fetch(ctx, topic, partition, from, opts)
			if err != nil {
				yield(seb.Record{}, err)
				return
			}
			for _, r := range f.Records {
				if !yield(r, nil) {
					return
				}
			}
			from, opts.TopicTag = seb.At(f.Next), f.TopicTag
		}
	}
}
