package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

// client does one operation after the other, each through a broker that it picks.
type client struct {
	sim  *simulation
	name string
	rng  *rand.Rand
	http *http.Client

	sent         int
	starts, ends map[place]seb.Offset   // of partitions, as far as the client knows
	churn, free  []string               // topics that only this client uses: those that may exist, and those that it has deleted
	grown        map[string]int         // how many partitions each topic has grown to
	versions     map[consumerRef]string // for each consumer, the version in the last answer to this client

	queueWorker bool      // the client works on queues, and does little else
	held        []message // received messages on which the client still works
	past        []message // received messages that the client no longer holds, whether it has acknowledged them or not

	committed []message // messages whose results the client committed last
}

// place names a partition.
type place struct {
	topic     string
	partition int
}

func newClient(s *simulation, index int) *client {
	return s.newClient(fmt.Sprintf("c%d", index), stream(s.cfg.Seed, "client", index))
}

func (s *simulation) newClient(name string, rng *rand.Rand) *client {
	c := &client{
		sim: s, name: name, rng: rng,
		starts: map[place]seb.Offset{}, ends: map[place]seb.Offset{}, grown: map[string]int{}, versions: map[consumerRef]string{},
	}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			for _, n := range s.nodes {
				// The address names one life, and no other life answers there.
				if l := n.current(); l != nil && l.name+":80" == addr {
					return l.listen.dial(ctx, c.brittleness())
				}
			}
			return nil, errNobody
		},
		DisableKeepAlives: chance(c.rng, 0.2),
	}}
	return c
}

// brittleness returns after how many bytes a new connection breaks; 0 means never.
func (c *client) brittleness() int {
	if c.sim.plan.calm || c.sim.healed() || !chance(c.rng, 0.15) {
		return 0
	}
	return 1 + c.rng.IntN(pick(c.rng, 600, 3000))
}

func (c *client) run() {
	defer c.http.CloseIdleConnections()
	for range c.sim.plan.ops {
		c.think()
		c.operate()
	}
}

func (c *client) think() {
	most := 100 * time.Millisecond
	switch {
	case chance(c.rng, 0.06):
		most = c.sim.plan.delay
	case chance(c.rng, 0.3):
		most = 30 * time.Second
	}
	time.Sleep(between(c.rng, time.Millisecond, most))
}

// operate does one operation.
func (c *client) operate() {
	l := c.sim.nodes[c.rng.IntN(len(c.sim.nodes))].current()
	if l == nil {
		return
	}
	stays := c.sim.plan.topics[c.rng.IntN(len(c.sim.plan.topics))]
	if c.queueWorker {
		c.workOnQueue(l, stays)
		return
	}
	partitions := c.partitionsOf(stays)
	if c.sim.plan.keys && chance(c.rng, 0.1) {
		c.useKeys(l)
		return
	}
	switch what := c.rng.IntN(27); {
	case what < 1:
		c.create(l, stays)
	case what < 10 && chance(c.rng, 0.2):
		c.appendIf(l, place{stays.name, c.rng.IntN(partitions)})
	case what < 10 && chance(c.rng, 0.15):
		c.decide(l, place{stays.name, c.rng.IntN(partitions)})
	case what < 10:
		c.append(l, stays.name, partitions)
	case what < 13:
		c.append(l, c.ownTopic(), 1)
	case what < 15:
		c.delete(l)
	case what < 16:
		c.trim(l, place{stays.name, c.rng.IntN(partitions)})
	case what < 17:
		c.update(l, stays)
	case what < 22:
		c.useConsumer(l, stays)
	case len(c.churn) > 0 && chance(c.rng, 0.4):
		c.read(l, place{c.churn[len(c.churn)-1], 0})
	default:
		c.read(l, place{stays.name, c.rng.IntN(partitions)})
	}
}

// call runs an operation through the library or over HTTP, with a random timeout.
func (c *client) call(l *life, o *op, do func(context.Context, caller)) {
	c.send(l, o, do)
	c.sim.history.add(o)
}

// caller returns the library of a life, or HTTP, by chance.
func (c *client) caller(l *life) (by caller, via string) {
	if chance(c.rng, 0.6) {
		return wire{c.http, c.sim.history, chance(c.rng, 0.5), c.sim.secret}, viaHTTP
	}
	return library{l.broker, c.sim.history}, viaLibrary
}

func (c *client) send(l *life, o *op, do func(context.Context, caller)) {
	by, via := c.caller(l)
	o.client, o.broker, o.via, o.call = c.name, l.name, via, c.sim.now()
	ctx, cancel := context.WithTimeout(context.Background(), pick(c.rng, time.Minute, time.Minute, 2*time.Second, 50*time.Millisecond))
	defer cancel()
	do(ctx, by)
	o.ret = c.sim.now()
}

