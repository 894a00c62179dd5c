package state

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb/internal/format"
)

// queueWorld is a queue with owners that come and go, and workers that answer at any time. Each
// owner knows the log up to its last sync.
type queueWorld struct {
	t      *rapid.T
	log    *State
	owners []*queueOwner
	// delivered says, by offset, which delivery numbers were used.
	delivered map[format.Offset]map[uint32]bool
	acked     map[format.Offset]uint32
	before    map[format.Offset]uint32 // by offset: the number of deliveries before the redrive
	most      uint32
}

// queueOwner is a broker that owns the queue, or believes that it does.
type queueOwner struct {
	epoch format.Epoch
	view  *State                 // the state at its last sync
	out   map[format.Offset]bool // offsets that it has handed out for the first time
	done  bool                   // it has released the queue
}

func newQueueWorld(t *rapid.T) *queueWorld {
	w := &queueWorld{t: t, log: New(), delivered: map[format.Offset]map[uint32]bool{}, acked: map[format.Offset]uint32{}, before: map[format.Offset]uint32{}, most: 3}
	w.must(
		&format.TopicCreated{ID: 1, Partitions: 1, Name: "t"},
		&format.QueueSet{ID: 1, Topic: 1, Name: "q", Config: format.QueueConfig{LeaseMS: 1, Attempts: w.most}},
	)
	return w
}

func (w *queueWorld) try(entries ...format.Entry) error {
	c := &format.Commit{Seq: w.log.Seq() + 1, Entries: entries}
	for _, it := range entries {
		if x, ok := it.(*format.Batch); ok {
			c.PayloadSize = x.Pos + x.Size
		}
	}
	decoded, err := format.DecodeCommit(format.EncodeCommit(c))
	if err != nil {
		w.t.Fatal(err)
	}
	return w.log.Apply(decoded)
}

func (w *queueWorld) must(entries ...format.Entry) {
	w.t.Helper()
	if err := w.try(entries...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *queueWorld) end() format.Offset { return w.log.Topic("t").Partitions[0].End }

// deliver records a delivery. Its number must be new, and within the attempts that the queue
// allows.
func (w *queueWorld) deliver(offset format.Offset, number uint32) {
	if w.delivered[offset] == nil {
		w.delivered[offset] = map[uint32]bool{}
	}
	if w.delivered[offset][number] || number > w.before[offset]+w.most {
		w.t.Fatalf("offset %d is delivered as number %d, after %v", offset, number, w.delivered[offset])
	}
	w.delivered[offset][number] = true
}

// latest returns the number of an offset's last delivery.
func (w *queueWorld) latest(offset format.Offset) (n uint32) {
	for number := range w.delivered[offset] {
		n = max(n, number)
	}
	return n
}

func (o *queueOwner) draft() *Draft { return o.view.Draft(0) }

// hands hands out a record for the first time, if the owner believes that it may.
func (o *queueOwner) hands(w *queueWorld, offset format.Offset) {
	if epoch, owned := o.draft().QueueEpoch(1); !owned || epoch != o.epoch || o.done || o.out[offset] || offset >= o.view.Topic("t").Partitions[0].End {
		return
	}
	if isDone, a, sure := o.draft().RecordState(1, 0, offset); isDone || sure || a.Number > 0 {
		return
	}
	o.out[offset] = true
	w.deliver(offset, 1)
}

// handsAgain hands out a record again, once the log has counted the attempt.
func (o *queueOwner) handsAgain(w *queueWorld, offset format.Offset) {
	if offset >= o.view.Topic("t").Partitions[0].End {
		return
	}
	isDone, a, sure := o.draft().RecordState(1, 0, offset)
	number := a.Number + 1
	switch {
	case isDone || a.DeadLetter || a.Used() >= w.most:
		return
	case !sure && o.out[offset]:
		number = 2
	case a.Number == 0:
		return // it was never handed out
	}
	if w.try(&format.RecordsAttempted{Queue: 1, Epoch: o.epoch, Attempts: []format.Attempt{{Offset: offset, Number: number}}}) == nil {
		w.deliver(offset, number)
	}
}

// releases releases the queue, and writes the attempts of all records that workers have into the
// log.
func (o *queueOwner) releases(w *queueWorld) {
	if epoch, owned := w.log.Draft(0).QueueEpoch(1); !owned || epoch != o.epoch {
		return
	}
	told := &format.RecordsAttempted{Queue: 1, Epoch: o.epoch}
	for _, offset := range slices.Sorted(maps.Keys(o.out)) {
		if isDone, a, _ := w.log.Draft(0).RecordState(1, 0, offset); !isDone && a.Number == 0 {
			told.Attempts = append(told.Attempts, format.Attempt{Offset: offset, Number: 1})
		}
	}
	entries := []format.Entry{told, &format.QueueReleased{Queue: 1, Epoch: o.epoch}}
	if len(told.Attempts) == 0 {
		entries = entries[1:]
	}
	w.must(entries...)
	o.done = true
}

func (w *queueWorld) ack(offset format.Offset, number uint32) {
	err := w.try(&format.RecordsDone{Queue: 1, Runs: []format.Run{{Offset: offset, Count: 1, Number: number}}})
	if err != nil && !errors.Is(err, ErrNonsense) {
		w.t.Fatal(err)
	}
	done, a, _ := w.log.Draft(0).RecordState(1, 0, offset)
	switch {
	case err == nil && w.acked[offset] != 0:
		w.t.Fatalf("offset %d is done twice: by %d and %d", offset, w.acked[offset], number)
	case err == nil && number != w.latest(offset):
		w.t.Fatalf("offset %d is done by %d, after delivery %d", offset, number, w.latest(offset))
	case err == nil:
		w.acked[offset] = number
	case !done && !a.DeadLetter && number == w.latest(offset) && a.Number <= number:
		w.t.Fatalf("offset %d can't be done by its last delivery %d: %v", offset, number, err)
	}
}

func TestOwnersThatComeAndGoDeliverEachNumberOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newQueueWorld(t)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.step()
		}
		requireSame(t, mustDecodeRapid(t, w.log), w.log)
		for o, number := range w.acked {
			if done, _, _ := w.log.Draft(0).RecordState(1, 0, o); !done {
				t.Fatalf("offset %d was done by %d, and is not", o, number)
			}
		}
	})
}

