package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/state"
)

const (
	// patience is how long anything may take on a store that is well.
	patience = 2 * time.Minute
	idleTime = time.Hour
)

// setUp creates the topics that stay, before anything goes wrong that is not
// the brokers' own fate.
func (s *simulation) setUp() {
	for _, t := range s.plan.topics {
		for created := false; !created; s.sleep(100 * time.Millisecond) {
			if s.now() > lifetimeMax {
				s.giveUp("no broker takes the bucket")
			}
			for _, n := range s.nodes {
				if l := n.current(); l != nil && !created {
					_, _, err := l.broker.CreateTopic(context.Background(), t.name, seb.TopicOptions{Partitions: int32(t.partitions)})
					created = err == nil
				}
			}
		}
	}
}

// verifyLiveness expects every broker to answer, and to cost nothing when
// nobody asks, on a store that is well. All it does is part of the history.
func (s *simulation) verifyLiveness() {
	var lives []*life
	for _, n := range s.nodes {
		if l := n.current(); l != nil {
			lives = append(lives, l)
		} else {
			s.history.violate("Liveness", "node %s does not come up on a store that is well", n.name)
		}
	}
	for i, l := range lives {
		for j, t := range s.plan.topics {
			s.finalAppend(l, t.name, fmt.Sprintf("end.%d.%d", i, j))
		}
	}
	time.Sleep(2 * time.Second) // more than any StaleMax
	for _, l := range lives {
		for _, t := range s.plan.topics {
			for p := range t.partitions {
				s.finalReads(l, place{t.name, p})
			}
		}
	}
	before := s.sentBy(lives)
	time.Sleep(idleTime)
	if n := s.sentBy(lives) - before; n != 0 {
		s.history.violate("Liveness", "%d store requests in an hour without a client", n)
	}
}

func (s *simulation) sentBy(lives []*life) (n int) {
	for _, l := range lives {
		l.link.mu.Lock()
		n += l.link.sent
		l.link.mu.Unlock()
	}
	return n
}

// finalAppend appends one record. A broker that slept for longer than its lease,
// and can't know, may learn of that only after it has sent its claim, whose
// outcome is unknown then.
func (s *simulation) finalAppend(l *life, topic, id string) {
	o := &op{kind: appends, topic: topic, partition: -1, values: []string{id}}
	s.history.send(id, id)
	s.do(l, o, func(ctx context.Context, by caller) { by.append(ctx, o, "", o.values) })
	switch {
	case o.acked():
	case o.outcome == seb.Unknown && !s.plan.clock && !strings.HasSuffix(id, "again"):
		s.finalAppend(l, topic, id+".again")
	default:
		s.history.violate("Liveness", "on a store that is well: %v", o)
	}
}

func (s *simulation) do(l *life, o *op, do func(context.Context, caller)) {
	o.client, o.broker, o.via, o.call = "end", l.name, viaLibrary, s.now()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	do(ctx, library{l.broker, s.history})
	o.ret = s.now()
	s.history.add(o)
}

// finalReads reads a whole partition.
func (s *simulation) finalReads(l *life, p place) {
	for at := seb.Offset(0); ; {
		o := &op{kind: reads, topic: p.topic, partition: p.partition, from: seb.At(at)}
		s.do(l, o, func(ctx context.Context, by caller) {
			by.read(ctx, o, seb.FetchOptions{Limit: 1000, MaxBytes: 64 << 20})
		})
		if !o.acked() {
			s.history.violate("Liveness", "on a store that is well: %v", o)
		}
		if len(o.records) == 0 {
			return
		}
		at = o.next
	}
}

// verifyBucket compares what the bucket means with all that anybody was told.
func (s *simulation) verifyBucket() {
	if err := s.replay(); err != nil {
		s.history.violate("Determinism", "%v", err)
	}
	b, err := seb.Open(context.Background(), s.bucket, s.cfg.Virtual(s.plan.options(stream(s.cfg.Seed, "last"))))
	if err != nil {
		s.history.violate("LossIsLoud", "the bucket can't be opened in the end: %v", err)
		return
	}
	final := &log{records: map[place][]string{}}
	topics, err := b.Topics(context.Background())
	for _, t := range topics {
		for p := range t.Partitions {
			if err == nil {
				err = final.readAll(b, s.history, place{t.Name, p})
			}
		}
	}
	if err != nil {
		s.history.violate("LossIsLoud", "a recovery in the end can't read everything: %v", err)
	}
	if err := b.Close(); err != nil {
		s.history.violate("Liveness", "close: %v", err)
	}
	s.final = final
}

// log is what the bucket means: the ids of all records.
type log struct {
	records map[place][]string
}

func (l *log) readAll(b *seb.Broker, h *history, p place) error {
	l.records[p] = []string{}
	for r, err := range b.Read(context.Background(), p.topic, int32(p.partition), seb.Earliest) {
		if err != nil {
			return fmt.Errorf("%s/%d: %w", p.topic, p.partition, err)
		}
		id, ok := h.identify(string(r.Value))
		if !ok {
			h.violate("NoPhantom", "%s/%d holds %.40q at %d, which nobody sent", p.topic, p.partition, r.Value, r.Offset)
		}
		if int(r.Offset) != len(l.records[p]) {
			h.violate("DenseOffsets", "%s/%d: offset %d comes after %d records", p.topic, p.partition, r.Offset, len(l.records[p]))
		}
		l.records[p] = append(l.records[p], id)
	}
	return nil
}

// replay folds all commits that were ever first in their slots, and compares
// the state on the way with every checkpoint that was ever written.
func (s *simulation) replay() error {
	st := state.New()
	var hash commitlog.Hash
	for q := commitlog.Seq(1); ; q++ {
		body := s.bucket.original(commitlog.LogKey(q))
		if body == nil {
			return s.noneAbove(q)
		}
		c, err := commitlog.DecodeCommit(body)
		if err != nil {
			return fmt.Errorf("slot %d: %w", q, err)
		}
		if c.Seq != q || c.Prev != hash {
			return fmt.Errorf("slot %d holds a commit for slot %d after %v; the head before it has %v", q, c.Seq, c.Prev, hash)
		}
		if err := st.Apply(c); err != nil {
			return fmt.Errorf("slot %d: %w", q, err)
		}
		hash = c.Hash
		if body := s.bucket.original(commitlog.CheckpointKey(q)); body != nil {
			k, err := commitlog.DecodeCheckpoint(body)
			if err != nil {
				return fmt.Errorf("checkpoint %d: %w", q, err)
			}
			if k.Hash != hash || string(k.Body) != string(st.View().Encode()) {
				return fmt.Errorf("checkpoint %d is not what a replay of slots 1 to %d comes to", q, q)
			}
		}
	}
}

// noneAbove expects no slot at or above q to be taken.
func (s *simulation) noneAbove(q commitlog.Seq) error {
	slots, err := s.bucket.seqs(commitlog.LogPrefix)
	if n := len(slots); n > 0 && slots[n-1] >= q {
		return fmt.Errorf("slot %d is taken, slot %d never was", slots[n-1], q)
	}
	return err
}
