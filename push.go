package seb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/push"
	"github.com/simple-event-broker/seb/internal/state"
)

// PushUpdate says where a queue's records are to be pushed to, and what is to change
// about that; a nil field stays as it is, or is the default of a target that is new.
type PushUpdate struct {
	// URL takes a POST for each record. A target that is new needs one.
	URL *string
	// Headers go with each request, in place of those before. They are never shown again.
	Headers map[string]string
	// Secret signs the requests: whsec_ and 24 to 64 bytes in base64, or up to four of
	// these with spaces between. A target that is new gets one if none is given.
	Secret *string
	// MaxInFlight is how many requests may be under way at a time. 1 to 1,024, default 64.
	MaxInFlight *int
	// Timeout is how long a request may take. 1 s to 5 min, default 30 s.
	Timeout *time.Duration
}

// PushInfo is where a queue's records are pushed to.
type PushInfo struct {
	URL string
	// Headers are the names of those that go with each request.
	Headers []string
	// Secrets is how many sign each request.
	Secrets     int
	MaxInFlight int
	Timeout     time.Duration
	// Stopped is why nothing is pushed any more, "" while it goes on: the receiver answered
	// 410 (Gone). [Queue.ResumePush] goes on.
	Stopped string
	// Blocked is why nothing is sent for now although the push goes on, "" if something may
	// be: the URL's host has an address that [Options] do not let this broker push to. No
	// attempt counts meanwhile. Only the broker that pushes the queue knows.
	Blocked string
}

// SetPush has the queue's records pushed to a URL by brokers that do so: see
// [Broker.DeliverPushed]. What was stopped goes on. secret is the one that was made for a
// target that is new, "" if none was: nobody tells it again.
func (q *Queue) SetPush(ctx context.Context, u PushUpdate) (_ PushInfo, secret string, created bool, err error) {
	defer writes(&err)
	if err := cmp.Or(q.check(), u.check()); err != nil {
		return PushInfo{}, "", false, err
	}
	var ( // the commit loop's until the outcome is known
		info    PushInfo
		shown   string
		isNew   bool
		another = push.NewSecret()
	)
	err = q.changePush(ctx, func(old *format.QueuePush) (*format.QueuePush, *Error) {
		isNew, shown = old == nil, ""
		t := u.apply(targetOf(old))
		if t.Secret == "" && u.Secret == nil {
			t.Secret, shown = another, another
		}
		if err := q.b.checkTarget(t); err != nil {
			return nil, err
		}
		next := pushEntry(t.OrDefaults())
		info = pushInfo(next)
		return next, nil
	})
	if err != nil {
		return PushInfo{}, "", false, err
	}
	return info, shown, isNew, nil
}

// Push tells where the queue's records are pushed to. If they are not, that is
// CodePushNotFound.
func (q *Queue) Push(ctx context.Context) (_ PushInfo, err error) {
	defer reads(&err)
	if err := cmp.Or(q.check(), q.b.syncNow(ctx, false)); err != nil {
		return PushInfo{}, err
	}
	b := q.b
	b.live.RLock()
	defer b.live.RUnlock()
	t := b.live.State.Topic(q.topic)
	if t == nil {
		return PushInfo{}, topicNotFound(q.topic)
	}
	found := b.live.State.Queue(t.ID, q.name)
	switch {
	case found == nil:
		return PushInfo{}, queueNotFound(q.topic, q.name)
	case found.Push == nil:
		return PushInfo{}, q.pushNotFound()
	}
	info := pushInfo(found.Push)
	info.Blocked = b.pushes.Blocked(found.ID)
	return info, nil
}

// RemovePush has the queue's records pushed no more. They wait for who receives them.
func (q *Queue) RemovePush(ctx context.Context) (err error) {
	defer writes(&err)
	return q.changePushed(ctx, func(format.QueuePush) *format.QueuePush { return nil })
}

// ResumePush goes on after the receiver answered 410 (Gone).
func (q *Queue) ResumePush(ctx context.Context) (_ PushInfo, err error) {
	defer writes(&err)
	var info PushInfo // the commit loop's until the outcome is known
	err = q.changePushed(ctx, func(p format.QueuePush) *format.QueuePush {
		p.Stopped = ""
		info = pushInfo(&p)
		return &p
	})
	if err != nil {
		return PushInfo{}, err
	}
	return info, nil
}

