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

// PushUpdate says what to change about a queue's push target. A nil field stays as it is, or
// has its default if the target is new.
type PushUpdate struct {
	// URL receives a POST for each record. A new target needs one.
	URL *string
	// Headers are sent with each request, and replace those before. They are never shown.
	Headers map[string]string
	// Secret signs the requests: whsec_ and 24 to 64 bytes in base64, or up to four of
	// these with spaces between. A new target gets a random one by default.
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
	// Secrets is how many secrets sign each request.
	Secrets     int
	MaxInFlight int
	Timeout     time.Duration
	// Stopped is why the push was stopped, "" if it was not: the target answered 410 (Gone).
	// [Queue.ResumePush] resumes it.
	Stopped string
	// Blocked is why the broker sends nothing although the push was not stopped, "" if it may
	// send: the URL's host has an address that [Options] do not let this broker push to.
	// Meanwhile no attempts are counted. Only the broker that pushes the queue knows it.
	Blocked string
}

// SetPush sets the queue's push target: brokers that run [Broker.DeliverPushed] push its
// records there. A push that was stopped resumes. secret is the random secret of a new target,
// "" if none was made; it can't be shown again.
func (q *Queue) SetPush(ctx context.Context, u PushUpdate) (_ PushInfo, secret string, created bool, err error) {
	defer writes(&err)
	if err := cmp.Or(q.check(), u.check()); err != nil {
		return PushInfo{}, "", false, err
	}
	x := &setPush{namedQueue: q.namedQueue, update: u, networks: q.b.opts.pushNetworks(), secret: push.NewSecret()}
	if _, err := q.b.change(ctx, x); err != nil {
		return PushInfo{}, "", false, err
	}
	if x.drawn {
		secret = x.secret
	}
	return pushInfo(x.target), secret, x.creates, nil
}

// setPush is the change of [Queue.SetPush].
type setPush struct {
	namedQueue
	update   PushUpdate
	networks push.Networks
	secret   string // of a new target that is given none

	// Results.
	target  *format.QueuePush
	creates bool
	drawn   bool // the target has that secret
}

// Apply implements engine.Change.
func (x *setPush) Apply(d *state.Draft) ([]format.Entry, error) {
	id, old, err := x.findPush(d)
	if err != nil {
		return nil, err
	}
	t := x.update.apply(targetOf(old))
	x.creates, x.drawn = old == nil, t.Secret == "" && x.update.Secret == nil
	if x.drawn {
		t.Secret = x.secret
	}
	if err := checkTarget(t, x.networks); err != nil {
		return nil, err
	}
	x.target = pushEntry(t.OrDefaults())
	return pushChanged(id, old, x.target), nil
}

// findPush returns the id of the queue and its push target, nil if it has none.
func (q namedQueue) findPush(d *state.Draft) (id uint64, old *format.QueuePush, _ error) {
	_, id, err := q.find(d)
	if err != nil {
		return 0, nil, err
	}
	return id, d.QueuePush(id), nil
}

// pushChanged returns the entries that replace a queue's push target; nil stands for no target.
func pushChanged(queue uint64, old, next *format.QueuePush) []format.Entry {
	if samePush(old, next) {
		return nil
	}
	return []format.Entry{&format.QueuePushSet{Queue: queue, Push: next}}
}

// Push describes the queue's push target. It fails with CodePushNotFound if the queue has
// none.
func (q *Queue) Push(ctx context.Context) (_ PushInfo, err error) {
	defer reads(&err)
	if err := cmp.Or(q.check(), q.b.engine.Sync(ctx)); err != nil {
		return PushInfo{}, err
	}
	var info PushInfo
	var missing error
	err = q.view(func(_ *state.State, _ *state.Topic, found *state.Queue) {
		if found.Push == nil {
			missing = q.pushNotFound()
			return
		}
		info = pushInfo(found.Push)
		info.Blocked = q.b.pushes.Blocked(found.ID)
	})
	return info, cmp.Or(err, missing)
}

// RemovePush removes the queue's push target. The records wait for [Queue.Receive].
func (q *Queue) RemovePush(ctx context.Context) (err error) {
	defer writes(&err)
	if err := q.check(); err != nil {
		return err
	}
	_, err = q.b.change(ctx, removePush{q.namedQueue})
	return err
}

// removePush is the change of [Queue.RemovePush].
type removePush struct{ namedQueue }

// Apply implements engine.Change.
func (x removePush) Apply(d *state.Draft) ([]format.Entry, error) {
	id, old, err := x.findPush(d)
	if err != nil {
		return nil, err
	}
	if old == nil {
		return nil, x.pushNotFound()
	}
	return pushChanged(id, old, nil), nil
}

// ResumePush resumes a push that was stopped because the target answered 410 (Gone).
func (q *Queue) ResumePush(ctx context.Context) (_ PushInfo, err error) {
	defer writes(&err)
	if err := q.check(); err != nil {
		return PushInfo{}, err
	}
	x := &resumePush{namedQueue: q.namedQueue}
	if _, err := q.b.change(ctx, x); err != nil {
		return PushInfo{}, err
	}
	return pushInfo(&x.target), nil
}

// resumePush is the change of [Queue.ResumePush].
type resumePush struct {
	namedQueue
	target format.QueuePush // a result
}

// Apply implements engine.Change.
func (x *resumePush) Apply(d *state.Draft) ([]format.Entry, error) {
	id, old, err := x.findPush(d)
	if err != nil {
		return nil, err
	}
	if old == nil {
		return nil, x.pushNotFound()
	}
	next := *old
	next.Stopped = ""
	x.target = next
	return pushChanged(id, old, &next), nil
}

func (q namedQueue) pushNotFound() error {
	return refused(CodePushNotFound, "queue %q of topic %q has no push target", q.name, q.topic)
}

// checkTarget refuses targets that a broker with these networks can't push to.
func checkTarget(t push.Target, networks push.Networks) error {
	err := t.Check()
	if err == nil {
		err = networks.CheckTarget(t)
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

func (o Options) pushNetworks() push.Networks {
	return push.Networks{Allowed: o.PushNetworks, Denied: o.PushDenied}
}

// check refuses zeros, which a target would take for its defaults.
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

// targetOf returns the target of a log entry; nil stands for no target.
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

// pushEntry returns the log entry of a target whose defaults are filled in.
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
