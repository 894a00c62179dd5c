package seb

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/engine"
)

// reasonLeaseLost is the reason of a dead letter whose last worker did not answer.
const reasonLeaseLost = "its lease ran out"

// Headers of the copy of a dead letter in a dead-letter topic. They tell where the record comes
// from, and why it became a dead letter. They follow the record's own headers, which may have
// the same names if the dead letter is such a copy itself.
const (
	DeadTopicHeader     = "Seb-Dead-Topic"
	DeadPartitionHeader = "Seb-Dead-Partition"
	DeadOffsetHeader    = "Seb-Dead-Offset"
	DeadTimestampHeader = "Seb-Dead-Timestamp" // timestamp of the record, in the form of RFC 3339
	DeadQueueHeader     = "Seb-Dead-Queue"
	DeadAttemptsHeader  = "Seb-Dead-Attempts"
	DeadReasonHeader    = "Seb-Dead-Reason"
)

// copiesMax is how many dead letters are copied at a time.
const copiesMax = 8

// deadLettering is a record whose last attempt failed.
type deadLettering struct {
	change.DeadLetter
	topicID  TopicID
	copyTo   string // the dead-letter topic; "" if none
	attempts int
}

// deadLetter turns a record into a dead letter. If the queue has a dead-letter topic, the same commit
// appends a copy of the record to that topic. If the copy can never be made, deadLetter logs a warning
// and commits the dead letter without the copy.
func (b *Broker) deadLetter(ctx context.Context, p deadLettering) error {
	if p.copyTo == "" {
		return b.engine.Commit(ctx, &engine.Request{Change: p.DeadLetter, Callers: callersOf(ctx)})
	}
	waits, err := b.deadLetterCopied(ctx, p)
	if err != nil {
		return err
	}
	return waits.Wait(ctx)
}

// deadLetterCopied submits the dead letter together with the copy. No memory is reserved for a copy
// before the copy is submitted, so at most copiesMax calls run at once.
func (b *Broker) deadLetterCopied(ctx context.Context, p deadLettering) (*engine.Ticket, error) {
	timed, cancel := b.engine.UntilLate(ctx)
	defer cancel()
	select {
	case b.copies <- struct{}{}:
		defer func() { <-b.copies }()
	case <-timed.Done():
		return nil, engine.ErrOf(timed)
	}
	r := &engine.Request{Change: p.DeadLetter, Callers: callersOf(ctx)}
	copied, err := b.copyOf(timed, p)
	e, _ := publicError(err)
	switch {
	case timed.Err() != nil:
		return nil, engine.ErrOf(timed)
	case err == nil:
		r.Appends = []*engine.Append{copied}
	case e == nil || e.RetryAfter > 0 || e.Code == CodeCanceled || e.Code == CodeBrokerStopped:
		return nil, err // a retry may succeed: if the dead letter were committed without its copy now, the copy would never be made
	default: // such as a dead-letter topic that can't be created: the record becomes a dead letter without a copy
		b.opts.Logger.Warn("could not copy a dead letter to the dead-letter topic", "topic", p.Topic, "queue", p.Queue,
			"partition", p.Last.Partition, "offset", p.Last.Offset, "dead_letter_topic", p.copyTo, "err", err)
	}
	return b.engine.Submit(ctx, r)
}

// copyOf returns the append of a copy of the record to the dead-letter topic.
func (b *Broker) copyOf(ctx context.Context, p deadLettering) (*engine.Append, error) {
	f, err := b.Fetch(ctx, p.Topic, int32(p.Last.Partition), At(p.Last.Offset), FetchOptions{Limit: 1, MaxBytes: 1, TopicTag: b.TopicTag(p.topicID)})
	if err != nil {
		return nil, err
	}
	if len(f.Records) == 0 {
		return nil, refused(CodeDataLost, "offset %d can't be read", p.Last.Offset)
	}
	record := f.Records[0]
	// The limits are checked without the added headers, so that every record that a client could
	// append can be copied. Only a record that is such a copy itself, with headers from earlier
	// dead-letter topics, may exceed a limit. copyOf refuses such a record. So a record does not go
	// around forever if the dead-letter topics of several queues form a cycle.
	if _, err := b.opts.Limits.checkRecords(f.Records[:1]); err != nil {
		return nil, err
	}
	headers := make([]Header, 0, len(record.Headers)+7)
	headers = append(headers, record.Headers...)
	for _, h := range [][2]string{
		{DeadTopicHeader, p.Topic},
		{DeadPartitionHeader, strconv.Itoa(int(record.Partition))},
		{DeadOffsetHeader, strconv.FormatInt(int64(record.Offset), 10)},
		{DeadTimestampHeader, record.Timestamp.Format(time.RFC3339Nano)},
		{DeadQueueHeader, p.Queue},
		{DeadAttemptsHeader, strconv.Itoa(p.attempts)},
		{DeadReasonHeader, strings.ToValidUTF8(p.Reason, "\uFFFD")},
	} {
		headers = append(headers, Header{Name: h[0], Value: []byte(h[1])})
	}
	record.Headers, record.Timestamp = headers, time.Time{}
	o, rs := newAppendOptions(nil), records{record}
	copied := &engine.Append{
		Topic: p.copyTo, Records: rs, Count: 1, IfEnd: o.IfOffset,
		Bytes: record.bytes() + recordOverheadBytes + int64(len(headers))*headerOverheadBytes,
	}
	return copied, b.route(ctx, copied, rs, o)
}
