package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// silenceMax is how long a request waits for a response before the client asks the broker whether it lives, and how
// long the broker has to answer that. A request with less time waits less: see patience.
const silenceMax = 5 * time.Second

var errSilent = errors.New("it does not answer /livez on another connection either")

// silences remember, for all requests together, when each broker responded last, and since when a response is overdue.
// So the client notices a dead broker even if each single call ends too early to notice it.
type silences struct {
	mu    sync.Mutex
	heard map[*url.URL]time.Time // when the broker responded last
	since map[*url.URL]time.Time // when a request should have got a response that has not come; no entry if the broker responded since
}

// hear says that a broker has responded.
func (s *silences) hear(server *url.URL) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard[server] = time.Now()
	delete(s.since, server)
}

// miss says that a request has waited in vain for a response since a time.
func (s *silences) miss(server *url.URL, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.since[server]; !known && s.heard[server].Before(since) && time.Since(since) > 0 {
		s.since[server] = since
	}
}

// of returns how long a broker has kept requests waiting, 0 if it has responded.
func (s *silences) of(server *url.URL) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since, silent := s.since[server]; silent {
		return time.Since(since)
	}
	return 0
}

// heardSince tells whether a broker has responded since a time.
func (s *silences) heardSince(server *url.URL, t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard[server].After(t)
}

// patience returns how long a call with so much time waits for a response before the client asks the broker whether it
// lives, and how long the broker has to answer that. What is left after both is for another broker.
func (c *Client) patience(left time.Duration) (silence, answer time.Duration) {
	short := 2 * c.silence / 5
	switch {
	case left >= 3*c.silence:
		return c.silence, c.silence
	case left >= 3*short:
		return short, short
	default:
		return short / 2, short // longer than a lost packet of a handshake takes, which is sent again after 1 s
	}
}

// watch calls giveUp if the broker at server does not respond in time to a request that may wait for wait, and does
// not answer /livez on another connection either: a process that is stopped, or a host that is gone, must not
// hold up what another broker can do. A broker that is slow, but lives, is waited for. The call ends after left. If it
// ends before the client knows whether the broker lives, the next call to the broker takes its wait into account. If the
// client knows no other broker, watch does nothing. The watch ends with ctx, or when the caller calls stop.
func (c *Client) watch(ctx context.Context, server *url.URL, wait, left time.Duration, giveUp context.CancelCauseFunc) (stop func()) {
	if len(c.servers) == 1 {
		return func() {}
	}
	silence, answer := c.patience(left - wait)
	due := time.Now().Add(wait) // when the broker should have responded
	first := wait + silence
	if before := c.silences.of(server); before > 0 {
		first = min(first, max(0, silence-before))
	}
	watching, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(first, func() {
		for asked := time.Now(); c.lives(watching, server, answer) || c.silences.heardSince(server, asked); asked = time.Now() {
			select {
			case <-time.After(max(c.silence, time.Until(due)+silence)):
			case <-watching.Done():
				return
			}
		}
		c.leave(server) // even if the caller has no time for another try: its next request goes elsewhere
		if watching.Err() == nil {
			giveUp(errSilent)
		}
	})
	return func() {
		timer.Stop()
		cancel()
		if ctx.Err() != nil {
			c.silences.miss(server, due)
		}
	}
}

// lives tells whether anything answers at server within a time. Requests that ask at the same time share one answer,
// which therefore does not depend on the end of ctx.
func (c *Client) lives(ctx context.Context, server *url.URL, within time.Duration) bool {
	_, err, _ := c.probing.Do(within.String()+server.String(), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, urlOf(server, &request{path: []string{"livez"}, outside: true}), nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("User-Agent", c.opts.UserAgent)
		res, err := c.probes.Do(req)
		if err != nil {
			return nil, err
		}
		return nil, res.Body.Close()
	})
	if err == nil {
		c.silences.hear(server)
	}
	return err == nil
}

// leave makes the server after server the one that gets the next request, unless that has happened already.
func (c *Client) leave(server *url.URL) {
	if at := c.current.Load(); c.servers[at] == server {
		c.current.CompareAndSwap(at, (at+1)%int32(len(c.servers)))
	}
}
