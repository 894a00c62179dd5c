package seb

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/push"
	"github.com/simple-event-broker/seb/internal/state"
)

// PushUpdate says what to change about a queue's push target. Where a field is nil, the value stays
// as it is; a new target gets the default.
type PushUpdate struct {
	// URL receives a POST for each record. A new target must have a URL.
	URL *string
	// Headers are sent with each request. They replace all headers that the target had. Their
	// values are never shown.
	Headers map[string]string
	// Secret signs the requests. It is whsec_ and 24 to 64 bytes in base64, or up to four such
	// secrets, separated by spaces. A new target gets a random secret by default.
	Secret *string
	// MaxInFlight is how many requests may be under way at a time. 1 to 1,024, default 64.
	MaxInFlight *int
	// Timeout is how long a request may take. 1 s to 5 min, default 30 s.
	Timeout *time.Duration
}

// PushInfo describes a queue's push target.
type PushInfo struct {
	URL string
	// Headers are the names of the headers that are sent with each request.
	Headers []string
	// Secrets is the number of secrets that sign each request.
	Secrets     int
	MaxInFlight int
	Timeout     time.Duration
	// Stopped is why the push was stopped, "" if it was not stopped. A push stops when the target
	// answers 410 (Gone); [Queue.ResumePush] resumes the push.
	Stopped string
	// Blocked is why the broker sends nothing although the push was not stopped: the URL's host
	// has an address to which the broker's [Options] do not allow pushes. While Blocked is set,
	// no attempts are counted. Blocked is "" if the broker may send. Only the broker that pushes
	// the queue's records sets Blocked.
	Blocked string
	// Failing is why the latest request failed, and FailingSince when the first request after the latest
	// success failed. Both are zero if the latest request succeeded, if there was none, or on a broker
	// that does not push the queue's records.
	Failing      string
	FailingSince time.Time
}

// SetPush sets the queue's push target, to which brokers that run [Broker.DeliverPushed] push
// the queue's records. If the push was stopped, SetPush resumes it. secret is the random secret
// of a new target, "" if none was made; it can't be shown again. created reports whether the
// queue had no target before the call; then, if the queue's MaxAttempts and backoff are the
// defaults of queues, SetPush changes them to PushedMaxAttemptsDefault and PushedBackoffMaxDefault.
func (q *Queue) SetPush(ctx context.Context, u PushUpdate) (_ PushInfo, secret string, created bool, err error) {
	defer writes(&err)
	if err := cmp.Or(q.check(), u.copied().Check()); err != nil {
		return PushInfo{}, "", false, err
	}
	x := &change.SetPush{
		QueueName: q.names(), Update: u.copied(), Secret: push.NewSecret(), Defaults: queueDefaults,
		Allowed: slices.Clone(q.b.opts.PushNetworks), Denied: slices.Clone(q.b.opts.PushDenied),
	}
	if _, err := q.b.change(ctx, x); err != nil {
		return PushInfo{}, "", false, err
	}
	if x.SecretIsUsed {
		secret = x.Secret
	}
	return pushInfo(&x.Target), secret, x.Created, nil
}

// Push describes the queue's push target. It fails with CodePushNotFound if the queue has no
// push target.
func (q *Queue) Push(ctx context.Context) (_ PushInfo, err error) {
	defer reads(&err)
	if err := cmp.Or(q.check(), q.b.engine.Sync(ctx)); err != nil {
		return PushInfo{}, err
	}
	var info PushInfo
	var missing error
	err = q.view(func(_ *state.State, _ *state.Topic, found *state.Queue) {
		if found.Push == nil {
			missing = change.PushNotFound(q.topic, q.name)
			return
		}
		info = pushInfo(found.Push)
		now := q.b.pushes.Status(found.ID)
		info.Blocked, info.Failing, info.FailingSince = now.Blocked, now.Failing, now.FailingSince
	})
	return info, cmp.Or(err, missing)
}

// RemovePush removes the queue's push target. The records then wait for [Queue.Receive].
func (q *Queue) RemovePush(ctx context.Context) (err error) {
	defer writes(&err)
	if err := q.check(); err != nil {
		return err
	}
	_, err = q.b.change(ctx, change.RemovePush{QueueName: q.names()})
	return err
}

// ResumePush resumes a push that was stopped because the target answered 410 (Gone).
func (q *Queue) ResumePush(ctx context.Context) (_ PushInfo, err error) {
	defer writes(&err)
	if err := q.check(); err != nil {
		return PushInfo{}, err
	}
	x := &change.ResumePush{QueueName: q.names()}
	if _, err := q.b.change(ctx, x); err != nil {
		return PushInfo{}, err
	}
	return pushInfo(&x.Target), nil
}

func (o Options) pushNetworks() push.Networks {
	return push.Networks{Allowed: o.PushNetworks, Denied: o.PushDenied}
}

// copied returns a copy of the update for a change.
func (u PushUpdate) copied() change.PushUpdate {
	return change.PushUpdate{
		URL: copied(u.URL), Headers: maps.Clone(u.Headers), Secret: copied(u.Secret), MaxInFlight: copied(u.MaxInFlight), Timeout: copied(u.Timeout),
	}
}

func pushInfo(p *format.QueuePush) PushInfo {
	info := PushInfo{
		URL: p.URL, Headers: []string{}, Secrets: len(strings.Fields(p.Secret)), MaxInFlight: int(p.InFlight),
		Timeout: time.Duration(p.TimeoutMS) * time.Millisecond, Stopped: p.Stopped,
	}
	for _, h := range p.Headers {
		info.Headers = append(info.Headers, h.Name)
	}
	return info
}
