package sim

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

// together is a commit of several parts. Each part is a separate operation in the history. move is
// nil if the commit moves no consumer.
type together struct{ append, ack, move *op }

// doTogether acknowledges deliveries, appends results for them and moves a consumer, in one commit.
func (c *client) doTogether(l *life, some []message) {
	topic := some[0].topic
	w := &together{
		append: &op{kind: appends, topic: topic, partition: -1},
		ack:    queueRef{topic, jobs}.op(acks),
	}
	w.ack.tokens = some
	values := c.compose(w.append)
	if chance(c.rng, 0.5) {
		w.move = consumerRef{topic, freeA}.op(commits)
		w.move.offsets = seb.Offsets{0: c.ends[place{topic, 0}]}
	}
	c.sim.commit(l, c.name, w, values, pick(c.rng, time.Minute, 2*time.Second))
}

// commit sends all parts to a broker as one commit, with a timeout, and adds the parts to the history.
func (s *simulation) commit(l *life, client string, w *together, values []string, within time.Duration) {
	begun := s.now()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	done, err := l.broker.Commit(ctx, w.commit(values))
	if err == nil {
		w.append.ranges = done.Appends[0].Ranges
	}
	for _, o := range []*op{w.append, w.ack, w.move} {
		if o != nil {
			o.client, o.broker, o.via, o.call, o.ret, o.with = client, l.name, viaLibrary, begun, s.now(), w
			o.fail(err)
		}
	}
	w.blame(err)
	for _, o := range []*op{w.append, w.ack, w.move} {
		if o != nil {
			s.history.add(o)
		}
	}
}

// commit returns the commit of all parts, in the form of the library.
func (w *together) commit(values []string) seb.Commit {
	records := make([]seb.Record, len(values))
	for i, v := range values {
		records[i].Value = []byte(v)
	}
	all := seb.Commit{
		Appends: []seb.CommitAppend{{Topic: w.append.topic, Records: records}},
		Acks:    []seb.CommitAcks{{Topic: w.ack.topic, Queue: w.ack.queue, Tokens: w.ack.rawTokens()}},
	}
	if w.move != nil {
		all.Positions = []seb.CommitPositions{{Topic: w.move.topic, Consumer: w.move.consumer, Offsets: w.move.offsets}}
	}
	return all
}

// otherPart is the failure of a part of a failed commit if the error names another part as the cause.
const otherPart seb.Code = "other_part"

// blame corrects the failures of the parts if the error of the commit names the part that caused it. The named
// part keeps the error, and the other parts get the failure otherPart.
func (w *together) blame(err error) {
	var part string
	if e := (*seb.Error)(nil); errors.As(err, &e) {
		part = e.Part
	}
	for prefix, o := range map[string]*op{"appends": w.append, "positions": w.move, "acks": w.ack} {
		if o != nil && part != "" && !strings.HasPrefix(part, prefix) {
			o.failure, o.start, o.end = otherPart, 0, 0
		}
	}
}
