package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
)

// Names of queues. jobs exists during the whole run. shortLived is created and deleted again and
// again, like the queues of topics that clients delete.
const (
	jobs       = "jobs"
	shortLived = "short"
	// dead is the dead-letter topic. It exists during the whole run, and no client writes to it.
	dead = "dead"
)

// spot is the place of a record in its topic.
type spot struct {
	partition int
	offset    seb.Offset
}

// delivery is one delivery of a record by a queue, with the attempt number in the delivery's token.
type delivery struct {
	queue format.QueueID // the queue's id
	spot
	attempt uint32
}

// message is a record that was received.
type message struct {
	delivery
	token       string
	topic       string
	queueName   string // the queue's name
	id          string // id of the record
	toldAttempt int
	until       time.Duration // when the lease ends
}

// String describes a message in a story of the run.
func (m message) String() string {
	return fmt.Sprintf("%s at %d/%d by %d.%d", m.id, m.partition, m.offset, m.queue, m.attempt)
}

// receive notes a record that was received.
func (o *op) receive(h *history, m message, value string) {
	var cluster string
	m.topic, m.queueName = o.topic, o.queue
	if at := strings.IndexByte(m.token, '.'); at >= 0 {
		cluster = m.token[:at]
	}
	rest := strings.TrimPrefix(m.token, cluster+".")
	if n, err := fmt.Sscanf(rest, "%d/%d:%d.%d", &m.queue, &m.partition, &m.offset, &m.attempt); err != nil || n != 4 {
		h.violate("QueueAsAsked", "a token that can't be read: %q", m.token)
	}
	id, ok := h.identify(value)
	if !ok {
		h.violate("NoPhantom", "a queue of %s hands out %.40q, which nobody sent", o.topic, value)
	}
	m.id = id
	o.messages = append(o.messages, m)
}

// refusedToken reports whether the operation certainly did nothing for token i, because the lease was lost
// or the operation was not committed.
func (o *op) refusedToken(i int) bool {
	if len(o.verdicts) > 0 {
		return o.verdicts[i] == seb.CodeLeaseLost
	}
	return o.outcome == seb.NotCommitted || o.failure == seb.CodeLeaseLost
}

// taken reports whether an answer accepted token i.
func (o *op) taken(i int) bool {
	return o.acked() && (len(o.verdicts) == 0 || o.verdicts[i] == "")
}

// writeQueue describes an operation with a queue in a story of the run.
func (o *op) writeQueue(s *strings.Builder) {
	fmt.Fprintf(s, "%ss %s of %s", o.kind, o.queue, o.topic)
	for i, m := range o.tokens {
		fmt.Fprintf(s, ", %v", m)
		if len(o.verdicts) > 0 && o.verdicts[i] != "" {
			fmt.Fprintf(s, " (%s)", o.verdicts[i])
		}
	}
	if o.delay != nil {
		fmt.Fprintf(s, " in %v", *o.delay)
	}
	if o.reason != "" {
		fmt.Fprintf(s, " for %s", o.reason)
	}
	if o.lease > 0 {
		fmt.Fprintf(s, " for %v", o.lease)
	}
	if o.until > 0 {
		fmt.Fprintf(s, ": until %v", o.until)
	}
	for _, m := range o.messages {
		fmt.Fprintf(s, ": %v, attempt %d, until %v", m, m.toldAttempt, m.until)
	}
	if o.touched > 0 {
		fmt.Fprintf(s, ": %d", o.touched)
	}
}

// setUpQueues creates the queues that exist during the whole run.
func (s *simulation) setUpQueues() {
	if s.plan.workers == 0 {
		return
	}
	for _, t := range s.plan.topics {
		for created := false; !created; s.sleep(100 * time.Millisecond) {
			if s.now() > lifetimeMax {
				s.giveUp("no broker creates the queues")
			}
			for _, n := range s.nodes {
				if l := n.current(); l != nil && !created {
					created = s.setUpQueue(l, t.name) == nil
				}
			}
		}
	}
}

func (s *simulation) setUpQueue(l *life, topic string) error {
	if _, _, err := l.broker.CreateTopic(context.Background(), dead, seb.TopicOptions{Partitions: 1}); err != nil {
		return err
	}
	if _, _, err := l.broker.CreateTopic(context.Background(), made, seb.TopicOptions{Partitions: 1}); err != nil {
		return err
	}
	for _, name := range []string{jobs, exactlyOnce} {
		if _, _, err := l.broker.Queue(topic, name).Set(context.Background(), s.plan.queueUpdate(), seb.Earliest); err != nil {
			return err
		}
	}
	return nil
}

// queueUpdate returns the configuration of all queues.
func (p *plan) queueUpdate() seb.QueueUpdate {
	q := &p.queue
	return seb.QueueUpdate{
		Lease: &q.Lease, MaxAttempts: &q.MaxAttempts, BackoffMin: &q.BackoffMin, BackoffMax: &q.BackoffMax,
		DeadLetterTopic: &q.DeadLetterTopic, Order: &q.Order,
	}
}