// changePushed changes the target of a queue that is pushed.
func (q *Queue) changePushed(ctx context.Context, f func(format.QueuePush) *format.QueuePush) error {
	if err := q.check(); err != nil {
		return err
	}
	return q.changePush(ctx, func(old *format.QueuePush) (*format.QueuePush, *Error) {
		if old == nil {
			return nil, q.pushNotFound()
		}
		return f(*old), nil
	})
}

// changePush has the log say what f makes of the queue's target, nil being none. f may be
// called again.
func (q *Queue) changePush(ctx context.Context, f func(old *format.QueuePush) (*format.QueuePush, *Error)) error {
	return q.b.change(ctx, func(d *state.Draft) ([]format.Entry, *Error) {
		_, id, refusal := q.find(d)
		if refusal != nil {
			return nil, refusal
		}
		old := d.QueuePush(id)
		next, refusal := f(old)
		if refusal != nil || samePush(old, next) {
			return nil, refusal
		}
		return []format.Entry{&format.QueuePushSet{Queue: id, Push: next}}, nil
	})
}

func (q *Queue) pushNotFound() *Error {
	return refused(CodePushNotFound, "queue %q of topic %q has no push target", q.name, q.topic)
}

// checkTarget refuses what can't be pushed to from here.
func (b *Broker) checkTarget(t push.Target) *Error {
	err := t.Check()
	if err == nil {
		err = b.pushNetworks().CheckTarget(t)
	}
	if err == nil {
		return nil
	}
	e := refused(CodeInvalidRequest, "%v", err)
	if invalid := (*push.InvalidError)(nil); errors.As(err, &invalid) {
		e.Detail, e.Hint = fmt.Sprintf("%s: %s", invalid.Field, invalid.Detail), invalid.Hint
	}
	return e
}

func (b *Broker) pushNetworks() push.Networks {
	return push.Networks{Allowed: b.opts.PushNetworks, Denied: b.opts.PushDenied}
}

// check refuses what a target would take for its default.
func (u PushUpdate) check() error {
	switch {
	case u.MaxInFlight != nil && *u.MaxInFlight == 0:
		return refused(CodeInvalidRequest, "max_in_flight is 0; it must be 1 to %d", push.InFlightMax)
	case u.Timeout != nil && *u.Timeout == 0:
		return refused(CodeInvalidRequest, "timeout is 0s; it must be %v to %v", push.TimeoutMin, push.TimeoutMax)
	}
	return nil
}

func (u PushUpdate) apply(t push.Target) push.Target {
	set(&t.URL, u.URL)
	set(&t.Secret, u.Secret)
	set(&t.MaxInFlight, u.MaxInFlight)
	set(&t.Timeout, u.Timeout)
	if u.Headers != nil {
		t.Headers = u.Headers
	}
	return t
}

func samePush(a, b *format.QueuePush) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.URL == b.URL && a.Secret == b.Secret && a.Stopped == b.Stopped &&
		a.TimeoutMS == b.TimeoutMS && a.InFlight == b.InFlight && slices.Equal(a.Headers, b.Headers)
}

// targetOf returns the target that the log knows; nil is none.
func targetOf(p *format.QueuePush) push.Target {
	if p == nil {
		return push.Target{}
	}
	t := push.Target{
		URL: p.URL, Secret: p.Secret, MaxInFlight: int(p.InFlight), Timeout: time.Duration(p.TimeoutMS) * time.Millisecond,
		Headers: map[string]string{},
	}
	for _, h := range p.Headers {
		t.Headers[h.Name] = h.Value
	}
	return t
}

// pushEntry returns what the log is to know of a target that has its defaults.
func pushEntry(t push.Target) *format.QueuePush {
	p := &format.QueuePush{URL: t.URL, Secret: t.Secret, TimeoutMS: t.Timeout.Milliseconds(), InFlight: uint32(t.MaxInFlight)}
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		p.Headers = append(p.Headers, format.PushHeader{Name: name, Value: t.Headers[name]})
	}
	return p
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
