package change

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/push"
	"github.com/simple-event-broker/seb/internal/state"
)

// A queue that is pushed for the first time gets these values if it has the defaults of queues. They allow a
// target to fail for a day, even if each backoff is as short as chance can make it: the backoffs then come to
// 8 minutes and 289 times 5 minutes. Standard Webhooks advise to retry for more than a day.
const (
	PushedMaxAttempts = 300
	PushedBackoffMax  = 10 * time.Minute
)

// findPush returns the id of the queue, and the queue's push target; old is nil if the queue has no
// push target.
func (q QueueName) findPush(d *state.Draft) (id format.QueueID, old *format.QueuePush, _ error) {
	_, id, err := q.find(d)
	if err != nil {
		return 0, nil, err
	}
	return id, d.QueuePush(id), nil
}

// pushChanged returns the entries that replace a queue's push target old by next; no entries if the two
// are equal. A nil target means that the queue has no push target.
func pushChanged(queue format.QueueID, old, next *format.QueuePush) []format.Entry {
	if samePush(old, next) {
		return nil
	}
	return []format.Entry{&format.QueuePushSet{Queue: queue, Push: next}}
}

func samePush(a, b *format.QueuePush) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.URL == b.URL && a.Secret == b.Secret && a.Stopped == b.Stopped &&
		a.TimeoutMS == b.TimeoutMS && a.InFlight == b.InFlight && slices.Equal(a.Headers, b.Headers)
}

// TargetOf returns the push target in a log entry; the zero Target if p is nil.
func TargetOf(p *format.QueuePush) push.Target {
	if p == nil {
		return push.Target{}
	}
	t := push.Target{
		URL: p.URL, Secret: p.Secret, MaxInFlight: int(p.InFlight), Timeout: milliseconds(p.TimeoutMS), Headers: map[string]string{},
	}
	for _, h := range p.Headers {
		t.Headers[h.Name] = h.Value
	}
	return t
}

// pushEntry returns a push target in the form of a log entry. t must come from
// [push.Target.OrDefaults].
func pushEntry(t push.Target) *format.QueuePush {
	p := &format.QueuePush{URL: t.URL, Secret: t.Secret, TimeoutMS: t.Timeout.Milliseconds(), InFlight: uint32(t.MaxInFlight)}
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		p.Headers = append(p.Headers, format.PushHeader{Name: name, Value: t.Headers[name]})
	}
	return p
}

// PushesTo tells whether a queue whose push target is p pushes to t now: p has the same values as t,
// and the push was not stopped.
func PushesTo(p *format.QueuePush, t push.Target) bool {
	return p != nil && p.Stopped == "" && TargetOf(p).Equal(t)
}

// PushUpdate says what to change about a push target; a nil field leaves the value as it is. A
// PushUpdate shares no memory with the caller.
type PushUpdate struct {
	URL         *string
	Headers     map[string]string
	Secret      *string
	MaxInFlight *int
	Timeout     *time.Duration
}

