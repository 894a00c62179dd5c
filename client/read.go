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

// positionQuery adds where to begin to a query. onward is true for a position of [seb.AtOrAfter]. The API has no such
// position: the query names the offset, or 0 if the offset is negative. Any other negative offset would count from the
// end in the API: so the query names offsetMax instead, an offset that every partition refuses.
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

// asAsked puts the negative offset of from into an error that names offsetMax instead: see positionQuery.
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

// checkBounds refuses negative bounds, as [seb.Broker.Fetch] does.
func checkBounds(o seb.FetchOptions) error {
	if o.Limit < 0 || o.MaxBytes < 0 || o.Wait < 0 {
		return invalid(fmt.Sprintf("limit is %d, max_bytes is %d and wait is %v; none may be negative", o.Limit, o.MaxBytes, o.Wait), "")
	}
	return nil
}

// fetch sends one read.
func (c *Client) fetch(ctx context.Context, topic string, partition int32, from seb.Position, opts seb.FetchOptions) (f seb.Fetched, _ error) {
	res, asked, err := c.read(ctx, topic, partition, from, opts, linesType, nil)
	if err != nil {
		return f, err
	}
	if err := bounds(&f, res); err != nil {
		return f, err
	}
	if f.Records, err = recordsOf(res.body, partition); err == nil {
		err = checkRecords(&f, asked)
	}
	if err != nil {
		f.Records = nil
		return f, unexpected(res.server, err, false)
	}
	return f, nil
}

// recordsOf reads records of a partition, one in each line.
func recordsOf(body []byte, partition int32) ([]seb.Record, error) {
	rs := make([]seb.Record, 0, bytes.Count(body, []byte{'\n'}))
	for line := range bytes.Lines(body) {
		var j recordJSON
		if err := json.Unmarshal(line, &j); err != nil {
			return nil, err
		}
		if j.Partition != partition {
			return nil, fmt.Errorf("it has a record of partition %d", j.Partition)
		}
		rs = append(rs, j.record())
	}
	return rs, nil
}

// checkRecords returns an error unless f has the records that follow each other up to Next, from the asked position on.
func checkRecords(f *seb.Fetched, asked string) error {
	first := f.Next - seb.Offset(len(f.Records))
	for i, r := range f.Records {
		if want := first + seb.Offset(i); r.Offset != want {
			return fmt.Errorf("record %d of %d before offset %d has the offset %d, not %d", i+1, len(f.Records), f.Next, r.Offset, want)
		}
	}
	return checkFirst(f, asked, first)
}

// checkFirst returns an error if the records of a response can't begin at the offset first, since some are left out or
// come twice. asked is the offset in the query; "" if the read begins at a time. A response without records begins
// at Next, and is legal only at the end of the partition.
//
// A read from an offset begins there. From earliest and from -N on, records may be deleted before they are read, but the
// response then has a start that is at least as late.
func checkFirst(f *seb.Fetched, asked string, first seb.Offset) error {
	n, err := strconv.ParseInt(asked, 10, 64)
	latest := f.End
	switch {
	case first < 0 || f.Next > f.End:
		return fmt.Errorf("its records end before offset %d, but the partition at %d", f.Next, f.End)
	case first == f.Next && f.Next < f.End:
		return fmt.Errorf("it has no records, although the partition has records from %d to %d", f.Next, f.End)
	case asked == "earliest":
		latest = f.Start
	case err == nil && strings.HasPrefix(asked, "-"):
		latest = max(f.Start, f.End+seb.Offset(n))
	case err == nil && first != seb.Offset(n):
		return fmt.Errorf("it begins at offset %d, not at %d", first, n)
	}
	if first > latest {
		return fmt.Errorf("it begins at offset %d, but should begin at %d, or earlier", first, latest)
	}
	return nil
}

// read sends one read, and returns the records in the form of a media type, and the offset in the query; "" if the read
// begins at a time.
func (c *Client) read(ctx context.Context, topic string, partition int32, from seb.Position, opts seb.FetchOptions, mediaType string, into []byte) (_ *response, asked string, _ error) {
	q := url.Values{"partition": {strconv.Itoa(int(partition))}}
	onward := positionQuery(q, from)
	limit, maxBytes := opts.Limit, opts.MaxBytes
	if opts.Reserve != nil {
		var err error
		if limit, maxBytes, err = opts.Reserve(ctx, limit, maxBytes); err != nil {
			return nil, "", err
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
		res, err = c.send(ctx, r)
	}
	return res, q.Get("offset"), asAsked(err, from)
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
