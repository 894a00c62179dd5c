package client

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/simple-event-broker/seb"
)

// pushJSON is a push target as brokers write it.
type pushJSON struct {
	URL         string   `json:"url"`
	Headers     []string `json:"headers"`
	Secrets     int      `json:"secrets"`
	Secret      string   `json:"secret"`
	MaxInFlight int      `json:"max_in_flight"`
	Timeout     duration `json:"timeout"`
	Stopped     string   `json:"stopped"`
	Blocked     string   `json:"blocked"`

	Failing      string    `json:"failing"`
	FailingSince time.Time `json:"failing_since"`
}

// push sends r, and returns the push target in the response.
func (q *remoteQueue) push(ctx context.Context, r *request) (seb.PushInfo, string, int, error) {
	var j pushJSON
	res, err := q.call(ctx, r, &j, func() error {
		if j.URL == "" {
			return errors.New("it has no url")
		}
		return nil
	})
	if err != nil {
		return seb.PushInfo{}, "", 0, err
	}
	return seb.PushInfo{
		URL: j.URL, Headers: j.Headers, Secrets: j.Secrets, MaxInFlight: j.MaxInFlight,
		Timeout: time.Duration(j.Timeout), Stopped: j.Stopped, Blocked: j.Blocked, Failing: j.Failing, FailingSince: j.FailingSince,
	}, j.Secret, res.status, nil
}

// Push does what [seb.Queue.Push] does.
func (q *remoteQueue) Push(ctx context.Context) (seb.PushInfo, error) {
	info, _, _, err := q.push(ctx, &request{method: http.MethodGet, path: q.path("push")})
	return info, err
}

// SetPush does what [seb.Queue.SetPush] does.
func (q *remoteQueue) SetPush(ctx context.Context, u seb.PushUpdate) (info seb.PushInfo, secret string, created bool, err error) {
	for name, value := range u.Headers {
		if err := checkText("name or the value of a header", name, value); err != nil {
			return info, "", false, err
		}
	}
	if err := checkText("URL or the secret", text(u.URL), text(u.Secret)); err != nil {
		return info, "", false, err
	}
	m := map[string]any{}
	if u.URL != nil {
		m["url"] = *u.URL
	}
	if u.Headers != nil {
		m["headers"] = u.Headers
	}
	if u.Secret != nil {
		m["secret"] = *u.Secret
	}
	if u.MaxInFlight != nil {
		m["max_in_flight"] = *u.MaxInFlight
	}
	if u.Timeout != nil {
		m["timeout"] = u.Timeout.String()
	}
	info, secret, status, err := q.push(ctx, &request{method: http.MethodPut, path: q.path("push"), body: jsonBody(m), writes: true})
	return info, secret, status == http.StatusCreated, err
}

// ResumePush does what [seb.Queue.ResumePush] does.
func (q *remoteQueue) ResumePush(ctx context.Context) (seb.PushInfo, error) {
	info, _, _, err := q.push(ctx, &request{method: http.MethodPost, path: q.path("push", "resume"), writes: true, repeatable: true})
	return info, err
}

// RemovePush does what [seb.Queue.RemovePush] does.
func (q *remoteQueue) RemovePush(ctx context.Context) error {
	_, err := q.client.send(ctx, &request{method: http.MethodDelete, path: q.path("push"), writes: true, bare: true})
	return err
}
