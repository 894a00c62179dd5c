package httpapi

import (
	"net/http"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

type queueJSON struct {
	Topic        string          `json:"topic"`
	Name         string          `json:"name"`
	Created      string          `json:"created"`
	Config       queueConfigJSON `json:"config"`
	Ready        int64           `json:"ready"`
	Leased       *int64          `json:"leased"`     // null if this broker is not the owner: Ready then includes leased records
	Held         *int64          `json:"held"`       // records held back, since workers may have got them from an earlier owner; null if this broker is not the owner
	HeldUntil    *string         `json:"held_until"` // null if no records are held
	Delayed      int64           `json:"delayed"`
	Dead         int64           `json:"dead"`
	Oldest       *string         `json:"oldest"` // null if the queue has no unfinished records
	OldestAge    *string         `json:"oldest_age"`
	Received     *float64        `json:"received_per_second"` // null if this broker is not the owner
	Acknowledged *float64        `json:"acknowledged_per_second"`
	Owner        *string         `json:"owner"` // null if this broker knows no address of an owner
	Epoch        uint64          `json:"epoch"`
}

// ownerSelf stands for the owner's address if the broker that answers is the owner and advertises no
// address.
const ownerSelf = "self"

type queueConfigJSON struct {
	Lease           string  `json:"lease"`
	MaxAttempts     int     `json:"max_attempts"`
	Backoff         string  `json:"backoff"`
	DeadLetterTopic *string `json:"dead_letter_topic"`
	Order           string  `json:"order"`
	Paused          bool    `json:"paused"`
}

// toQueueJSON describes a queue. It leaves the dead-letter topic out unless maySee returns true for it.
func toQueueJSON(q *seb.QueueInfo, maySee func(topic string) bool, now time.Time) queueJSON {
	j := queueJSON{
		Topic: q.Topic, Name: q.Name, Created: q.Created.Format(timestampLayout),
		Config: queueConfigJSON{
			Lease: q.Config.Lease.String(), MaxAttempts: q.Config.MaxAttempts,
			Backoff: q.Config.BackoffMin.String() + backoffTo + q.Config.BackoffMax.String(),
			Order:   string(q.Config.Order), Paused: q.Config.Paused,
		},
		Ready: q.Ready, Delayed: q.Delayed, Dead: q.Dead, Epoch: uint64(q.Epoch),
	}
	if q.Config.DeadLetterTopic != "" && maySee(q.Config.DeadLetterTopic) {
		j.Config.DeadLetterTopic = &q.Config.DeadLetterTopic
	}
	if q.Exact {
		j.Leased, j.Held, j.Received, j.Acknowledged = &q.Leased, &q.Held, &q.Received, &q.Acknowledged
	}
	if q.Held > 0 {
		j.HeldUntil = new(q.HeldUntil.Format(timestampLayout))
	}
	if !q.Oldest.IsZero() {
		j.Oldest = new(q.Oldest.Format(timestampLayout))
		j.OldestAge = new(max(0, now.Sub(q.Oldest)).Truncate(time.Millisecond).String())
	}
	switch {
	case q.Owner != "":
		j.Owner = &q.Owner
	case q.Exact:
		j.Owner = new(ownerSelf)
	}
	return j
}

func (h *Handler) queue(r *http.Request) *seb.Queue {
	return h.broker.Queue(r.PathValue("topic"), r.PathValue("queue"))
}

func writeQueue(w *response, status int, q seb.QueueInfo) error {
	return writeJSON(w, status, toQueueJSON(&q, w.access.MaySee, time.Now()))
}

func (h *Handler) listQueues(w *response, r *http.Request) error {
	p, err := parsePage(r)
	if err != nil {
		return err
	}
	return listing[seb.QueueInfo]{
		name: "queues", limit: p.limit, add: func(c *chunks, info *seb.QueueInfo) { c.queue(info, w.access) },
		items: h.broker.Queues(r.Context(), r.PathValue("topic"), seb.ListOptions{After: p.after}),
		next:  func(c *chunks, last *seb.QueueInfo) { c.quoted([]byte(last.Name)) },
	}.write(r.Context(), h, w)
}

// queue writes info as a JSON object, without what the caller may not see.
func (c *chunks) queue(info *seb.QueueInfo, access seb.Access) {
	c.bytes(mustMarshal(toQueueJSON(info, access.MaySee, time.Now())))
}

// getQueue answers with a queue. If this broker can reach the owner, the owner answers: only the owner
// knows, for example, how many records are leased.
func (h *Handler) getQueue(w *response, r *http.Request) error {
	q, answered, err := h.describe(w, r)
	if answered || err != nil {
		return err
	}
	return writeQueue(w, http.StatusOK, q)
}

// describe forwards the request to the queue's owner if this broker can reach the owner. If the owner has
// answered, answered is true. Otherwise q is what this broker knows of the queue.
func (h *Handler) describe(w *response, r *http.Request) (q seb.QueueInfo, answered bool, _ error) {
	if err := refuseHeaders(r.Header, forwardedHeader); err != nil {
		return q, false, err
	}
	if _, err := parseParameters(r); err != nil {
		return q, false, err
	}
	forwarded, err := h.takeForwarded(w, r, h.queue(r))
	if err != nil {
		return q, false, err
	}
	if q, err = h.queue(r).Describe(r.Context()); err != nil {
		return q, false, err
	}
	if !q.Exact && q.Owner != "" && q.Session != (seb.SessionKey{}) && !forwarded {
		owner := &seb.Error{Code: seb.CodeQueueElsewhere, Address: q.Owner, Session: q.Session, Epoch: q.Epoch}
		_, err := h.forward(w, r, owner, ownerCall{queue: h.queue(r), body: func() []byte { return nil }})
		if err == nil || w.status != 0 {
			return q, true, err
		}
	}
	return q, false, nil
}

// readQueueSpec reads the body of a request that creates or changes a queue.
func (h *Handler) readQueueSpec(w *response, r *http.Request) (spec queueSpec, _ error) {
	if _, err := parseQuery(r); err != nil {
		return spec, err
	}
	body, err := h.readSpec(w, r, topicBodyBytesMax, specHint)
	if err != nil {
		return spec, err
	}
	spec, err = parseQueueSpec(body.data)
	body.free()
	if err != nil {
		return spec, err
	}
	if to := spec.update.DeadLetterTopic; to != nil && *to != "" {
		// The broker will append to the dead-letter topic on behalf of the caller, who needs the scope
		// write for that topic.
		return spec, w.access.CheckTopic(seb.ScopeWrite, *to)
	}
	return spec, nil
}

// patchQueue changes the settings of an existing queue that the body names.
func (h *Handler) patchQueue(w *response, r *http.Request) error {
	spec, err := h.readQueueSpec(w, r)
	switch {
	case err != nil:
		return err
	case spec.begins:
		return invalid("leave from out, or delete the queue and create it again", "from says where a new queue begins; it has no effect on an existing queue")
	case spec.update == (seb.QueueUpdate{}):
		return invalid(`name at least one of lease, max_attempts, backoff, dead_letter_topic and paused, such as {"lease":"1m"}`, "the body names nothing to change")
	}
	q, err := h.queue(r).Update(r.Context(), spec.update)
	if err != nil {
		return err
	}
	return writeQueue(w, http.StatusOK, q)
}

// putQueue creates a queue. If the queue exists, putQueue changes only the settings that the body names. With
// If-None-Match: *, it changes nothing.
func (h *Handler) putQueue(w *response, r *http.Request) error {
	mustBeNew, err := onlyCreates(r)
	if err != nil {
		return err
	}
	spec, err := h.readQueueSpec(w, r)
	if err != nil {
		return err
	}
	if mustBeNew {
		q, err := h.queue(r).Create(r.Context(), spec.update, spec.from)
		if err != nil {
			return err
		}
		return writeQueue(w, http.StatusCreated, q)
	}
	q, created, err := h.queue(r).Set(r.Context(), spec.update, spec.from)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return writeQueue(w, status, q)
}

// onlyCreates tells whether the request must not change a queue that exists.
func onlyCreates(r *http.Request) (bool, error) {
	given := r.Header.Values("If-None-Match")
	if len(given) == 0 {
		return false, nil
	}
	if value := strings.Join(given, ", "); value != "*" {
		return false, invalid("send * to create the queue only if it does not exist, or leave the header out", "invalid If-None-Match %.100q", value)
	}
	return true, nil
}

func (h *Handler) deleteQueue(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	if err := h.queue(r).Delete(r.Context()); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h *Handler) pauseQueue(w *response, r *http.Request) error { return h.setPaused(w, r, true) }

func (h *Handler) resumeQueue(w *response, r *http.Request) error { return h.setPaused(w, r, false) }

func (h *Handler) setPaused(w *response, r *http.Request, paused bool) error {
	if err := h.noBody(w, r); err != nil {
		return err
	}
	q, err := h.queue(r).Update(r.Context(), seb.QueueUpdate{Paused: &paused})
	if err != nil {
		return err
	}
	return writeQueue(w, http.StatusOK, q)
}

func (h *Handler) purgeQueue(w *response, r *http.Request) error {
	if err := h.noBody(w, r); err != nil {
		return err
	}
	n, err := h.queue(r).Purge(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Purged int64 `json:"purged"`
	}{n})
}

// noBody refuses query parameters, and a body that is neither empty nor an empty object.
func (h *Handler) noBody(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	body, err := h.readSpec(w, r, topicBodyBytesMax, specHint)
	if err != nil {
		return err
	}
	defer body.free()
	return parseFields(body.data, "the body", nil)
}
