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
	// StoreTime is the store's time when Cut returned, as the broker estimates it: it adds the time that has passed on its own
	// clocks since the store's last answers. The last of these answers is StoreTimeAge old.
	StoreTime    time.Time
	StoreTimeAge time.Duration
}

// CutOptions are the options of [Broker.Cut].
type CutOptions struct {
	// Later, unless it is zero, makes Cut wait until the broker has applied a commit with a later log time. The wait
	// causes no request to the store, and Cut does not sync first. But if the broker has learned within 10 minutes of
	// commits of a broker that is not connected to it, it syncs while Cut waits as for [Broker.Follow].
	Later time.Time
	// Existing leaves out the topics that do not exist, in place of an error.
	Existing bool
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
func (b *Broker) Cut(ctx context.Context, topics []string, o CutOptions) (_ Cut, err error) {
	defer reads(&err)
	if most := b.opts.Limits.CommitParts; len(topics) > most {
		return Cut{}, limited(CodeInvalidRequest, most, "the cut names %d topics; at most %d are allowed", len(topics), most)
	}
	if err := change.CheckCut(topics); err != nil {
		return Cut{}, err
	}
	if err := b.engine.Usable(); err != nil {
		return Cut{}, err
	}
	if o.Later.IsZero() {
		if err := b.engine.SyncIfOld(ctx); err != nil {
			return Cut{}, err
		}
	}
	for i := 0; i < len(topics) && !o.Existing; i++ {
		if _, _, err := b.findTopic(ctx, topics[i]); err != nil {
			return Cut{}, err
		}
	}
	if !o.Later.IsZero() {
		if err := b.engine.AwaitLater(ctx, o.Later.UnixMicro()); err != nil {
			return Cut{}, err
		}
	}
	var found change.Cut
	if b.engine.View(func(s *state.State) { found, err = change.CutOf(s, topics, o.Existing) }); err != nil {
		return Cut{}, err
	}
	cut := Cut{LogTime: time.UnixMicro(found.Time).UTC(), Topics: make([]TopicCut, len(found.Topics))}
	for i, t := range found.Topics { // not while the state is locked: maps take long to fill
		cut.Topics[i] = TopicCut{Topic: t.Name, ID: b.TopicTag(t.ID), Ends: t.Offsets()}
	}
	cut.StoreTime, cut.StoreTimeAge = b.engine.StoreTime()
	return cut, nil
}
