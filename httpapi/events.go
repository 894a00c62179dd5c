package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// typeEvents is that of server-sent events, as the HTML standard defines them.
	typeEvents        = "text/event-stream"
	lastEventIDHeader = "Last-Event-ID"

	// A proxy that sees nothing for a while closes the connection.
	commentInterval = 15 * time.Second

	// What one connection reads at a time: little while it keeps up, since tens of
	// thousands may be woken by one commit, more while it has to catch up.
	burstBytesMin = 64 << 10
	burstBytesMax = 512 << 10
	// burstRecordBytes is how many bytes of a burst allow for one more record in it.
	burstRecordBytes = 512

	// A stream gives way to clients that wait for a connection once it is this old.
	eventStreamTurn = 5 * time.Minute
)

// eventStream is one answer that goes on until its client, the broker or the
// topic goes away. Between bursts of records it holds no more memory than its
// connection and an offset per partition.
type eventStream struct {
	h     *Handler
	w     *response
	f     *seb.Follower
	mark  seb.Bookmark // behind the last record that was written
	bytes int          // of the next burst

	began   time.Time
	comment time.Time // when something must be sent
}

// followRecords answers with a stream of server-sent events, an event per record.
func (h *Handler) followRecords(w *response, r *http.Request) error {
	f, err := h.follower(r)
	if err != nil {
		return err
	}
	return h.stream(w, r, f)
}

// stream answers with what f reads, an event per record.
func (h *Handler) stream(w *response, r *http.Request, f *seb.Follower) error {
	w.Header().Set("Content-Type", typeEvents)
	w.Header().Add("Vary", "Accept, "+lastEventIDHeader)
	mark := f.Bookmark()
	w.Header().Set(topicIDHeader, h.broker.TopicTag(mark.Topic))
	w.Header().Set("X-Accel-Buffering", "no") // else nginx keeps events back
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // its place is free when the stream ends, not idle
	}
	w.WriteHeader(http.StatusOK)
	if w.head {
		return nil
	}
	s := &eventStream{h: h, w: w, f: f, mark: mark, bytes: burstBytesMin, began: time.Now()}
	h.metrics.streams.Inc()
	defer h.metrics.streams.Dec()
	return s.run(w.presence.Context())
}

// follower returns one that goes on behind the last event that the client has
// got, or else begins where the query says.
func (h *Handler) follower(r *http.Request) (*seb.Follower, error) {
	q, err := parseQuery(r, "partition", "offset", "time", "last_event_id")
	if err != nil {
		return nil, err
	}
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

// resumed returns a follower that goes on behind the last event that the client has
// got, nil if it has got none.
func (h *Handler) resumed(r *http.Request, q query, partition int32) (*seb.Follower, error) {
	// The header comes first: a browser that reconnects sends it along with the
	// query that it began with.
	last := r.Header.Get(lastEventIDHeader)
	if last == "" {
		last = q["last_event_id"]
	}
	if last == "" {
		return nil, nil
	}
	mark, err := seb.ParseBookmark(last)
	if err != nil {
		return nil, err
	}
	if mark.Partition != partition {
		return nil, invalid("go on with the same partition, or leave the id out to begin anew",
			"the last event id %.80q is not one of %s", last, nameOf(partition))
	}
	return h.broker.ResumeFollower(r.Context(), r.PathValue("topic"), mark)
}

func nameOf(partition int32) string {
	if partition == seb.AllPartitions {
		return "all partitions"
	}
	return fmt.Sprintf("partition %d alone", partition)
}

// run sends until there is a reason to end. An error that it returns is about the
// connection, which is then cut; whoever reconnects goes on where it was.
func (s *eventStream) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.h.draining, cancel)()
	// Clients that are cut off together should not come back together.
	retry := time.Second + rand.N(2*time.Second)
	err := s.send(fmt.Appendf(nil, "retry: %d\nid: %s\n\n", retry.Milliseconds(), s.mark))
	if err != nil {
		return err
	}
	for {
		if placeWanted(ctx) && time.Since(s.began) > eventStreamTurn {
			return s.end()
		}
		ready, err := s.f.Wait(ctx, time.Until(s.comment))
		if ready && err == nil {
			err = s.burst(ctx)
		}
		var e *seb.Error
		switch over := context.Cause(ctx); {
		case seb.CodeOf(over) == seb.CodeUnauthorized:
			return s.fail(over) // the key was revoked, or its time is up
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
		if !ready && time.Until(s.comment) <= 0 {
			if err := s.send([]byte(":\n\n")); err != nil {
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

// errTooLargeNow says that a record was read for which there is no memory now. It
// is not sent, so the client asks for it again.
var errTooLargeNow = errors.New("no memory to send a large record")

// burst sends some of the records that are there.
func (s *eventStream) burst(ctx context.Context) error {
	limit := s.bytes / burstRecordBytes
	reserved := int64(s.bytes + limit*recordStructBytes)
	release, err := s.h.broker.Reserve(ctx, reserved+chunkBytes)
	if err != nil {
		return err
	}
	defer release()
	records, err := s.f.Next(ctx, seb.FetchOptions{Limit: limit, MaxBytes: int64(s.bytes)})
	if err != nil {
		return err
	}
	held := heldBytes(records)
	if held > reserved {
		// The first record comes whatever its size.
		releaseMore, err := s.h.broker.ReserveMore(ctx, held-reserved)
		if err != nil {
			return errTooLargeNow
		}
		defer releaseMore()
	}
	if len(records) == limit || held > int64(s.bytes/2) {
		s.bytes = min(2*s.bytes, burstBytesMax)
	} else {
		s.bytes = burstBytesMin
	}
	return s.sendRecords(records)
}

// sendRecords sends an event per record, whose id is the place behind it.
func (s *eventStream) sendRecords(records []seb.Record) error {
	s.w.sent = progress{}
	out := newChunks(s.w)
	defer out.free()
	for i := range records {
		s.mark.Advance(records[i])
		out.text("id: ")
		out.buf, _ = s.mark.AppendText(out.buf) // it has no error to return
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

// send sends b, which is whole lines.
func (s *eventStream) send(b []byte) error {
	s.w.sent = progress{}
	if _, err := s.w.Write(b); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return s.flushed()
}

// flushed sends what the server still holds of what was written. After that there
// is no deadline until something is written again.
func (s *eventStream) flushed() error {
	s.comment = time.Now().Add(commentInterval)
	if err := s.w.conn.Flush(); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	_ = s.w.conn.SetWriteDeadline(time.Time{}) // as with writes, where there is none nothing can stall
	return nil
}

// fail sends the reason why the stream ends for good.
func (s *eventStream) fail(err error) error {
	s.w.err = err
	p := problemOf(err)
	p.Outcome = "" // nothing was to be committed
	body, merr := json.Marshal(p)
	if merr != nil {
		panic(merr) // strings and integers always marshal
	}
	if err := s.send(fmt.Appendf(nil, "event: error\ndata: %s\n\n", body)); err != nil {
		return err
	}
	return s.end()
}

// end lets the server write the end of the answer, within the time for a write.
func (s *eventStream) end() error {
	s.w.sent = progress{}
	s.w.extendDeadline()
	return nil
}
