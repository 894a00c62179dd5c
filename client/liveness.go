package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"
)

// silenceMax is how long a request waits for a response before the client asks the broker whether it lives, and how
// long the broker has to answer that.
const silenceMax = 5 * time.Second

var errSilent = errors.New("it does not answer /livez on another connection either")

// watch calls giveUp if the broker at server does not respond in time to a request that may wait for wait, and does
// not answer /livez on another connection either: a process that is stopped, or a host that is gone, must not
// hold up what another broker can do. A broker that is slow, but lives, is waited for. If the client knows no other
// broker, watch does nothing. The watch ends with ctx, or when the caller calls stop.
func (c *Client) watch(ctx context.Context, server *url.URL, wait time.Duration, giveUp context.CancelCauseFunc) (stop func()) {
	if len(c.servers) == 1 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(wait+c.silence, func() {
		for c.lives(ctx, server) {
			select {
			case <-time.After(c.silence):
			case <-ctx.Done():
				return
			}
		}
		c.leave(server) // even if the caller has no time for another try: its next request goes elsewhere
		if ctx.Err() == nil {
			giveUp(errSilent)
		}
	})
	return func() {
		timer.Stop()
		cancel()
	}
}

// lives tells whether anything answers at server. Requests that ask at the same time share one answer, which
// therefore does not depend on the end of ctx.
func (c *Client) lives(ctx context.Context, server *url.URL) bool {
	_, err, _ := c.probing.Do(server.String(), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.silence)
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
	return err == nil
}

// leave makes the server after server the one that gets the next request, unless that has happened already.
func (c *Client) leave(server *url.URL) {
	if at := c.current.Load(); c.servers[at] == server {
		c.current.CompareAndSwap(at, (at+1)%int32(len(c.servers)))
	}
}
