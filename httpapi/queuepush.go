package httpapi

import (
	"net/http"
	"net/url"

	"github.com/simple-event-broker/seb"
)

// pushBodyBytesMax bounds a body that describes a push. The push of a queue sends the queue's records to a URL.
const pushBodyBytesMax = 64 << 10

type pushJSON struct {
	URL         string   `json:"url"`
	Headers     []string `json:"headers"` // only the names: the values may be secret
	Secrets     int      `json:"secrets"`
	Secret      string   `json:"secret,omitempty"`
	MaxInFlight int      `json:"max_in_flight"`
	Timeout     string   `json:"timeout"`
	Stopped     *string  `json:"stopped"` // why the push has stopped; null if the push has not stopped
	Blocked     *string  `json:"blocked"` // why the owner may not send to the URL; null if the owner may, or if this broker does not know

	Failing      *string `json:"failing"`       // why the latest request failed; null if it succeeded, or if this broker does not know
	FailingSince *string `json:"failing_since"` // when the first request after the latest success failed
}

// toPushJSON describes a push.
func toPushJSON(p seb.PushInfo, secret string) pushJSON {
	j := pushJSON{URL: p.URL, Headers: p.Headers, Secrets: p.Secrets, Secret: secret, MaxInFlight: p.MaxInFlight, Timeout: p.Timeout.String()}
	if p.Stopped != "" {
		j.Stopped = &p.Stopped
	}
	if p.Blocked != "" {
		j.Blocked = &p.Blocked
	}
	if p.Failing != "" {
		j.Failing, j.FailingSince = &p.Failing, new(p.FailingSince.UTC().Format(timestampLayout))
	}
	return j
}

// writePush answers with a push. secret is the random secret that the broker has just made for a new push. In all
// other cases the caller passes "", and the answer has no secret.
func writePush(w *response, status int, p seb.PushInfo, secret string) error {
	return writeJSON(w, status, toPushJSON(p, secret))
}

// getPush answers with a queue's push. If this broker can reach the queue's owner, the owner answers: only
// the owner knows whether it may send to the URL.
func (h *Handler) getPush(w *response, r *http.Request) error {
	if _, answered, err := h.describe(w, r); answered || err != nil {
		return err
	}
	p, err := h.queue(r).Push(r.Context())
	if err != nil {
		return err
	}
	return writePush(w, http.StatusOK, p, "")
}

// putPush sets a queue's push. If the queue already has a push, putPush changes only the fields that the body
// names.
func (h *Handler) putPush(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	body, err := h.readSpec(w, r, pushBodyBytesMax, specHint)
	if err != nil {
		return err
	}
	u, err := parsePush(body.data)
	body.free()
	if err != nil {
		return err
	}
	p, secret, created, err := h.queue(r).SetPush(r.Context(), u)
	if err != nil {
		return err
	}
	w.did = "pushes the queue to " + hostOf(p.URL)
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return writePush(w, status, p, secret)
}

// hostOf returns a URL without the parts that may be secret.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "an invalid URL"
	}
	return u.Scheme + "://" + u.Host
}

func (h *Handler) deletePush(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	if err := h.queue(r).RemovePush(r.Context()); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h *Handler) resumePush(w *response, r *http.Request) error {
	if err := h.noBody(w, r); err != nil {
		return err
	}
	p, err := h.queue(r).ResumePush(r.Context())
	if err != nil {
		return err
	}
	return writePush(w, http.StatusOK, p, "")
}

// pushInFlightMax is the largest max_in_flight, which limits how many requests of a push are under way at a time.
const pushInFlightMax = 1024

func parsePush(body []byte) (u seb.PushUpdate, err error) {
	err = parseFields(body, "a push", fields{
		{"url", givenTextInto(&u.URL)},
		{"headers", textsInto(&u.Headers)},
		{"secret", givenTextInto(&u.Secret)},
		{"max_in_flight", countInto(&u.MaxInFlight, pushInFlightMax)},
		{"timeout", durationInto(&u.Timeout)},
	})
	return u, err
}
