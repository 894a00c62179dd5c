package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

// queueJSON is a queue as brokers write it.
type queueJSON struct {
	Topic   string    `json:"topic"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Config  struct {
		Lease           duration       `json:"lease"`
		MaxAttempts     int            `json:"max_attempts"`
		Backoff         string         `json:"backoff"`
		DeadLetterTopic string         `json:"dead_letter_topic"`
		Order           seb.QueueOrder `json:"order"`
		Paused          bool           `json:"paused"`
	} `json:"config"`
	Ready        int64     `json:"ready"`
	Leased       *int64    `json:"leased"`
	Held         int64     `json:"held"`
	HeldUntil    time.Time `json:"held_until"`
	Delayed      int64     `json:"delayed"`
	Dead         int64     `json:"dead"`
	Oldest       time.Time `json:"oldest"`
	Received     float64   `json:"received_per_second"`
	Acknowledged float64   `json:"acknowledged_per_second"`
	Owner        string    `json:"owner"`
	Epoch        seb.Epoch `json:"epoch"`
}

// backoffTo separates the shortest and the longest wait of a queue's backoff.
const backoffTo = ".."

// info returns the queue. A null in JSON leaves the field's zero value.
func (j *queueJSON) info() (seb.QueueInfo, error) {
	info := seb.QueueInfo{
		Topic: j.Topic, Name: j.Name, Created: j.Created,
		Config: seb.QueueConfig{
			Lease: time.Duration(j.Config.Lease), MaxAttempts: j.Config.MaxAttempts,
			DeadLetterTopic: j.Config.DeadLetterTopic, Order: j.Config.Order, Paused: j.Config.Paused,
		},
		Ready: j.Ready, Delayed: j.Delayed, Dead: j.Dead, Held: j.Held, HeldUntil: j.HeldUntil,
		Exact: j.Leased != nil, Oldest: j.Oldest, Owner: j.Owner, Epoch: j.Epoch,
		Received: j.Received, Acknowledged: j.Acknowledged,
	}
	if j.Leased != nil {
		info.Leased = *j.Leased
	}
	least, most, _ := strings.Cut(j.Config.Backoff, backoffTo)
	var errs [2]error
	info.Config.BackoffMin, errs[0] = time.ParseDuration(least)
	info.Config.BackoffMax, errs[1] = time.ParseDuration(most)
	if errors.Join(errs[:]...) != nil {
		return info, fmt.Errorf("invalid backoff %q", j.Config.Backoff)
	}
	return info, nil
}

// remoteQueue is a [Queue] of a client.
type remoteQueue struct {
	client      *Client
	topic, name string
}

// Queue returns the topic's queue of that name, whether it exists or not.
func (c *Client) Queue(topic, name string) Queue { return &remoteQueue{c, topic, name} }

// Queues does what [seb.Broker.Queues] does. It ignores o.Reserve.
func (c *Client) Queues(ctx context.Context, topic string, o seb.ListOptions) iter.Seq2[seb.QueueInfo, error] {
	type page struct {
		Items []queueJSON `json:"queues"`
		Next  *string     `json:"next"`
	}
	return list(ctx, c, []string{"topics", topic, "queues"}, o.After, func(res *response) (qs []seb.QueueInfo, next string, err error) {
		var p page
		if err := res.decode(&p, func() error { return lists("queues", p.Items) }); err != nil {
			return nil, "", err
		}
		for i := range p.Items {
			info, err := p.Items[i].info()
			if err != nil {
				return nil, "", unexpected(res.server, err, false)
			}
			if o.May == nil || o.May(info.Name) {
				qs = append(qs, info)
			}
		}
		return qs, text(p.Next), nil
	})
}

func (q *remoteQueue) path(more ...string) []string {
	return slices.Concat([]string{"topics", q.topic, "queues", q.name}, more)
}

// call sends a request about the queue. It decodes the response into answer, and then calls check: see
// [response.decode].
func (q *remoteQueue) call(ctx context.Context, r *request, answer any, check func() error) (*response, error) {
	res, err := q.client.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return res, res.decode(answer, check)
}

// describe sends r, and returns the queue in the response.
func (q *remoteQueue) describe(ctx context.Context, r *request) (seb.QueueInfo, int, error) {
	var j queueJSON
	res, err := q.call(ctx, r, &j, func() error {
		return errors.Join(names("topic", j.Topic, q.topic), names("name", j.Name, q.name))
	})
	if err != nil {
		return seb.QueueInfo{}, 0, err
	}
	info, err := j.info()
	if err != nil {
		return seb.QueueInfo{}, 0, unexpected(res.server, err, r.writes)
	}
	return info, res.status, nil
}

// Describe does what [seb.Queue.Describe] does.
func (q *remoteQueue) Describe(ctx context.Context) (seb.QueueInfo, error) {
	info, _, err := q.describe(ctx, &request{method: http.MethodGet, path: q.path()})
	return info, err
}

// spec returns the settings of u as the API takes them. The API takes the two waits of a backoff together.
func spec(u seb.QueueUpdate, backoffMin, backoffMax time.Duration) map[string]any {
	m := map[string]any{}
	if u.Lease != nil {
		m["lease"] = u.Lease.String()
	}
	if u.MaxAttempts != nil {
		m["max_attempts"] = *u.MaxAttempts
	}
	if u.BackoffMin != nil || u.BackoffMax != nil {
		if u.BackoffMin != nil {
			backoffMin = *u.BackoffMin
		}
		if u.BackoffMax != nil {
			backoffMax = *u.BackoffMax
		}
		m["backoff"] = backoffMin.String() + backoffTo + backoffMax.String()
	}
	switch {
	case u.DeadLetterTopic == nil:
	case *u.DeadLetterTopic == "":
		m["dead_letter_topic"] = nil
	default:
		m["dead_letter_topic"] = *u.DeadLetterTopic
	}
	if u.Order != nil {
		m["order"] = *u.Order
	}
	if u.Paused != nil {
		m["paused"] = *u.Paused
	}
	return m
}

// waits returns the waits of the queue's backoff now, if u changes only one of them. Its errors are those of a write
// that was not sent.
func (q *remoteQueue) waits(ctx context.Context, u seb.QueueUpdate) (least, most time.Duration, err error) {
	least, most = seb.QueueBackoffMinDefault, seb.QueueBackoffMaxDefault
	if (u.BackoffMin == nil) == (u.BackoffMax == nil) {
		return least, most, nil
	}
	info, err := q.Describe(ctx)
	switch seb.CodeOf(err) {
	case "":
		return info.Config.BackoffMin, info.Config.BackoffMax, nil
	case seb.CodeQueueNotFound, seb.CodeTopicNotFound: // a new queue has the defaults
		return least, most, nil
	default:
		return least, most, notSent(err)
	}
}

// Set does what [seb.Queue.Set] does.
func (q *remoteQueue) Set(ctx context.Context, u seb.QueueUpdate, from seb.Position) (info seb.QueueInfo, created bool, err error) {
	return q.put(ctx, u, from, nil)
}

// Create does what [seb.Queue.Create] does.
func (q *remoteQueue) Create(ctx context.Context, u seb.QueueUpdate, from seb.Position) (seb.QueueInfo, error) {
	info, _, err := q.put(ctx, u, from, http.Header{"If-None-Match": {"*"}})
	return info, err
}

func (q *remoteQueue) put(ctx context.Context, u seb.QueueUpdate, from seb.Position, header http.Header) (info seb.QueueInfo, created bool, err error) {
	least, most, err := q.waits(ctx, u)
	if err != nil {
		return info, false, err
	}
	m := spec(u, least, most)
	offset, ok := from.Offset()
	switch {
	case from == seb.Earliest, from == seb.Latest:
		m["from"] = from.String()
	case ok:
		m["from"] = map[string]seb.Offset{"offset": offset}
	default:
		return info, false, refusedWrite("a queue can't begin at %s: use Earliest, Latest or At", from)
	}
	info, status, err := q.describe(ctx, &request{method: http.MethodPut, path: q.path(), header: header, body: jsonBody(m), writes: true})
	return info, status == http.StatusCreated, err
}

// Update does what [seb.Queue.Update] does.
func (q *remoteQueue) Update(ctx context.Context, u seb.QueueUpdate) (seb.QueueInfo, error) {
	least, most, err := q.waits(ctx, u)
	if err != nil {
		return seb.QueueInfo{}, err
	}
	info, _, err := q.describe(ctx, &request{method: http.MethodPatch, path: q.path(), body: jsonBody(spec(u, least, most)), writes: true})
	return info, err
}

// Delete does what [seb.Queue.Delete] does.
func (q *remoteQueue) Delete(ctx context.Context) error {
	_, err := q.client.send(ctx, &request{method: http.MethodDelete, path: q.path(), writes: true, bare: true})
	return err
}

// Purge does what [seb.Queue.Purge] does.
func (q *remoteQueue) Purge(ctx context.Context) (int64, error) {
	var answer struct {
		Purged int64 `json:"purged"`
	}
	answer.Purged = -1
	_, err := q.call(ctx, &request{method: http.MethodPost, path: q.path("purge"), writes: true}, &answer, func() error {
		if answer.Purged < 0 {
			return errors.New("it does not say how many records were purged")
		}
		return nil
	})
	return max(0, answer.Purged), err
}

// Dead does what [seb.Queue.Dead] does. It ignores o.MaxBytes: a broker returns about 1 MiB.
func (q *remoteQueue) Dead(ctx context.Context, o seb.DeadOptions) (dead []seb.DeadMessage, next seb.Place, more bool, err error) {
	query := url.Values{}
	if o.From != (seb.Place{}) {
		query.Set("next", fmt.Sprintf("%d:%d", o.From.Partition, o.From.Offset))
	}
	if o.Limit != 0 {
		query.Set("limit", strconv.Itoa(o.Limit))
	}
	var answer struct {
		Messages []struct {
			recordJSON
			Attempts int       `json:"attempts"`
			Reason   string    `json:"reason"`
			Parked   time.Time `json:"parked"`
		} `json:"messages"`
		Next *string `json:"next"`
	}
	res, err := q.call(ctx, &request{method: http.MethodGet, path: q.path("dead"), query: query}, &answer, func() error {
		return lists("messages", answer.Messages)
	})
	if err != nil {
		return nil, next, false, err
	}
	for _, m := range answer.Messages {
		dead = append(dead, seb.DeadMessage{Record: m.record(), Attempts: m.Attempts, Reason: m.Reason, Parked: m.Parked})
	}
	if answer.Next == nil {
		return dead, next, false, nil
	}
	if _, err := fmt.Sscanf(*answer.Next, "%d:%d", &next.Partition, &next.Offset); err != nil {
		return nil, seb.Place{}, false, unexpected(res.server, fmt.Errorf("invalid next %q", *answer.Next), false)
	}
	return dead, next, true, nil
}

// Redrive does what [seb.Queue.Redrive] does.
func (q *remoteQueue) Redrive(ctx context.Context, o seb.RedriveOptions) (seb.Redriven, error) {
	m := map[string]any{}
	if len(o.Places) > 0 {
		type place struct {
			Partition int32      `json:"partition"`
			Offset    seb.Offset `json:"offset"`
		}
		places := make([]place, len(o.Places))
		for i, p := range o.Places {
			places[i] = place(p)
		}
		m["records"] = places
	} else if o.Limit != 0 {
		m["limit"] = o.Limit
	}
	var answer struct {
		Redriven  int   `json:"redriven"`
		Remaining int64 `json:"remaining"`
	}
	answer.Redriven, answer.Remaining = -1, -1
	_, err := q.call(ctx, &request{method: http.MethodPost, path: q.path("dead", "redrive"), body: jsonBody(m), writes: true}, &answer, func() error {
		if answer.Redriven < 0 || answer.Remaining < 0 {
			return errors.New("it does not say how many dead letters were redriven, and how many remain")
		}
		return nil
	})
	if err != nil {
		return seb.Redriven{}, err
	}
	return seb.Redriven{Records: answer.Redriven, Remaining: answer.Remaining}, nil
}
