package httpapi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/simple-event-broker/seb/internal/httpconn"
)

const (
	// typeEvents is the media type of server-sent events, which the HTML standard defines.
	typeEvents = "text/event-stream"

	// commentInterval is the longest silence of a stream. After it, the broker sends a comment, since a
	// proxy may close a connection without traffic.
	commentInterval = 15 * time.Second

	// A stream that is older than eventStreamTurn ends if a client waits because all connections are in use.
	eventStreamTurn = 5 * time.Minute
)

// eventWriter writes an answer of server-sent events.
type eventWriter struct {
	h       *Handler
	w       *response
	began   time.Time
	comment time.Time // when a comment must be sent, if nothing else is sent before
}

// begin sets the headers that all streams share, and begins the answer.
func (s *eventWriter) begin(r *http.Request) {
	header := s.w.Header()
	header.Set("Content-Type", typeEvents)
	header.Add("Vary", "Accept")
	header.Set("X-Accel-Buffering", "no") // without this header, nginx would buffer events
	if r.ProtoMajor == 1 {
		header.Set("Connection", "close") // the connection closes when the stream ends, so that a client that waits for a connection is served
	}
	s.w.WriteHeader(http.StatusOK)
}

// retryLine returns the line that tells a client how long to wait before it reconnects. The time is random,
// so that clients that are cut off together do not reconnect together.
func retryLine() string {
	return fmt.Sprintf("retry: %d\n", (time.Second + rand.N(2*time.Second)).Milliseconds())
}

// placeWanted tells whether the stream should end because another client waits for a connection.
func (s *eventWriter) placeWanted(ctx context.Context) bool {
	return httpconn.PlaceWanted(ctx) && time.Since(s.began) > eventStreamTurn
}

// remark sends a comment, which clients ignore, if nothing was sent for commentInterval.
func (s *eventWriter) remark() error {
	if time.Until(s.comment) > 0 {
		return nil
	}
	return s.send([]byte(":\n\n"))
}

// send sends b, which must consist of whole lines.
func (s *eventWriter) send(b []byte) error {
	s.w.sent = progress{}
	if _, err := s.w.Write(b); err != nil {
		return fmt.Errorf("write the response: %w", err)
	}
	return s.flushed()
}

// flushed sends the bytes that the server has buffered. After that, the connection has no
// deadline until the next write.
func (s *eventWriter) flushed() error {
	s.comment = time.Now().Add(commentInterval)
	if err := s.w.conn.Flush(); err != nil {
		return fmt.Errorf("write the response: %w", err)
	}
	_ = s.w.conn.SetWriteDeadline(time.Time{}) // the error is ignored: a connection that is closed, or in memory, does not stall
	return nil
}

// fail sends an error event, which says why the stream ends for good.
func (s *eventWriter) fail(err error) error {
	s.w.err = err
	p := problemOf(err)
	p.Outcome = "" // a stream commits nothing for the client
	body, merr := marshal(p)
	if merr != nil {
		panic(merr) // strings and integers always marshal
	}
	if err := s.send(fmt.Appendf(nil, "event: error\ndata: %s\n\n", body)); err != nil {
		return err
	}
	return s.end()
}

// end sets a deadline for the last bytes of the answer, which net/http writes after the action has returned.
func (s *eventWriter) end() error {
	s.w.sent = progress{}
	s.w.extendDeadline()
	return nil
}
