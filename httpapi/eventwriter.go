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
	// typeEvents is that of server-sent events, as the HTML standard defines them.
	typeEvents = "text/event-stream"

	// A proxy that sees nothing for a while closes the connection.
	commentInterval = 15 * time.Second

	// A stream gives way to clients that wait for a connection once it is this old.
	eventStreamTurn = 5 * time.Minute
)

// eventWriter writes an answer of server-sent events that goes on until somebody goes away.
type eventWriter struct {
	h       *Handler
	w       *response
	began   time.Time
	comment time.Time // when something must be sent
}

// begin sets what is the same in the headers of all streams, and begins the answer.
func (s *eventWriter) begin(r *http.Request) {
	header := s.w.Header()
	header.Set("Content-Type", typeEvents)
	header.Add("Vary", "Accept")
	header.Set("X-Accel-Buffering", "no") // else nginx keeps events back
	if r.ProtoMajor == 1 {
		header.Set("Connection", "close") // its place is free when the stream ends, not idle
	}
	s.w.WriteHeader(http.StatusOK)
}

// retryLine says after what time to come back: clients that are cut off together should
// not come back together.
func retryLine() string {
	return fmt.Sprintf("retry: %d\n", (time.Second + rand.N(2*time.Second)).Milliseconds())
}

// placeWanted tells whether it is time to give way to a client that waits for a connection.
func (s *eventWriter) placeWanted(ctx context.Context) bool {
	return httpconn.PlaceWanted(ctx) && time.Since(s.began) > eventStreamTurn
}

// remark sends a comment if nothing else was sent for long.
func (s *eventWriter) remark() error {
	if time.Until(s.comment) > 0 {
		return nil
	}
	return s.send([]byte(":\n\n"))
}

// send sends b, which is whole lines.
func (s *eventWriter) send(b []byte) error {
	s.w.sent = progress{}
	if _, err := s.w.Write(b); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return s.flushed()
}

// flushed sends what the server still holds of what was written. After that there
// is no deadline until something is written again.
func (s *eventWriter) flushed() error {
	s.comment = time.Now().Add(commentInterval)
	if err := s.w.conn.Flush(); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	_ = s.w.conn.SetWriteDeadline(time.Time{}) // as with writes: a connection without deadlines can't stall
	return nil
}

// fail sends the reason why the stream ends for good.
func (s *eventWriter) fail(err error) error {
	s.w.err = err
	p := problemOf(err)
	p.Outcome = "" // nothing was to be committed
	body, merr := marshal(p)
	if merr != nil {
		panic(merr) // strings and integers always marshal
	}
	if err := s.send(fmt.Appendf(nil, "event: error\ndata: %s\n\n", body)); err != nil {
		return err
	}
	return s.end()
}

// end lets the server write the end of the answer, within the time for a write.
func (s *eventWriter) end() error {
	s.w.sent = progress{}
	s.w.extendDeadline()
	return nil
}
