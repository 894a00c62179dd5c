package sim

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
)

// decision is what an append has as its conditions: nothing came to the topics of a cut since, and it is later than a time.
type decision struct {
	cut     seb.Cut
	after   time.Time
	spoiled bool // the ends of the cut were changed, so that they can never hold again
}

// decide takes a cut of some topics, and appends to a partition on condition that the topics have nothing else up to a time.
// Other requests may come in between, through other brokers.
func (c *client) decide(l *life, p place) {
	topics := []string{c.sim.plan.topics[c.rng.IntN(len(c.sim.plan.topics))].name}
	if n := len(c.churn); n > 0 && chance(c.rng, 0.3) {
		topics = append(topics, c.churn[n-1])
	}
	by, _ := c.caller(l)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d := &decision{}
	var ok bool
	if d.cut, ok = by.cut(ctx, l.name, topics); !ok {
		return
	}
	d.after = d.cut.LogTime.Add(pick(c.rng, -time.Hour, -time.Microsecond, 0, time.Microsecond, 2*time.Second, time.Minute))
	for i := range int32(len(d.cut.Topics[0].Ends)) {
		if ends := d.cut.Topics[0].Ends; ends[i] > 0 && chance(c.rng, 0.1) {
			ends[i]--
			d.spoiled = true
		}
	}
	if chance(c.rng, 0.5) {
		c.think()
		if next := c.sim.nodes[c.rng.IntN(len(c.sim.nodes))].current(); next != nil {
			l = next
		}
	}
	o := &op{kind: appends, topic: p.topic, partition: p.partition, decision: d}
	values := c.compose(o)
	c.call(l, o, func(ctx context.Context, by caller) { by.decide(ctx, o, values) })
	for _, r := range o.ranges {
		c.ends[p] = max(c.ends[p], r.Offset+seb.Offset(r.Count))
	}
}

func (l library) cut(ctx context.Context, _ string, topics []string) (seb.Cut, bool) {
	cut, err := l.broker.Cut(ctx, topics, seb.CutOptions{})
	return cut, err == nil
}

func (l library) decide(ctx context.Context, o *op, values []string) {
	a := seb.CommitAppend{Topic: o.topic, Options: []seb.AppendOption{seb.ToPartition(int32(o.partition))}}
	for _, v := range values {
		a.Records = append(a.Records, seb.Record{Value: []byte(v)})
	}
	done, err := l.broker.Commit(ctx, seb.Commit{Appends: []seb.CommitAppend{a}, Ends: o.decision.cut.Topics, After: o.decision.after})
	if err == nil {
		o.ranges = done.Appends[0].Ranges
	}
	o.fail(err)
}

// cutJSON is a cut as brokers write it.
type cutJSON struct {
	LogTime time.Time `json:"log_time"`
	Topics  []cutTopicJSON
}

type cutTopicJSON struct {
	Topic string      `json:"topic"`
	ID    string      `json:"id"`
	Ends  seb.Offsets `json:"ends"`
}

func (w wire) cut(ctx context.Context, broker string, topics []string) (cut seb.Cut, ok bool) {
	answer := w.doAt(ctx, &op{broker: broker, kind: describes}, http.MethodGet, "cut?"+url.Values{"topic": topics}.Encode(), "application/json", nil)
	if answer == nil {
		return seb.Cut{}, false
	}
	var j cutJSON
	if err := json.Unmarshal(answer.body, &j); err != nil || len(j.Topics) != len(topics) {
		w.history.violate("SlotAgreement", "the cut of %v is %s: %v", topics, answer.body, err)
		return seb.Cut{}, false
	}
	cut.LogTime = j.LogTime
	for _, t := range j.Topics {
		cut.Topics = append(cut.Topics, seb.TopicCut(t))
	}
	return cut, true
}

func (w wire) decide(ctx context.Context, o *op, values []string) {
	type record struct {
		Value string `json:"value"`
	}
	type appending struct {
		Topic     string   `json:"topic"`
		Partition int      `json:"partition"`
		Records   []record `json:"records"`
	}
	var commit struct {
		Appends []appending    `json:"appends"`
		Ends    []cutTopicJSON `json:"ends"`
		After   time.Time      `json:"after"`
	}
	a := appending{Topic: o.topic, Partition: o.partition}
	for _, v := range values {
		a.Records = append(a.Records, record{v})
	}
	commit.Appends, commit.After = []appending{a}, o.decision.after
	for _, t := range o.decision.cut.Topics {
		commit.Ends = append(commit.Ends, cutTopicJSON(t))
	}
	body, err := json.Marshal(commit)
	if err != nil {
		panic(err) // can't happen: all of it is texts, numbers and a time
	}
	answer := w.doAt(ctx, o, http.MethodPost, "commits", "application/json", body)
	if answer == nil {
		return
	}
	var done struct{ Appends []rangesJSON }
	if err := json.Unmarshal(answer.body, &done); err != nil || len(done.Appends) != 1 {
		o.lose(err)
		return
	}
	o.ranges = done.Appends[0].ranges()
}

// checkDecisions expects the records of an append with a decision to be in the log only where both conditions held: in the
// slot before, the topics of the cut had exactly the ends of the cut, and the commit is later than the time. It expects no
// refusal because of a condition that held all the time.
func (x *checker) checkDecisions(ops []*op) {
	for _, o := range ops {
		d := o.decision
		if d == nil {
			continue
		}
		for _, id := range o.values {
			for _, at := range x.at[id] {
				info := x.final.all[x.lives[id]].partitions[at.partition].info[at.offset]
				if info.time <= d.after.UnixMicro() {
					x.history.violate("Condition", "%s has the log time %v, which is not after %v: %v", id, time.UnixMicro(info.time).UTC(), d.after, o)
				}
				for _, t := range d.cut.Topics {
					if in := x.final.named(t); !in.endedAt(t, info.at.seq) {
						x.history.violate("Condition", "%s is in slot %d, before which topic %s did not end at %v: %v", id, info.at.seq, t.Topic, t.Ends, o)
					}
				}
			}
		}
		if o.failure == seb.CodeTooEarly && d.after.Before(d.cut.LogTime) {
			x.history.violate("Condition", "the append was refused as too early after a cut at %v: %v", d.cut.LogTime, o)
		}
		if o.failure != seb.CodeEndsConflict || d.spoiled {
			continue
		}
		changed := false
		for _, t := range d.cut.Topics {
			changed = changed || !x.final.named(t).endedAt(t, 1<<62)
		}
		if !changed {
			x.history.violate("Condition", "the append was refused because of ends that the topics still have: %v", o)
		}
	}
}

// named returns the topic with the id in a cut; nil if the log never had it.
func (l *log) named(t seb.TopicCut) *incarnation {
	_, number, _ := strings.Cut(t.ID, ".")
	id, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return nil
	}
	return l.all[format.TopicID(id)]
}

// endedAt reports whether the topic existed in the slot before seq, and ended as a cut says.
func (in *incarnation) endedAt(t seb.TopicCut, seq format.Seq) bool {
	if in == nil || in.name != t.Topic || in.deletedIn > 0 && in.deletedIn < seq {
		return false
	}
	partitions := 0
	for i := range in.partitions {
		p := &in.partitions[i]
		if p.addedIn >= seq {
			continue
		}
		partitions++
		end := 0
		for end < len(p.info) && p.info[end].at.seq < seq {
			end++
		}
		if want, ok := t.Ends[int32(i)]; !ok || int(want) != end {
			return false
		}
	}
	return partitions > 0 && partitions == len(t.Ends)
}
