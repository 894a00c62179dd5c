package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/httprecord"
	"github.com/simple-event-broker/seb/internal/option"
)

const (
	batchType   = "application/vnd.seb.batch"
	recordsType = "application/vnd.seb.records+json"

	idempotencyHeader = "Idempotency-Key"
	replayedHeader    = "Idempotency-Replayed"
)

// appendedJSON is the result of an append as brokers write it.
type appendedJSON struct {
	Topic  string      `json:"topic"`
	Count  int         `json:"count"`
	Ranges []seb.Range `json:"ranges"`
}

// check returns an error unless the answer says where count records of the topic are. If count is negative, any number
// of records will do, but at least one.
func (j *appendedJSON) check(topic string, count int) error {
	if count < 0 {
		count = max(1, j.Count)
	}
	sum := int64(0)
	for _, r := range j.Ranges {
		if r.Partition < 0 || r.Offset < 0 || r.Count < 1 {
			return fmt.Errorf("invalid range of %d records from offset %d of partition %d on", r.Count, r.Offset, r.Partition)
		}
		sum += int64(r.Count)
	}
	if j.Count != count || sum != int64(count) {
		return fmt.Errorf("it has a count of %d, and ranges of %d records, for %d records", j.Count, sum, count)
	}
	return names("topic", j.Topic, topic)
}

func (j appendedJSON) appended(replayed bool) seb.Appended {
	return seb.Appended{Topic: j.Topic, Count: j.Count, Ranges: j.Ranges, Replayed: replayed}
}

// Append does what [seb.Broker.Append] does.
func (c *Client) Append(ctx context.Context, topic string, records []seb.Record, opts ...seb.AppendOption) (seb.Appended, error) {
	o := option.OfAppend(opts)
	if o.Partitions != nil && len(o.Partitions) != len(records) {
		return seb.Appended{}, refusedWrite("%d partitions are given for %d records: give one partition for each record", len(o.Partitions), len(records))
	}
	if err := checkPartitions(topic, o); err != nil {
		return seb.Appended{}, err
	}
	if err := checkHeaders(records); err != nil {
		return seb.Appended{}, err
	}
	r := newAppend(topic, o)
	if o.Partitions == nil && plain(records) {
		r.header.Set("Content-Type", batchType)
		if at := records[0].Timestamp; !at.IsZero() {
			r.header.Set("Seb-Timestamp", at.UTC().Format(time.RFC3339Nano))
		}
		r.body = batchOf(records)
	} else {
		r.header.Set("Content-Type", recordsType)
		r.body = []byte(`{"records":`)
		r.body = append(appendRecords(r.body, records, o), '}')
	}
	return c.sendAppend(ctx, topic, len(records), r, o)
}

// checkPartitions refuses negative partitions other than -1, for which the broker chooses a partition.
func checkPartitions(topic string, o option.Append) *seb.Error {
	p := o.Partition
	for _, of := range o.Partitions {
		p = min(p, of)
	}
	if p < -1 {
		return &seb.Error{Code: seb.CodePartitionNotFound, Detail: fmt.Sprintf("topic %q has no partition %d", topic, p), Outcome: seb.NotCommitted}
	}
	return nil
}

// checkHeaders refuses headers whose names are not UTF-8: in the HTTP API, names are texts in JSON, which would change them.
func checkHeaders(records []seb.Record) *seb.Error {
	for i := range records {
		for _, h := range records[i].Headers {
			if !utf8.ValidString(h.Name) {
				return refusedWrite("record %d has a header with the name %.80q, which is not UTF-8: the HTTP API can't carry such names", i, h.Name)
			}
		}
	}
	return nil
}

// checkText refuses a text that is not UTF-8: in JSON it would become another text.
func checkText(what string, texts ...string) error {
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return refusedWrite("the %s is not UTF-8: the HTTP API can't carry it", what)
		}
	}
	return nil
}

// newAppend returns the request for an append with the options o, without its records.
func newAppend(topic string, o option.Append) *request {
	r := &request{
		method: http.MethodPost, path: []string{"topics", topic, "records"}, query: url.Values{}, header: http.Header{}, writes: true,
	}
	if o.Partition >= 0 {
		r.query.Set("partition", strconv.Itoa(int(o.Partition)))
	}
	if o.Conditional {
		r.query.Set("if_offset", strconv.FormatInt(int64(o.IfOffset), 10))
	}
	if o.Delay != 0 {
		r.header.Set("Seb-Delay", o.Delay.String())
	}
	if !o.Due.IsZero() {
		r.header.Set("Seb-Deliver-At", o.Due.UTC().Format(time.RFC3339Nano))
	}
	return r
}

// sendAppend sends r, which appends count records to a topic, and returns what was appended. A negative count stands
// for any number.
func (c *Client) sendAppend(ctx context.Context, topic string, count int, r *request, o option.Append) (seb.Appended, error) {
	res, err := c.sendKeyed(ctx, r, o)
	if err != nil {
		return seb.Appended{}, err
	}
	var j appendedJSON
	if err := res.decode(&j, func() error { return j.check(topic, count) }); err != nil {
		return seb.Appended{}, err
	}
	return j.appended(res.header.Get(replayedHeader) == "true"), nil
}

// sendKeyed sends an append or a commit with an idempotency key: the one in o, or else a new one, unless the
// client makes none.
func (c *Client) sendKeyed(ctx context.Context, r *request, o option.Append) (*response, error) {
	key := o.Key
	switch {
	case o.Keyed && !httprecord.Fits(key):
		return nil, refusedWrite("the idempotency key %.80q has characters that an HTTP header can't have", key)
	case !o.Keyed && c.opts.NoIdempotencyKeys:
		return c.send(ctx, r)
	case !o.Keyed:
		key, r.final = rand.Text(), seb.CodeIdempotencyKeysFull
	}
	r.header.Set(idempotencyHeader, key)
	r.repeatable = true
	res, err := c.send(ctx, r)
	if o.Keyed || seb.CodeOf(err) != seb.CodeIdempotencyKeysFull || seb.OutcomeOf(err) != seb.NotCommitted {
		return res, err
	}
	// The log has room for no further key, and has refused the write. The caller asked for no key.
	r.header.Del(idempotencyHeader)
	r.repeatable = false
	return c.send(ctx, r)
}

// plain tells whether the compact form can carry the records: it has values only, and one time for all.
func plain(records []seb.Record) bool {
	for i := range records {
		if r := &records[i]; r.Key != nil || len(r.Headers) > 0 || !r.Timestamp.Equal(records[0].Timestamp) {
			return false
		}
	}
	return len(records) > 0
}

// batchOf returns records in the compact form: their count, their sizes (uint32, little-endian) and their
// values.
func batchOf(records []seb.Record) []byte {
	size := 4 + 4*len(records)
	for i := range records {
		size += len(records[i].Value)
	}
	b := make([]byte, 0, size)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(records)))
	for i := range records {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(records[i].Value)))
	}
	for i := range records {
		b = append(b, records[i].Value...)
	}
	return b
}

// appendRecords appends a list of records in JSON.
func appendRecords(b []byte, records []seb.Record, o option.Append) []byte {
	b = append(b, '[')
	for i := range records {
		if i > 0 {
			b = append(b, ',')
		}
		partition := int32(-1)
		if o.Partitions != nil {
			partition = o.Partitions[i]
		}
		b = appendRecord(b, &records[i], partition)
	}
	return append(b, ']')
}
