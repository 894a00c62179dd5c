package seb

import (
	"context"
	"time"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/state"
)

// Cut says where topics end in one commit of the log: see [Broker.Cut].
type Cut struct {
	// LogTime is the log time of the commit. Records before the ends have this log time or an earlier one, all other records
	// have a later one: see [Record].
	LogTime time.Time
	Topics  []TopicCut
}

// TopicCut says where a topic ends in one commit of the log. It is also a condition of a [Commit].
type TopicCut struct {
	Topic string
	ID    string  // the topic's tag: see [Broker.TopicTag]
	Ends  Offsets // the end of every partition: the offset of the next record
}

// Cut returns where the topics end, and the log's time, in the last commit that the broker knows. If the last sync is
// older than Options.StaleMax, Cut first syncs. It fails with CodeTopicNotFound if a topic does not exist. It takes at
// most [Limits.CommitParts] topics, and each only once.
//
// To decide that something did not happen by a deadline, read the topics up to the ends of a cut, and make a commit with
// [Commit].After, the deadline, and with [Commit].Ends, the Topics of the cut. If the broker accepts the commit, the topics
// have no records up to the deadline that the reader has not seen.
func (b *Broker) Cut(ctx context.Context, topics []string) (_ Cut, err error) {
	defer reads(&err)
	switch most := b.opts.Limits.CommitParts; {
	case len(topics) == 0:
		return Cut{}, refused(CodeInvalidRequest, "the cut names no topics")
	case len(topics) > most:
		return Cut{}, limited(CodeInvalidRequest, most, "the cut names %d topics; at most %d are allowed", len(topics), most)
	}
	if err := b.current(ctx); err != nil {
		return Cut{}, err
	}
	named := map[string]bool{}
	for _, name := range topics {
		if named[name] {
			return Cut{}, refused(CodeInvalidRequest, "the cut names topic %q twice", name)
		}
		named[name] = true
		if _, _, err := b.findTopic(ctx, name); err != nil {
			return Cut{}, err
		}
	}
	cut, ends := Cut{Topics: make([]TopicCut, len(topics))}, make([][]Offset, len(topics))
	b.engine.View(func(s *state.State) {
		cut.LogTime = time.UnixMicro(s.Time()).UTC()
		for i, name := range topics {
			t := s.Topic(name)
			if t == nil {
				err = change.TopicNotFound(name) // it was deleted meanwhile
				return
			}
			cut.Topics[i] = TopicCut{Topic: name, ID: b.TopicTag(t.ID), Ends: Offsets{}}
			ends[i] = make([]Offset, len(t.Partitions))
			for p := range t.Partitions {
				ends[i][p] = t.Partitions[p].End
			}
		}
	})
	if err != nil {
		return Cut{}, err
	}
	for i := range ends { // not while the state is locked: maps take long to fill
		for p, end := range ends[i] {
			cut.Topics[i].Ends[int32(p)] = end
		}
	}
	return cut, nil
}
