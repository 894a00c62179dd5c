package seb

import (
	"context"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/digest"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
)

// Commit is a set of changes that the broker makes together, or not at all. With a Commit, a worker
// that reads, computes and writes processes each record exactly once: the log has both the
// worker's results and the positions or acknowledgements that belong to them, or neither.
type Commit struct {
	Appends   []CommitAppend
	Positions []CommitPositions
	Acks      []CommitAcks

	// Ends and After are conditions, which the broker checks at the commit's place in the log. See [Broker.Cut] for what a
	// program can decide with them.

	// Ends names topics that must not have changed: in the slot before the commit, each of them has that id, exactly those
	// partitions, and those ends. Otherwise the commit fails with CodeEndsConflict. Records that other requests append in the
	// same commit don't count: they have the log time of the commit itself.
	Ends []TopicCut
	// After, unless it is zero, is a time that the commit's log time must be later than. Otherwise the commit fails with
	// CodeTooEarly.
	After time.Time

	// Rides makes the commit wait for a commit that is made anyway, for other requests, by this broker or by a connected one
	// that commits for it: it makes none due by itself. The wait lasts until ctx ends or the broker closes, without regard to
	// Options.AppendTimeout. Then the commit was not made, and the [Outcome] is [NotCommitted], unless it had left the broker.
	// A commit that rides can't have an [IdempotencyKey]. All that ride on a broker together have at most 64 KiB. If the topic
	// of an append does not exist, a commit creates it at once.
	Rides bool
}

// CommitAppend is an append of a commit, with the arguments of [Broker.Append]. Options must not
// have an [IdempotencyKey], which is an option of the whole commit. If earlier appends of the
// commit go to the same partition, [IfOffset] must name the offset after their records.
type CommitAppend struct {
	Topic   string
	Records []Record
	Options []AppendOption
}

// CommitPositions sets positions of a consumer, as [Consumer.Commit] does. No other part of the
// commit may name the same consumer.
type CommitPositions struct {
	Topic, Consumer string
	// Expect has positions that the consumer must have. If the consumer has other positions, the
	// commit fails with CodePositionConflict. So of two workers that have read the same records,
	// only one writes its results. Partitions that Expect does not name are not checked.
	Expect Offsets
	// Version, unless it is empty, is the version that the consumer must have: see
	// [ConsumerInfo.Version]. If the consumer has another version, because another worker has
	// set its positions, the commit fails with CodePositionConflict. A worker needs Version if
	// its results depend on the records of all partitions, as a sum does.
	Version string
	// Offsets are the consumer's new positions.
	Offsets Offsets
}

// CommitAcks acknowledges a queue's records, as [Queue.Ack] does. But if the broker refuses one of
// the tokens, or if a record is done already, the broker refuses the whole commit. No other part of
// the commit may name the same queue.
type CommitAcks struct {
	Topic, Queue string
	Tokens       []string
}

// Committed is the result of a commit: the offsets of the records, and the new versions of the consumers.
type Committed struct {
	Appends []Appended // one for each of [Commit].Appends
	// Versions has the new version of each consumer whose positions the commit set, in the
	// order of [Commit].Positions. Versions is empty if Replayed is true.
	Versions []string
	// Replayed is true if nothing was changed, because the log has an earlier commit with
	// the same idempotency key. Then Appends are those of the earlier commit.
	Replayed bool
}

// Commit makes all changes of c in one commit of the log, or none. It returns once the
// store has the commit. If the broker refuses one part, it refuses the whole commit, and
// [Error.Part] names the part. The broker checks all conditions at the commit's place in the
// log, so no other commit can come between the checks and the changes.
//
// The only option is [IdempotencyKey], for the whole commit. Callers with different API keys
// (see [WithAccess]) can use the same idempotency key for different commits; callers without
// an API key can't. If the topic of an append does not exist, Commit creates it as
// [Broker.Append] does, before the commit: the topic stays even if the commit is refused.
func (b *Broker) Commit(ctx context.Context, c Commit, opts ...AppendOption) (_ Committed, err error) {
	defer writes(&err)
	p, err := b.CommitAsync(ctx, c, opts...)
	if err != nil {
		return Committed{}, err
	}
	return p.Wait(ctx)
}

