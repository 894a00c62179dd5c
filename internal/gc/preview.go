// Package gc tells what of a log is dead and may be deleted, and deletes it: the work of the command seb gc. What may be deleted
// is decided by package state, and deleted by package engine.
package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/offline"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// Options configure a run. Zero fields mean their defaults.
type Options struct {
	Memory, StateMemory int64 // as those of a broker
	// KeepDeleted is how long dead objects are to stay from now on; 0 leaves that as it is.
	KeepDeleted time.Duration
	// EndHold is the id of a hold that [Run] ends: see [Report]; "" ends none.
	EndHold string

	// Boot and BootID are the clock of this machine: the time since it was started, and the name of that start. Default: those
	// of this machine.
	Boot   func() time.Duration
	BootID format.BootID
}

func (o *Options) clock() {
	if o.Boot == nil {
		o.Boot, o.BootID = engine.BootClock(), engine.BootIDNow()
	}
}

// Counts are numbers of objects, by kind.
type Counts struct {
	Commits     int64 `json:"commits"`
	Data        int64 `json:"data_objects"` // segments too
	Checkpoints int64 `json:"checkpoints"`
	Orphans     int64 `json:"orphans"` // data objects to which no commit refers
	// Bytes is the size of the data objects. The sizes of the other objects are not known.
	Bytes int64 `json:"data_bytes"`
}

// Objects returns the number of objects of all kinds.
func (c *Counts) Objects() int64 { return c.Commits + c.Data + c.Checkpoints + c.Orphans }

// Waiting are dead objects that wait for the same.
type Waiting struct {
	For state.Wait `json:"waits_for"`
	// Until is when the checkpoint is old enough: for this machine if For is [state.WaitAge], and if it is [state.WaitSight], for
	// a broker that has run since the checkpoint was seen.
	Until time.Time `json:"until,omitzero"`
	Counts
}

// Hold keeps brokers from deleting what was live as of a slot.
type Hold struct {
	ID    string    `json:"id"`
	Slot  uint64    `json:"slot"`
	Until time.Time `json:"until"` // when it ends unless it is renewed
}

// Report says what of a log is dead.
type Report struct {
	Cluster string `json:"cluster"`
	Applied uint64 `json:"applied"` // the last slot
	Level   uint32 `json:"level"`
	// DeleteDelay is how long dead objects stay, at least. If NextFrom is not zero, it is NextDelay from then on.
	DeleteDelay format.Duration `json:"dead_stay"`
	NextDelay   format.Duration `json:"dead_stay_next,omitzero"`
	first       time.Duration   // that of the log's beginning
	NextFrom    time.Time       `json:"dead_stay_next_from,omitzero"`
	// Held is the lowest slot as of which somebody copies the log; 0 if nobody does. HeldUntil is when the last hold ends, unless it
	// is renewed.
	Held      uint64    `json:"held_slot,omitempty"`
	HeldUntil time.Time `json:"held_until,omitzero"`
	Holds     []Hold    `json:"holds,omitempty"`
	// Now is the time of the store's clock to which Until refers.
	Now time.Time `json:"store_time"`
	// Due is what a process that was just started on this machine may delete now, once it has done the job of compaction that is
	// due, if Compaction is true, and has said which checkpoint it has read.
	Due        Counts    `json:"due"`
	Compaction bool      `json:"compaction_due"`
	Waiting    []Waiting `json:"waiting"`
	// Problem is why a collection would delete nothing of Due; "" if it would.
	Problem string `json:"problem,omitempty"`
	// PartlyDead are segments with batches that nobody needs, and DeadBytes is the size of these batches. Compaction writes such a
	// segment again when half of it is dead.
	PartlyDead int   `json:"partly_dead_segments"`
	DeadBytes  int64 `json:"partly_dead_bytes"`
}

// Preview tells what of a log is dead, what of that may be deleted now, and what the rest waits for. It only reads.
func Preview(ctx context.Context, store objstore.Store, opts Options) (*Report, error) {
	opts.clock()
	o, err := offline.Open(ctx, store, opts.Boot, offline.Moment{})
	if offline.Damaged(err) {
		return nil, &Error{Damage: true, Hint: "run seb fsck, which names all damage", Err: err}
	}
	if err != nil {
		return nil, err
	}
	p := &preview{Log: o, live: map[state.Object]bool{}, dead: map[state.DataKey]state.Dead{}, deadCommits: map[format.Seq]format.Seq{}, waiting: map[Waiting]*Counts{}}
	p.survey(opts)
	if err := errors.Join(p.List(ctx, format.LogPrefix, p.commit), p.List(ctx, format.DataPrefix, p.data)); err != nil {
		return nil, err
	}
	p.oldCheckpoints()
	if n := len(o.Checkpoints); n > 0 && o.Loaded != o.Checkpoints[n-1] && p.report.Problem == "" {
		p.report.Problem = format.CheckpointKey(o.Checkpoints[n-1]) + " can't be read"
	}
	for key, counts := range p.waiting {
		if counts.Objects() == 0 {
			continue
		}
		p.report.Waiting = append(p.report.Waiting, Waiting{For: key.For, Until: key.Until, Counts: *counts})
	}
	slices.SortFunc(p.report.Waiting, func(a, b Waiting) int { return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.For, b.For)) })
	return &p.report, nil
}

