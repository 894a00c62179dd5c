package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	fetchBytes    = 4 << 20
	fetchBytesMin = 64 << 10
	fetchRecords  = 32 << 10
	// The largest answer that is read: an answer with a single record may be larger than fetchBytes.
	fetchBodyMax = 1 << 30
	followWait   = 20 * time.Second

	ndjsonType = "application/x-ndjson"
	// topicIDHeader is the response header with the topic's id. A topic that is created later under the same
	// name has another id.
	topicIDHeader = "Seb-Topic-Id"
)

// fetched is one answer: the records of a partition with the offsets first to next-1. end is the offset after
// the partition's last record. The records are either in sizes and values (each size as uint32,
// little-endian, and the values back to back), or in lines, one line of JSON for each record.
type fetched struct {
	first, next, end int64
	sizes, values    []byte
	lines            []byte
}

// pop removes the first record and returns its value, or its JSON.
func (f *fetched) pop() []byte {
	f.first++
	if len(f.lines) > 0 {
		var line []byte
		line, f.lines, _ = bytes.Cut(f.lines, []byte{'\n'})
		return line
	}
	n := binary.LittleEndian.Uint32(f.sizes)
	value := f.values[:n]
	f.sizes, f.values = f.sizes[4:], f.values[n:]
	return value
}

// fetchSpec is what one read of a partition asks for.
type fetchSpec struct {
	topic       string
	topicID     string // the topic's id, see topicIDHeader
	partition   int32
	from        url.Values // offset or time
	limit       int64
	bytes       int
	wait        time.Duration
	accept      string
	mayFindNone bool // an answer without records is no error, even if the partition has more
}

// fetch sends one read. It reads the answer's bytes into the memory of body, and returns that
// memory, perhaps grown, for the next call.
func (c *client) fetch(ctx context.Context, spec fetchSpec, body []byte) (fetched, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	query := url.Values{
		"topic_id":  {spec.topicID},
		"partition": {strconv.Itoa(int(spec.partition))},
		"limit":     {strconv.FormatInt(min(spec.limit, fetchRecords), 10)},
		"max_bytes": {strconv.Itoa(spec.bytes)},
	}
	for name, value := range spec.from {
		query[name] = value
	}
	if spec.wait > 0 {
		query.Set("wait", spec.wait.String())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url(query, "topics", spec.topic, "records"), nil)
	if err != nil {
		return fetched{}, body, err
	}
	req.Header.Set("Accept", spec.accept)
	res, err := c.do(req)
	if err != nil {
		return fetched{}, body, err
	}
	defer res.Body.Close()
	if body, err = readInto(body[:0], io.LimitReader(res.Body, fetchBodyMax)); err != nil {
		return fetched{}, body, unanswered(c.base, err)
	}
	parse := parseFetched
	if spec.accept == ndjsonType {
		parse = parseFetchedLines
	}
	f, err := parse(res.Header, body)
	if err != nil {
		return fetched{}, body, fmt.Errorf("%s: the response is not what a broker sends: %w", c.base, err)
	}
	if f.first == f.next && f.next < f.end && !spec.mayFindNone {
		return fetched{}, body, fmt.Errorf("%s sent no record at offset %d, though the partition ends at %d", c.base, f.next, f.end)
	}
	return f, body, nil
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

// parseFetched parses and checks an answer in the compact form: the number of records, the size of each
// (uint32, little-endian), and the values.
func parseFetched(header http.Header, body []byte) (fetched, error) {
	f, err := parseOffsets(header)
	if err != nil {
		return f, err
	}
	if len(body) < 4 {
		return f, fmt.Errorf("the response has %d bytes, too few for a batch", len(body))
	}
	count := int64(binary.LittleEndian.Uint32(body))
	if body = body[4:]; int64(len(body)) < 4*count {
		return f, fmt.Errorf("after its count, the response has %d bytes, too few for the sizes of %d records", len(body), count)
	}
	f.first = f.next - count
	if first := header.Get("Seb-Offset"); f.first < 0 || (count > 0 && first != strconv.FormatInt(f.first, 10)) {
		return f, fmt.Errorf("the response has %d records that end before offset %d, but its first offset is %q", count, f.next, first)
	}
	f.sizes, f.values = body[:4*count], body[4*count:]
	var sum int64
	for rest := f.sizes; len(rest) > 0; rest = rest[4:] {
		sum += int64(binary.LittleEndian.Uint32(rest))
	}
	if sum != int64(len(f.values)) {
		return f, fmt.Errorf("the records' sizes add up to %d bytes, but their values have %d bytes", sum, len(f.values))
	}
	return f, nil
}

// parseOffsets reads from the headers of an answer where its records end, and where the partition ends.
func parseOffsets(header http.Header) (f fetched, err error) {
	for name, to := range map[string]*int64{"Seb-Next-Offset": &f.next, "Seb-End-Offset": &f.end} {
		n, err := strconv.ParseInt(header.Get(name), 10, 64)
		if err != nil || n < 0 {
			return f, fmt.Errorf("invalid header %s: %q", name, header.Get(name))
		}
		*to = n
	}
	return f, nil
}

// parseFetchedLines parses and checks an answer with a line of JSON for each record.
func parseFetchedLines(header http.Header, body []byte) (fetched, error) {
	f, err := parseOffsets(header)
	if err != nil {
		return f, err
	}
	f.first = f.next - int64(bytes.Count(body, []byte{'\n'}))
	if len(body) == 0 {
		return f, nil
	}
	if body[len(body)-1] != '\n' {
		return f, fmt.Errorf("the response ends within a record; its last record should be the one before offset %d", f.next)
	}
	var r struct {
		Offset *int64 `json:"offset"`
	}
	line, _, _ := bytes.Cut(body, []byte{'\n'})
	if err := json.Unmarshal(line, &r); err != nil || r.Offset == nil || *r.Offset != f.first || f.first < 0 {
		return f, fmt.Errorf("invalid line for the record at offset %d: %.60q", f.first, line)
	}
	f.lines = body
	return f, nil
}