// PendingCommit is a commit whose outcome is not known yet.
type PendingCommit struct {
	ticket *engine.Ticket
	topics []string       // the topic of each append
	change *change.Commit // the engine may write to it until the outcome is known
}

// CommitAsync is [Broker.Commit] without the wait for the commit: see [Broker.AppendAsync].
func (b *Broker) CommitAsync(ctx context.Context, c Commit, opts ...AppendOption) (_ *PendingCommit, err error) {
	defer writes(&err)
	return b.commitAsync(ctx, c, newAppendOptions(opts))
}

// Done returns a channel that is closed when the outcome is known.
func (c *PendingCommit) Done() <-chan struct{} { return c.ticket.Done() }

// Wait waits for the outcome, as [Pending.Wait] does.
func (c *PendingCommit) Wait(ctx context.Context) (_ Committed, err error) {
	defer writes(&err)
	if err := c.ticket.Wait(ctx); err != nil {
		return Committed{}, err
	}
	done := Committed{Replayed: c.ticket.Replayed()}
	for i, topic := range c.topics {
		done.Appends = append(done.Appends, appendedTo(topic, c.ticket.Ranges(i)))
	}
	if !done.Replayed {
		for _, m := range c.change.Moves {
			done.Versions = append(done.Versions, m.Version)
		}
	}
	return done, nil
}

func (b *Broker) commitAsync(ctx context.Context, c Commit, o appendOptions) (*PendingCommit, error) {
	r, ctx := newRequest(ctx)
	if err := b.engine.Usable(); err != nil {
		return nil, err
	}
	if err := c.check(b.opts.Limits.CommitParts, o); err != nil {
		return nil, err
	}
	each, appends, err := b.commitAppends(c)
	if err != nil {
		return nil, err
	}
	parts, err := c.change(clusterTag(b.engine))
	if err != nil {
		return nil, err
	}
	r.Appends, r.Rides = appends, c.Rides
	for _, m := range parts.Moves {
		r.ExtraBytes += int64(len(m.To)+len(m.Expect)) * moveBytes
	}
	for _, a := range parts.Acks {
		r.ExtraBytes += int64(len(a.Answers)) * ackBytes
	}
	for _, e := range parts.Ends {
		r.ExtraBytes += int64(len(e.Ends)) * moveBytes
	}
	b.engine.Begin(ctx, r)
	if len(parts.Moves)+len(parts.Acks) > 0 || c.conditional() {
		r.Change = parts
	}
	if o.Keyed {
		by, _ := callerOf(ctx)
		r.Key = c.key(o.Key, each, by)
		if b.engine.Replay(r, b.engine.Now()) { // no sync is needed: a commit that this broker knows stays in the log
			return b.sendCommit(ctx, r, parts)
		}
	}
	for i, a := range appends {
		if err := b.route(ctx, a, c.Appends[i].Records, each[i]); err != nil {
			if r.Key != nil && b.engine.Replay(r, b.engine.Time()) { // r repeats an earlier commit, whose topic was deleted since
				return b.sendCommit(ctx, r, parts)
			}
			return nil, ofPart(a.Part, err)
		}
	}
	if err := b.checkConditions(ctx, r, func(i int) bool { return each[i].inTurn(c.Appends[i].Records) }); err != nil {
		return nil, err
	}
	return b.sendCommit(ctx, r, parts)
}

func (b *Broker) sendCommit(ctx context.Context, r *engine.Request, parts *change.Commit) (*PendingCommit, error) {
	ticket, err := b.engine.Submit(ctx, r)
	if err != nil {
		return nil, err
	}
	topics := make([]string, len(r.Appends))
	for i, a := range r.Appends {
		topics[i] = a.Topic
	}
	return &PendingCommit{ticket, topics, parts}, nil
}