type preview struct {
	*offline.Log
	report      Report
	clocks      state.CollectOptions
	plan        *state.Collection            // nil if nothing may be deleted
	writes      bool                         // Run writes a checkpoint
	planned     map[state.DataKey]int64      // sizes of the data objects in plan
	live        map[state.Object]bool        // the objects with batches, by key alone
	dead        map[state.DataKey]state.Dead // data objects
	deadCommits map[format.Seq]format.Seq    // commits that died after the bottom had passed them, and when
	waiting     map[Waiting]*Counts          // by For and Until
}

// survey looks into the state.
func (p *preview) survey(opts Options) {
	s := p.State
	now := p.Boot.Microseconds()
	p.clocks = state.CollectOptions{
		Now: p.Now.UnixMicro(), Delay: time.Duration(p.Cluster.DeleteDelay), Error: time.Duration(p.Cluster.Margin) / 4, Boot: opts.BootID, Since: now,
		Sight: func(format.Seq) int64 { return now }, // this process knows the checkpoints only now
	}
	bounds := engine.JobBounds(cmp.Or(opts.Memory, engine.DefaultMemory), p.Now)
	p.report.Compaction = engine.PlanJob(s, bounds, engine.DefaultCheckpointCommits, time.Duration(p.Cluster.DeleteDelay), p.Now) != nil
	if s.Level() >= format.LevelSegments && (p.report.Compaction || !s.Covered(opts.BootID)) {
		p.foresee()
	}
	p.plan = s.PlanCollection(p.clocks)
	p.planned = map[state.DataKey]int64{}
	if p.plan != nil {
		for _, ref := range p.plan.Data {
			p.planned[state.DataKey{Seq: ref.Seq, ID: ref.ID}] = int64(ref.Size)
		}
	}
	for o, live := range s.AllObjects() {
		switch {
		case live:
			p.live[keyOf(o)] = true
		case o.Data:
			p.dead[state.DataKey{Seq: format.Seq(o.Seq), ID: o.Tag}] = state.Dead{Object: o}
		}
	}
	for _, d := range s.Dead() {
		if d.Data {
			p.dead[state.DataKey{Seq: format.Seq(d.Seq), ID: d.Tag}] = d
		} else {
			p.deadCommits[format.Seq(d.Seq)] = d.Slot
		}
	}
	p.report.Cluster, p.report.Applied, p.report.Level = p.Cluster.ID.String(), uint64(s.Seq()), s.Level()
	p.report.DeleteDelay = max(format.Duration(s.Keeps(p.clocks.Now)), p.Cluster.DeleteDelay)
	p.report.first = max(s.DeleteDelay(), time.Duration(p.Cluster.DeleteDelay))
	if next, from := s.NextKeeps(); from > p.clocks.Now {
		p.report.NextDelay, p.report.NextFrom = format.Duration(next), time.UnixMicro(from).UTC()
	}
	for _, x := range s.Holds(p.clocks.Now) {
		p.report.Holds = append(p.report.Holds, Hold{ID: holdID(x.ID), Slot: uint64(x.Slot), Until: time.UnixMicro(x.Until).UTC()})
		if p.report.Held == 0 || uint64(x.Slot) < p.report.Held {
			p.report.Held = uint64(x.Slot)
		}
		if until := time.UnixMicro(x.Until).UTC(); until.After(p.report.HeldUntil) {
			p.report.HeldUntil = until
		}
	}
	p.report.Now, p.report.Waiting = p.Now.UTC(), []Waiting{}
	for _, n := range s.Segments() {
		if n.Live() < n.Bytes {
			p.report.PartlyDead, p.report.DeadBytes = p.report.PartlyDead+1, p.report.DeadBytes+n.Bytes-n.Live()
		}
	}
}

