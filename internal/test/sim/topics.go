package sim

import (
	"context"
	"fmt"
	"slices"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
)

// partitionsMax is the largest number of partitions to which clients grow a topic.
const partitionsMax = 4

// ownTopic returns a topic that only this client writes to and deletes: an existing one, or a new one,
// perhaps with the name of a topic that the client deleted.
func (c *client) ownTopic() string {
	if len(c.churn) > 0 && chance(c.rng, 0.5) {
		return c.churn[len(c.churn)-1]
	}
	var name string
	if len(c.free) > 0 && chance(c.rng, 0.8) {
		name, c.free = c.free[0], c.free[1:]
	} else {
		c.sent++
		name = fmt.Sprintf("own-%s-%d", c.name, c.sent)
	}
	c.churn = append(c.churn, name)
	return name
}

func (c *client) create(l *life, t topic) {
	o := &op{kind: creates, topic: t.name}
	c.call(l, o, func(ctx context.Context, by caller) { by.create(ctx, o, t.partitions) })
}

// delete deletes one of the client's own topics. The client never reuses a name whose deletion may
// still be under way.
func (c *client) delete(l *life) {
	if len(c.churn) == 0 {
		return
	}
	o := &op{kind: deletes, topic: c.churn[0]}
	c.churn = c.churn[1:]
	c.call(l, o, func(ctx context.Context, by caller) { by.delete(ctx, o) })
	switch {
	case o.acked():
		c.free = append(c.free, o.topic)
		p := place{o.topic, 0}
		delete(c.starts, p)
		delete(c.ends, p)
	case o.outcome == seb.NotCommitted:
		c.churn = append(c.churn, o.topic)
	}
}

// update changes the config of a topic that exists during the whole run. Often it also adds a partition to
// the partitions that the client knows.
func (c *client) update(l *life, t topic) {
	c.sim.mu.Lock()
	c.sim.updates++
	o := &op{kind: updates, topic: t.name, config: 1<<40 + c.sim.updates} // so many bytes that brokers delete none
	c.sim.mu.Unlock()
	if n := c.partitionsOf(t); n < partitionsMax && chance(c.rng, 0.5) {
		o.partition = n + 1
	}
	c.call(l, o, func(ctx context.Context, by caller) { by.update(ctx, o) })
	if o.acked() {
		c.grown[t.name] = o.is.partitions
	}
}

// partitionsOf returns how many partitions a topic has at least, as far as the client knows.
func (c *client) partitionsOf(t topic) int { return max(t.partitions, c.grown[t.name]) }

// shape is the part of a topic that updates change.
type shape struct {
	partitions int
	config     int64 // the topic's retention in bytes
}

// checkTopics expects topics to have been created, changed and deleted as clients asked for.
func (x *checker) checkTopics(ops []*op) {
	for _, in := range x.final.all {
		if !x.stays(in.name) {
			continue
		}
		for i, config := range in.configs {
			at := slices.IndexFunc(ops, func(o *op) bool {
				return o.kind == updates && o.topic == in.name && o.config == config && (o.acked() || o.outcome == seb.Unknown)
			})
			if at < 0 {
				x.history.violate("TopicAsAsked", "%s got a retention of %d bytes, which nobody asked for", in.name, config)
				continue
			}
			for _, later := range in.configs[i+1:] {
				if slices.ContainsFunc(ops[:at], func(o *op) bool { return o.acked() && o.kind == updates && o.config == later && o.ret < ops[at].call }) {
					x.history.violate("TopicAsAsked", "the retention of %d bytes came into the log before that of %d bytes, but a client asked for it later: %v", config, later, ops[at])
				}
			}
		}
		x.checkUpdates(ops, in)
	}
	for _, o := range ops {
		if o.kind == deletes {
			x.checkDelete(ops, o)
		}
	}
	x.checkDeleted(ops)
}

// checkUpdates expects the log to have the acknowledged updates of a topic.
func (x *checker) checkUpdates(ops []*op, in *incarnation) {
	for _, o := range ops {
		if o.kind != updates || o.topic != in.name || !o.acked() {
			continue
		}
		at, told := slices.Index(in.configs, o.config), slices.Index(in.configs, o.is.config)
		if at < 0 || told < at {
			x.history.violate("TopicAsAsked", "the update was acknowledged, but the configs of the topic were %v: %v", in.configs, o)
		}
		if n := len(in.partitions); o.is.partitions < o.partition || o.is.partitions > n {
			x.history.violate("TopicAsAsked", "the topic has %d partitions at the end of the run: %v", n, o)
		}
	}
}

// livesOf returns the id of the topic that has the records of an append, or 0.
func (x *checker) livesOf(o *op) format.TopicID {
	if o.kind == appends && len(o.values) > 0 {
		return x.lives[o.values[0]]
	}
	return 0
}

// checkDelete expects no append that a client sent after the acknowledgement of a deletion to go to the
// deleted topic.
func (x *checker) checkDelete(ops []*op, d *op) {
	var before format.TopicID // the newest topic with that name that certainly existed when the client sent the deletion
	for _, o := range ops {
		if o.topic == d.topic && o.acked() && o.ret <= d.call {
			before = max(before, x.livesOf(o))
		}
	}
	if before == 0 {
		return
	}
	in := x.final.all[before]
	switch {
	case d.acked() && !in.deleted:
		x.history.violate("TopicAsAsked", "the topic was deleted, but still exists: %v", d)
	case d.failure == seb.CodeTopicNotFound && !in.deleted:
		x.history.violate("TopicAsAsked", "a request to delete did not find the topic, which exists: %v", d)
	}
	for _, o := range ops {
		if lives := x.livesOf(o); d.acked() && o.topic == d.topic && o.call >= d.ret && lives != 0 && lives <= before {
			x.history.violate("TopicAsAsked", "an append went to a deleted topic: %v, then %v", d, o)
		}
	}
}

// checkDeleted expects the topic of each acknowledged record to exist at the end of the run, unless a
// client deleted the topic later.
func (x *checker) checkDeleted(ops []*op) {
	for _, o := range ops {
		in := x.final.all[x.livesOf(o)]
		if !o.acked() || in == nil || !in.deleted {
			continue
		}
		if !slices.ContainsFunc(ops, func(d *op) bool {
			return d.kind == deletes && d.topic == o.topic && (d.acked() && d.ret >= o.call || d.outcome == seb.Unknown)
		}) {
			x.history.violate("TopicAsAsked", "the topic was deleted, and nobody asked for that: %v", o)
		}
	}
}

// checkOwnRead checks a read of a topic that clients delete and create again under the same name. All
// records of the read must be of one of the topics with that name. When the client asked, the broker must
// not have known of a newer topic with that name.
func (x *checker) checkOwnRead(before []*op, o *op) {
	if o.failure == seb.CodeDataLost {
		x.history.violate("LossIsLoud", "a broker reported lost data, but nothing was lost: %v", o)
	}
	if len(o.records) == 0 {
		return
	}
	lives, fresh := x.lives[o.records[0].id], x.freshSince(o)
	for _, b := range before {
		if b.topic == o.topic && b.acked() && x.livesOf(b) > lives && (b.ret <= fresh || b.broker == o.broker && b.ret <= o.call) {
			x.history.violate("TopicAsAsked", "a read returned records of a topic that was deleted before: %v, then %v", b, o)
		}
	}
	for _, r := range o.records {
		want := position{place{o.topic, o.partition}, r.offset}
		if x.lives[r.id] != lives || !slices.Contains(x.at[r.id], want) {
			x.history.violate("DenseOffsets", "%s is at %v: %v", r.id, x.at[r.id], o)
		}
	}
}
