package explore

import (
	"errors"
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// fold is the index, in folds.states, of the state that a log leads to.
type fold uint32

// folds has every state that a log has led to so far, each once. It also has the outcome of each commit that
// was tried on these states. Package state computes the states, as in brokers: every commit is encoded,
// decoded and applied to a state that was encoded and decoded.
type folds struct {
	states []knownFold
	byBody map[string]fold
	after  map[attempted]outcome
	// finished has the folds for which checkNext has shown that a next owner can finish all work.
	finished map[fold]bool
}

// knownFold is the snapshot of a state, and what brokers learn from the state.
type knownFold struct {
	body    string
	end     int // how many records were appended
	epoch   int
	owned   bool
	records [recordsMax]recordState
}

// recordState is what the state tells about a record.
type recordState struct {
	state.Attempt
	done bool
	sure bool // false if the record is below the dispatch limit, and only the queue's owner knows whether it was handed out
}

// over reports whether the record needs no more work.
func (r *recordState) over() bool { return r.done || r.DeadLetter }

// fresh reports whether the record is not done, and the log shows no delivery of the record.
func (r *recordState) fresh() bool { return !r.done && r.Number == 0 }

type attempted struct {
	from   fold
	change change
}

type outcome struct {
	fold  fold
	taken bool
}

// The ids that every world uses.
const (
	theTopic = 1
	theQueue = 1
)

// newFolds returns a folds with one state, as fold 0: an empty topic with a queue.
func newFolds(attempts int) *folds {
	f := &folds{byBody: map[string]fold{}, after: map[attempted]outcome{}, finished: map[fold]bool{}}
	s := state.New()
	if err := apply(s,
		&format.TopicCreated{ID: theTopic, Partitions: 1, Name: "topic"},
		&format.QueueSet{ID: theQueue, Topic: theTopic, Name: "queue", Config: format.QueueConfig{LeaseMS: 1, Attempts: uint32(attempts)}},
	); err != nil {
		panic(err)
	}
	f.add(s)
	return f
}

func (f *folds) at(n fold) *knownFold { return &f.states[n] }

// try commits a change on top of the state that the argument from names. taken reports whether that state accepts
// the change.
func (f *folds) try(from fold, c change) (to fold, taken bool) {
	what := attempted{from, c}
	o, ok := f.after[what]
	if !ok {
		o = f.commit(from, c)
		f.after[what] = o
	}
	return o.fold, o.taken
}

func (f *folds) commit(from fold, c change) outcome {
	k := f.at(from)
	// A state has the slot of each batch. Take the number of records as the slot: then two logs with the
	// same records, but different numbers of other commits, lead to the same state.
	s, err := state.Decode(format.Seq(k.end), []byte(k.body))
	if err != nil {
		panic(fmt.Sprintf("explore: the snapshot of a fold is refused: %v", err))
	}
	switch err = apply(s, c.entries(k.end)...); {
	case errors.Is(err, state.ErrNonsense):
		return outcome{}
	case err != nil:
		panic(err)
	}
	return outcome{f.add(s), true}
}

// apply encodes and decodes a commit of entries, as brokers do, and applies it to s.
func apply(s *state.State, entries ...format.Entry) error {
	c := &format.Commit{Seq: s.Seq() + 1, Entries: entries}
	for _, it := range entries {
		if b, ok := it.(*format.Batch); ok {
			c.PayloadSize = b.Size
		}
	}
	read, err := format.DecodeCommit(format.EncodeCommit(c))
	if err != nil {
		return fmt.Errorf("explore: a commit can't be read: %w", err)
	}
	return s.Apply(read)
}

// add returns the index of a state in f.states. It appends a state that f.states does not have yet.
func (f *folds) add(s *state.State) fold {
	body := string(s.View().Encode())
	if n, ok := f.byBody[body]; ok {
		return n
	}
	d := s.Draft(0)
	end, _ := d.End(theTopic, 0)
	epoch, owned := d.QueueEpoch(theQueue)
	k := knownFold{body: body, end: int(end), epoch: int(epoch), owned: owned}
	for o := range k.records[:end] {
		r := &k.records[o]
		r.done, r.Attempt, r.sure = d.RecordState(theQueue, 0, format.Offset(o))
	}
	n := fold(len(f.states))
	f.states = append(f.states, k)
	f.byBody[body] = n
	return n
}