func (c *client) append(l *life, topic string, partitions int) {
	o := &op{kind: appends, topic: topic, partition: c.rng.IntN(partitions+1) - 1}
	var key string
	if o.partition < 0 && chance(c.rng, 0.5) {
		key = fmt.Sprintf("k%d", c.rng.IntN(4))
	}
	if c.sim.plan.workers > 0 && chance(c.rng, 0.15) {
		o.delay = new(between(c.rng, time.Millisecond, time.Minute))
	}
	c.deliver(l, o, key, c.compose(o))
}

// compose makes the values of an append's records.
func (c *client) compose(o *op) (values []string) {
	for range pick(c.rng, 1, 1, 2, 5) {
		c.sent++
		id := fmt.Sprintf("%s.%d", c.name, c.sent)
		size := pick(c.rng, 0, 0, 100, 3000)
		if chance(c.rng, 0.02) {
			size = pick(c.rng, 100_000, 1_500_000)
		}
		v := id + "|" + strings.Repeat("-", size)
		c.sim.history.send(id, v)
		o.values, values = append(o.values, id), append(values, v)
	}
	return values
}

// deliver does an append, perhaps with an idempotency key.
func (c *client) deliver(l *life, o *op, key string, values []string) {
	if chance(c.rng, 0.3) {
		c.sent++
		o.key = fmt.Sprintf("%s.%d", c.name, c.sent)
		c.insist(l, o, key, values)
	} else {
		c.call(l, o, func(ctx context.Context, by caller) { by.append(ctx, o, key, values) })
	}
	for _, r := range o.ranges {
		p := place{o.topic, int(r.Partition)}
		c.ends[p] = max(c.ends[p], r.Offset+seb.Offset(r.Count))
	}
}

// insist repeats an append with an idempotency key, through any broker, until it is acknowledged or has been
// tried a few times. Sometimes it sends the append again after the acknowledgement. All of these requests
// are one operation, which may take effect at most once.
func (c *client) insist(l *life, o *op, key string, values []string) {
	o.client = c.name
	begun := c.sim.now()
	for range pick(c.rng, 1, 3, 6) {
		if c.attempt(l, o, key, values); o.acked() && chance(c.rng, 0.7) {
			break
		}
		c.think()
		if next := c.sim.nodes[c.rng.IntN(len(c.sim.nodes))].current(); next != nil {
			l = next
		}
	}
	o.call, o.ret = begun, c.sim.now()
	c.sim.history.add(o)
}

// attempt sends an append with an idempotency key, and notes in o what the client knows after the answer.
func (c *client) attempt(l *life, o *op, key string, values []string) {
	t := &op{kind: appends, topic: o.topic, partition: o.partition, values: o.values, key: o.key, ifOffset: o.ifOffset, delay: o.delay}
	c.send(l, t, func(ctx context.Context, by caller) { by.append(ctx, t, key, values) })
	switch {
	case t.failure == seb.CodeIdempotencyKeyReused:
		c.sim.history.violate("AtMostOnce", "the broker took a retry for a different append: %v", t)
	case o.acked() && o.broker != "": // acknowledged by an earlier attempt
		if t.acked() && !slices.Equal(t.ranges, o.ranges) || t.conflicts() {
			c.sim.history.violate("AtMostOnce", "a retry got a different answer: %v, then %v", o, t)
		}
	case o.passed() && t.acked():
		c.sim.history.violate("Condition", "a conflict became a success: %v, then %v", o, t)
	case o.passed(): // the conflict is final
	case !t.passed() && !t.acked() && o.outcome == seb.Unknown: // the outcome stays unknown
	default:
		o.broker, o.via, o.ranges, o.end = t.broker, viaHTTP, t.ranges, t.end
		o.failure, o.outcome, o.detail = t.failure, t.outcome, t.detail
	}
}

func (c *client) read(l *life, p place) {
	o := &op{kind: reads, topic: p.topic, partition: p.partition, from: seb.Earliest}
	switch c.rng.IntN(6) {
	case 0:
		o.from = seb.Latest
	case 1:
		o.from = seb.Last(c.rng.Int64N(6))
	case 2, 3:
		low := c.starts[p]
		if chance(c.rng, 0.2) {
			low = 0
		}
		o.from = seb.At(low + seb.Offset(c.rng.Int64N(int64(c.ends[p]-low)+2)))
	case 4:
		o.from = seb.At(c.ends[p])
	}
	opts := seb.FetchOptions{Limit: pick(c.rng, 1, 3, 100), MaxBytes: pick(c.rng, int64(1), 10_000, 1<<20), Wait: pick(c.rng, 0, 0, 3*time.Second)}
	c.call(l, o, func(ctx context.Context, by caller) { by.read(ctx, o, opts) })
	c.learn(p, o)
}