// change returns what the commit changes in addition to its appends, and its conditions.
func (c Commit) change(cluster string) (*change.Commit, error) {
	moves, err := c.moves()
	if err != nil {
		return nil, err
	}
	acks, err := c.acks(cluster)
	if err != nil {
		return nil, err
	}
	x := &change.Commit{Moves: moves, Acks: acks}
	return x, c.conditions(x, cluster)
}

// check refuses a commit that has no parts, too many parts, or invalid options.
func (c Commit) check(most int, o appendOptions) error {
	changes := len(c.Appends) + len(c.Positions) + len(c.Acks)
	parts := changes + len(c.Ends)
	for _, a := range c.Acks {
		parts += max(0, len(a.Tokens)-1)
	}
	switch {
	case changes == 0:
		e := refused(CodeInvalidRequest, "the commit has no parts")
		if c.conditional() {
			e.Detail = "the commit has conditions, but nothing to do if they hold"
		}
		e.Hint = "append records, move consumers, acknowledge what queues have handed out, or several of these"
		return e
	case parts > most:
		return limited(CodeRequestTooLarge, most, "the commit has %d parts; at most %d are allowed", parts, most)
	case c.Rides && o.Keyed:
		return refused(CodeInvalidRequest, "a commit that rides has no idempotency key: it may wait for longer than the log remembers keys")
	case o.Partition >= 0 || o.Partitions != nil || o.Conditional:
		e := refused(CodeInvalidRequest, "a commit takes no option other than an idempotency key")
		e.Hint = "give the option to an append of the commit"
		return e
	}
	return o.checkKey()
}

// commitAppends returns the commit's appends, and the options of each.
func (b *Broker) commitAppends(c Commit) (each []appendOptions, appends []*engine.Append, _ error) {
	for i, a := range c.Appends {
		name := fmt.Sprintf("appends/%d", i)
		o := newAppendOptions(a.Options)
		if o.Keyed {
			e := refused(CodeInvalidRequest, "an append within a commit has no idempotency key of its own")
			e.Hint = "pass IdempotencyKey to Commit, not to its appends"
			return nil, nil, ofPart(name, e)
		}
		p, err := b.newAppend(a.Topic, a.Records, o)
		if err != nil {
			return nil, nil, ofPart(name, err)
		}
		p.Part = name
		each, appends = append(each, o), append(appends, p)
	}
	return each, appends, b.opts.checkSize(appends...)
}

// key returns the key by which the log recognises that the same caller sends the commit again.
func (c Commit) key(key string, each []appendOptions, by caller) *engine.Key {
	k := &engine.Key{}
	for i := range max(1, len(c.Appends)) {
		k.Hashes = append(k.Hashes, digest.Key(int64(-1-i), key, 0))
	}
	if by.key != 0 {
		k.Unscoped = k.Hashes
		k.Hashes = make([]format.Digest, len(k.Unscoped))
		for i := range k.Hashes {
			k.Hashes[i] = digest.Key(int64(-1-i), key, uint64(by.key))
		}
	}
	d := digest.New()
	d.Number(int64(len(c.Appends)))
	for i, a := range c.Appends {
		d.Texts(a.Topic)
		d.Append(records(a.Records), len(a.Records), each[i].Append)
	}
	d.Number(int64(len(c.Positions)))
	for _, p := range c.Positions {
		d.Texts(p.Topic, p.Consumer)
		d.Offsets(p.Expect)
		d.Offsets(p.Offsets)
		d.Texts(p.Version)
	}
	if len(c.Acks) > 0 {
		d.Number(int64(len(c.Acks)))
		for _, a := range c.Acks {
			d.Texts(a.Topic, a.Queue)
			d.Number(int64(len(a.Tokens)))
			d.Texts(a.Tokens...)
		}
	}
	if c.conditional() { // a commit without conditions must have the same hash as in old versions of Seb, which have no conditions
		d.Number(-1) // no commit has that many acknowledgements
		d.Number(c.After.UnixMicro())
		d.Number(int64(len(c.Ends)))
		for _, e := range c.Ends {
			d.Texts(e.Topic, e.ID)
			d.Offsets(e.Ends)
		}
	}
	k.Print = d.Sum()
	return k
}