// Check refuses a MaxInFlight and a Timeout of 0, which [push.Target.OrDefaults] would replace by defaults.
func (u PushUpdate) Check() error {
	switch {
	case u.MaxInFlight != nil && *u.MaxInFlight == 0:
		return refused(CodeInvalidRequest, "", "max_in_flight is 0; it must be 1 to %d", push.InFlightMax)
	case u.Timeout != nil && *u.Timeout == 0:
		return refused(CodeInvalidRequest, "", "timeout is 0s; it must be %v to %v", push.TimeoutMin, push.TimeoutMax)
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

// SetPush sets a queue's push target.
type SetPush struct {
	QueueName
	Update PushUpdate
	Secret string // the target gets this secret if the old target has none and Update sets none
	// Defaults is what new queues have.
	Defaults QueueConfig
	// Allowed and Denied say to which addresses a broker may push: see [push.Networks].
	Allowed, Denied []netip.Prefix

	// Results: the target, whether the queue had no target before, and whether the target got Secret.
	Target       format.QueuePush
	Created      bool
	SecretIsUsed bool
}

// Apply implements engine.Change.
func (x *SetPush) Apply(d *state.Draft) ([]format.Entry, error) {
	x.Target, x.Created, x.SecretIsUsed = format.QueuePush{}, false, false
	id, old, err := x.findPush(d)
	if err != nil {
		return nil, err
	}
	t := x.Update.apply(TargetOf(old))
	draws := t.Secret == "" && x.Update.Secret == nil
	if draws {
		t.Secret = x.Secret
	}
	if err := checkTarget(t, push.Networks{Allowed: x.Allowed, Denied: x.Denied}); err != nil {
		return nil, err
	}
	next := pushEntry(t.OrDefaults())
	x.Target, x.Created, x.SecretIsUsed = *next, old == nil, draws
	if old == nil {
		return append(x.queueChanged(d, id), pushChanged(id, old, next)...), nil
	}
	return pushChanged(id, old, next), nil
}

// queueChanged returns the entry that gives a queue, which had no target before, the values of pushed queues (see
// PushedMaxAttempts); no entries if the queue's own values differ from those of new queues.
func (x *SetPush) queueChanged(d *state.Draft, id format.QueueID) []format.Entry {
	config, fresh := QueueConfigOf(d.QueueConfig(id)), x.Defaults
	if config.MaxAttempts != fresh.MaxAttempts || config.BackoffMin != fresh.BackoffMin || config.BackoffMax != fresh.BackoffMax {
		return nil
	}
	config.MaxAttempts, config.BackoffMax = PushedMaxAttempts, PushedBackoffMax
	topic, _, _ := d.TopicID(x.Topic)
	return []format.Entry{&format.QueueSet{ID: id, Topic: topic, Name: x.Queue, Config: config.stored()}}
}

// checkTarget refuses an invalid target, and a target whose address the networks forbid.
func checkTarget(t push.Target, networks push.Networks) error {
	err := t.Check()
	if err == nil {
		err = networks.CheckTarget(t)
	}
	if err == nil {
		return nil
	}
	r := refused(CodeInvalidRequest, "", "%v", err)
	if invalid := (*push.InvalidError)(nil); errors.As(err, &invalid) {
		r.Detail, r.Hint = fmt.Sprintf("%s: %s", invalid.Field, invalid.Detail), invalid.Hint
	}
	return r
}

// RemovePush removes a queue's push target.
type RemovePush struct{ QueueName }

// Apply implements engine.Change.
func (x RemovePush) Apply(d *state.Draft) ([]format.Entry, error) {
	id, old, err := x.findPush(d)
	if err != nil {
		return nil, err
	}
	if old == nil {
		return nil, PushNotFound(x.Topic, x.Queue)
	}
	return pushChanged(id, old, nil), nil
}

// ResumePush resumes a push that was stopped.
type ResumePush struct {
	QueueName

	// Target is a result: the queue's push target.
	Target format.QueuePush
}

// Apply implements engine.Change.
func (x *ResumePush) Apply(d *state.Draft) ([]format.Entry, error) {
	x.Target = format.QueuePush{}
	id, old, err := x.findPush(d)
	if err != nil {
		return nil, err
	}
	if old == nil {
		return nil, PushNotFound(x.Topic, x.Queue)
	}
	next := *old
	next.Stopped = ""
	x.Target = next
	return pushChanged(id, old, &next), nil
}

// StopPush stops the push of a queue to Target. It changes nothing if the queue's target is no longer
// Target.
type StopPush struct {
	QueueName
	Target push.Target
	Why    string
}

// Apply implements engine.Change.
func (x StopPush) Apply(d *state.Draft) ([]format.Entry, error) {
	id, old, err := x.findPush(d)
	if err != nil || !PushesTo(old, x.Target) {
		return nil, err
	}
	stopped := *old
	stopped.Stopped = x.Why
	return pushChanged(id, old, &stopped), nil
}
