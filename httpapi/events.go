package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	lastEventIDHeader = "Last-Event-ID"

	// A burst is what a stream reads and sends at a time. A stream that has caught up reads bursts of
	// burstBytesMin, since one commit may wake tens of thousands of streams. A stream that is behind
	// reads larger bursts, of up to burstBytesMax.
	burstBytesMin = 64 << 10
	burstBytesMax = 512 << 10
	// burstRecordBytes limits the number of records in a burst: a burst of up to 64 KiB has up to 128 records.
	burstRecordBytes = 512
)

// eventStream is an answer that goes on until the client leaves, the broker is closed or the
// topic is deleted. Between bursts the stream holds only its connection and an offset
// per partition.
type eventStream struct {
	eventWriter
	topic string
	f     *seb.Follower
	mark  seb.Bookmark // the position after the last record that was written
	bytes int          // how many bytes the next burst may have
	large int64        // memory that the next burst reserves to read one record again, for which there was none; else 0
	// jsonValues says that values which are JSON are sent as JSON.
	jsonValues bool
}

// followRecords answers with a stream of server-sent events, an event per record.
func (h *Handler) followRecords(w *response, r *http.Request) error {
	q, err := parseQuery(r, "partition", "offset", "time", "last_event_id", valuesParameter)
	if err != nil {
		return err
	}
	jsonValues, err := q.jsonValues()
	if err != nil {
		return err
	}
	f, err := h.follower(r, q)
	if err != nil {
		return err
	}
	return h.stream(w, r, f, jsonValues)
}

// stream answers with an event for each record that f reads.
func (h *Handler) stream(w *response, r *http.Request, f *seb.Follower, jsonValues bool) error {
	mark := f.Bookmark()
	w.Header().Add("Vary", lastEventIDHeader)
	w.Header().Set(topicIDHeader, h.broker.TopicTag(mark.Topic))
	s := &eventStream{eventWriter: eventWriter{h: h, w: w, began: time.Now()}, topic: r.PathValue("topic"), f: f, mark: mark, bytes: burstBytesMin, jsonValues: jsonValues}
	s.begin(r)
	if w.head {
		return nil
	}
	h.metrics.streams.Inc()
	defer h.metrics.streams.Dec()
	return s.run(w.clientContext)
}

// follower returns a follower that continues after the last event that the client has received. If the
// request names no such event, the follower begins at the position in the query.
func (h *Handler) follower(r *http.Request, q query) (*seb.Follower, error) {
	partition, err := q.partition(seb.AllPartitions)
	if err != nil {
		return nil, err
	}
	from, err := q.position()
	if err != nil {
		return nil, err
	}
	f, err := h.resumed(r, q, partition)
	if err == nil && f == nil {
		f, err = h.broker.NewFollower(r.Context(), r.PathValue("topic"), partition, from)
	}
	return f, err
}

// resumed returns a follower that continues after the last event that the client has received. It
// returns nil if the request names no such event.
func (h *Handler) resumed(r *http.Request, q query, partition int32) (*seb.Follower, error) {
	// If the request has an event id in the header and in the query, the header wins: a browser that
	// reconnects adds the header, but repeats the query of its first request, so the id in the query is older.
	last := r.Header.Get(lastEventIDHeader)
	if last == "" {
		last = q["last_event_id"]
	}
	if last == "" {
		return nil, nil
	}
	mark, err := seb.ParseBookmark(last)
	if err != nil {
		return nil, invalid("use the id of the last event unchanged, such as 1f0c6a3e.7:41,0,12, or leave it out to start over", "the last event id %.80q is malformed", last)
	}
	if mark.Partition != partition {
		return nil, invalid("use the same partition, or leave the id out to start over",
			"the last event id %.80q is not from a stream of %s", last, nameOf(partition))
	}
	return h.broker.ResumeFollower(r.Context(), r.PathValue("topic"), mark)
}

func nameOf(partition int32) string {
	if partition == seb.AllPartitions {
		return "all partitions"
	}
	return fmt.Sprintf("partition %d alone", partition)
}

// run sends events until the stream has to end. If run returns an error, the connection is cut. A
// client that reconnects continues after the last event that the client has received.
func (s *eventStream) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.h.draining, cancel)()
	if err := s.send(fmt.Appendf(nil, "%sid: %s\n\n", retryLine(), s.mark)); err != nil {
		return err
	}
	for {
		if s.placeWanted(ctx) {
			return s.end()
		}
		ready, err := s.f.Wait(ctx, time.Until(s.comment))
		if ready && err == nil {
			err = s.burst(ctx)
		}
		var e *seb.Error
		switch over := context.Cause(ctx); {
		case seb.CodeOf(over) == seb.CodeUnauthorized:
			return s.fail(over) // the key was revoked or has expired
		case ctx.Err() != nil || seb.CodeOf(err) == seb.CodeBrokerClosed || errors.Is(err, errTooLargeNow):
			return s.end()
		case err != nil && !errors.As(err, &e):
			return err
		case e != nil && e.RetryAfter == 0:
			return s.fail(err)
		case e != nil:
			pause(ctx, e.RetryAfter)
			ready = false
		}
		if !ready {
			if err := s.remark(); err != nil {
				return err
			}
		}
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// errTooLargeNow means that there is no memory now for a record that was read, and that it can't be read again on
// this stream. When the client reconnects, it asks for the record again.
var errTooLargeNow = errors.New("no memory for a large record")

// burst reads and sends some of the records that are ready.
func (s *eventStream) burst(ctx context.Context) error {
	limit := s.bytes / burstRecordBytes
	m := s.h.newAnswerMemory(s.w)
	defer m.free()
	opts := seb.FetchOptions{Limit: limit, MaxBytes: int64(s.bytes), Reserve: m.reserve}
	if s.large > 0 {
		opts.Reserve = func(ctx context.Context, _ int, _ int64) (int, int64, error) {
			return 1, s.large, m.takeWhole(ctx, s.large)
		}
	}
	records, err := s.f.Next(ctx, opts)
	if err != nil {
		return err
	}
	held := heldBytes(records)
	s.large = 0
	if !m.settle(held) {
		return s.readAgain(ctx, held)
	}
	if len(records) == limit || held > int64(s.bytes/2) {
		s.bytes = min(2*s.bytes, burstBytesMax)
	} else {
		s.bytes = burstBytesMin
	}
	return s.sendRecords(records)
}

// readAgain makes the next burst reserve n bytes, and then read again the records that were read last but not sent.
func (s *eventStream) readAgain(ctx context.Context, n int64) error {
	f, err := s.h.broker.ResumeFollower(ctx, s.topic, s.mark)
	if err != nil {
		return errTooLargeNow
	}
	s.f, s.large = f, n
	return nil
}

// sendRecords sends an event for each record. The id of an event is the position after the record.
func (s *eventStream) sendRecords(records []seb.Record) error {
	s.w.sent = progress{}
	out := newChunks(s.w)
	defer out.free()
	out.jsonValues = s.jsonValues
	for i := range records {
		s.mark.Advance(records[i])
		out.text("id: ")
		out.buf, _ = s.mark.AppendText(out.buf) // AppendText never returns an error
		out.text("\ndata: ")
		out.record(&records[i])
		out.text("\n\n")
	}
	if err := out.flush(); err != nil {
		return err
	}
	s.h.metrics.events.Add(float64(len(records)))
	return s.flushed()
}