func mustDecodeRapid(t *rapid.T, s *State) *State {
	again, err := Decode(s.Seq(), s.View().Encode())
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func (w *queueWorld) step() {
	t := w.t
	epoch, owned := w.log.Draft(0).QueueEpoch(1)
	offset := format.Offset(0)
	if w.end() > 0 {
		offset = format.Offset(rapid.Int64Range(0, int64(w.end()-1)).Draw(t, "offset"))
	}
	var owner *queueOwner
	if len(w.owners) > 0 {
		owner = w.owners[rapid.IntRange(0, len(w.owners)-1).Draw(t, "owner")]
	}
	number := w.latest(offset)
	if rapid.Bool().Draw(t, "late") {
		number = rapid.Uint32Range(1, 2*w.most).Draw(t, "number")
	}
	switch what := rapid.IntRange(0, 13).Draw(t, "what"); {
	case what == 0 || w.end() == 0:
		n := rapid.Uint32Range(1, 4).Draw(t, "records")
		w.must(&format.Batch{Topic: 1, Base: w.end(), Count: n, Size: 61})
	case what == 1 || owner == nil:
		window := format.Offset(rapid.Int64Range(0, int64(w.end()+3)).Draw(t, "window"))
		w.must(&format.QueueOwned{Queue: 1, Epoch: epoch + 1, Windows: []format.Offset{window}})
		w.owners = append(w.owners, &queueOwner{epoch: epoch + 1, view: mustDecodeRapid(t, w.log), out: map[format.Offset]bool{}})
	case what == 2:
		owner.view = mustDecodeRapid(t, w.log)
	case what == 3:
		err := w.try(&format.WindowMoved{Queue: 1, Epoch: owner.epoch, Window: w.log.Queue(1, "q").DispatchLimit(0) + 2})
		if (err == nil) != (owned && owner.epoch == epoch) {
			t.Fatalf("the owner of epoch %d moves the window in %d: %v", owner.epoch, epoch, err)
		}
	case what <= 5:
		owner.hands(w, offset)
	case what == 6:
		owner.handsAgain(w, offset)
	case what == 7:
		owner.releases(w)
	case what == 8:
		if w.try(&format.RecordsRedriven{Queue: 1, Offsets: []format.Offset{offset}}) == nil {
			w.before[offset] = w.latest(offset)
		}
	case what <= 10 && w.delivered[offset][number]:
		parked := number >= w.before[offset]+w.most
		put := &format.RecordPutBack{Queue: 1, Attempt: format.Attempt{Offset: offset, Number: number}, DeadLetter: parked, Reason: "no"}
		if err := w.try(put); err == nil && number != w.latest(offset) {
			t.Fatalf("delivery %d of offset %d is put back, after %d", number, offset, w.latest(offset))
		}
	case w.delivered[offset][number]:
		w.ack(offset, number)
	}
}