// foresee sets what the state will be once [Run] has said which checkpoint it has read.
func (p *preview) foresee() {
	seen, covers := p.State.Seen(), p.State.CoversDead()
	said := len(seen) > 0 && seen[len(seen)-1].Slot >= p.Loaded
	p.writes = p.report.Compaction || said || covers == nil || !covers(p.Loaded, p.Bottom)
	p.clocks.Newer, p.clocks.Floor = true, engine.NextFloor(p.State.Draft(p.Now.UnixMicro()))
}

// keyOf returns an object with what is in its key.
func keyOf(o state.Object) state.Object {
	if o.Size = 0; !o.Data {
		o.Tag = 0
	}
	return o
}

// wait returns where objects count that died as covers tells, see [state.State.Waiting].
func (p *preview) wait(covers func(*state.Seen) bool) *Counts {
	if p.State.Level() < format.LevelSegments {
		return p.waits(state.WaitLevel)
	}
	w, until := p.State.Waiting(p.clocks, covers)
	if w == "" {
		w = state.WaitNext
	}
	if until > 0 {
		return p.waitsUntil(Waiting{For: w, Until: time.UnixMicro(until).UTC()})
	}
	return p.waits(w)
}

func (p *preview) waits(w state.Wait) *Counts { return p.waitsUntil(Waiting{For: w}) }

func (p *preview) waitsUntil(key Waiting) *Counts {
	c := p.waiting[key]
	if c == nil {
		c = &Counts{}
		p.waiting[key] = c
	}
	return c
}

func (p *preview) commit(key string) {
	slot, ok := format.ParseSeqKey(format.LogPrefix, key)
	died, noted := p.deadCommits[slot]
	low := p.State.Level() < format.LevelSegments
	switch {
	case !ok || slot > p.State.Seq():
	case p.plan != nil && slot < p.plan.Collected.Bottom && !p.plan.Keep[slot]:
		p.report.Due.Commits++
	case p.live[state.Object{Seq: uint64(slot)}], (low || slot >= p.State.Bottom()) && slot > p.Loaded: // a start needs it
	case low:
		p.waits(state.WaitLevel).Commits++
	case slot >= p.State.Bottom():
		p.waits(state.WaitCompaction).Commits++
	default:
		p.wait(func(x *state.Seen) bool { return x.Bottom > slot && (!noted || x.Slot >= died) }).Commits++
	}
}

func (p *preview) data(key string) {
	ref, ok := format.ParseDataKey(key)
	at := state.DataKey{Seq: ref.Seq, ID: ref.ID}
	size, planned := p.planned[at]
	dead, died := p.dead[at]
	switch {
	case !ok:
	case planned:
		p.report.Due.Data, p.report.Due.Bytes = p.report.Due.Data+1, p.report.Due.Bytes+size
	case p.plan != nil && ref.Seq < p.plan.Floor && !p.plan.Known[at]:
		p.report.Due.Orphans++
	case p.live[state.Object{Data: true, Seq: uint64(ref.Seq), Tag: ref.ID}]:
	case died:
		c := p.wait(func(x *state.Seen) bool { return x.Slot >= dead.Slot })
		c.Data, c.Bytes = c.Data+1, c.Bytes+int64(dead.Size)
	case p.State.Level() < format.LevelSegments:
		p.waits(state.WaitLevel).Orphans++
	case ref.Seq < p.State.DataFloor():
		p.waits(state.WaitNext).Orphans++
	default:
		p.waits(state.WaitFloor).Orphans++
	}
}

// oldCheckpoints counts the checkpoints except the newest two, which always stay.
func (p *preview) oldCheckpoints() {
	keep := 2
	if p.writes {
		keep = 1 // of those in the list
	}
	due := 0
	if p.plan != nil {
		slot := p.plan.Collected.Slot
		at := slices.Index(p.Checkpoints, slot)
		if at < 0 || at == len(p.Checkpoints)-1 && !p.writes {
			p.report.Problem = fmt.Sprintf("the store does not list %s and a newer checkpoint", format.CheckpointKey(slot))
		} else {
			due = max(0, min(at, len(p.Checkpoints)-keep))
		}
	}
	p.report.Due.Checkpoints = int64(due)
	for i := due; i < len(p.Checkpoints)-2; i++ {
		slot := p.Checkpoints[i]
		c := p.wait(func(x *state.Seen) bool { return x.Slot > slot })
		if c == p.waiting[Waiting{For: state.WaitSeen}] || c == p.waiting[Waiting{For: state.WaitNewer}] {
			c = p.waits(state.WaitNext) // no checkpoint is written for the sake of a checkpoint
		}
		c.Checkpoints++
	}
}
