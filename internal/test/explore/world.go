package explore

import (
	"cmp"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/commitlog"
)

// tick is a unit of time: long enough that its half and quarter are whole.
const tick = 4 * time.Nanosecond

// brokersMax is how many brokers a world can have.
const brokersMax = 3

// world is the store, what is under way to it, the brokers, and what is known
// of the past for the sake of the invariants.
type world struct {
	*Config
	moment

	now      int
	payloads int // used so far

	slots       [slotsMax + 1]commit // what stands in log/, by slot; 0 = nothing
	checkpoints [slotsMax + 1]checkpoint
	flights     commits  // commits whose Create was sent
	uploads     []upload // checkpoints whose Create was sent
	replies     []reply  // to Creates, on their way
	objects     []object // data objects whose Create was sent, by entry
	losses      int      // what the store has lost so far

	first [slotsMax + 1]commit // the first ever created in each slot
	acked commits              // what was acknowledged, where AckDurable is checked by itself
	void  uint16               // payloads of which it was said that they are not committed

	brokers [brokersMax]broker
}

// checkpoint is one that stands in the store.
type checkpoint struct {
	since int // when it became visible; 0 = there is none
	begun int // when its upload began
	log   commit
}

type upload struct {
	begun int
	log   commit
}

type reply struct {
	at     int // when the store executed the request
	commit commit
}

func (r reply) compare(o reply) int {
	return cmp.Or(cmp.Compare(r.at, o.at), cmp.Compare(r.commit, o.commit))
}

func newWorld(cfg *Config) *world {
	if cfg.Data && cfg.Slots > beginMax {
		panic("explore: too many slots for the names of data objects")
	}
	w := &world{Config: cfg, moment: moment{only: cfg.Only}, now: 1}
	for i := range w.brokers[:cfg.Brokers] {
		w.brokers[i] = broker{p: w.newProtocol(), name: 'A' + byte(i)}
	}
	return w
}

func (w *world) newProtocol() commitlog.Protocol {
	return commitlog.NewProtocol(w.lease(), time.Duration(w.Margin)*tick)
}

// lease is what the brokers believe D to be.
func (w *world) lease() time.Duration {
	d := time.Duration(w.Delay) * tick
	switch w.Without {
	case NoLease:
		return 1000 * d
	case OffByOne:
		return d + tick
	default:
		return d
	}
}

func stampAt(t int) commitlog.Stamp {
	return commitlog.Stamp{Store: time.Unix(0, 0).Add(time.Duration(t) * tick)}
}

// listStamp is the stamp of a List: the most dangerous is as late as clocks allow.
func (w *world) listStamp() commitlog.Stamp { return stampAt(w.now + w.skewed()) }

// stamp is the stamp of other answers: the most dangerous is as early as can be.
func (w *world) stamp() commitlog.Stamp { return stampAt(w.now + w.Skew - w.skewed()) }

// skewed returns how far a clock is off in the dangerous direction.
func (w *world) skewed() int {
	if w.rand == nil {
		return w.Skew
	}
	return w.rand.IntN(w.Skew + 1)
}

// step lets one thing happen.
func (w *world) step() {
	const others = 7
	switch n := w.pick(others + w.Brokers); n {
	case 0:
		w.pass()
	case 1:
		w.land()
	case 2:
		w.landCheckpoint()
	case 3:
		w.delete()
	case 4:
		w.reply()
	case 5:
		w.landObject()
	case 6:
		w.lose()
	default:
		w.stepBroker(&w.brokers[n-others])
	}
}

func (w *world) pass() {
	if w.now == w.Times || !w.rarely(20) {
		w.skip()
		return
	}
	w.now++
	w.tell("time passes: it is %d now", w.now)
}

// land lets a Create that was sent execute now.
func (w *world) land() {
	if len(w.flights) == 0 {
		w.skip()
		return
	}
	c := w.flights[w.pick(len(w.flights))]
	if w.slots[c.seq()] != 0 {
		w.skip() // it changes nothing
		return
	}
	w.tell("a Create of slot %d with %v, sent some time ago, executes at the store", c.seq(), c.last())
	w.execute(c)
	if w.Replies && w.pick(2) == 1 {
		r := reply{w.now + w.Skew - w.skewed(), c}
		if i, found := slices.BinarySearchFunc(w.replies, r, reply.compare); !found {
			w.replies = slices.Insert(slices.Clone(w.replies), i, r)
		}
	}
}

// execute writes a commit to its free slot.
func (w *world) execute(c commit) {
	s := c.seq()
	w.slots[s] = c
	switch {
	case w.first[s] == 0:
		w.first[s] = c
	case w.first[s] != c:
		w.count(ghosts)
	}
}

// reply hands a late reply over to the broker that waits for it.
func (w *world) reply() {
	if len(w.replies) == 0 {
		w.skip()
		return
	}
	i := w.pick(len(w.replies))
	r := w.replies[i]
	w.replies = slices.Delete(slices.Clone(w.replies), i, i+1)
	if w.now+w.Skew-r.at > w.Margin && w.Without != LateReply {
		w.undo = true // every sender has given up: time would seem to fall
		return
	}
	for b := range w.living() {
		if b.pending.kind == nothing && (b.claim == r.commit || b.ended == r.commit) {
			w.tell("%c gets the reply to its Create of slot %d: success at %d", b.name, r.commit.seq(), r.at)
			w.lateReply(b, r)
			return
		}
	}
	w.undo = true // its sender is no more
}

// decided returns the log as far as it was ever written.
func (w *world) decided() (log commit) {
	for s := 1; s <= w.Slots && w.first[s] != 0; s++ {
		log |= commit(w.first[s].at(s)) << (slotBits * (s - 1))
	}
	return log
}

// newest returns the slot of the newest checkpoint, or 0.
func (w *world) newest() int {
	for s := w.Slots; s > 0; s-- {
		if w.checkpoints[s].since != 0 {
			return s
		}
	}
	return 0
}

// landCheckpoint lets a checkpoint become visible.
func (w *world) landCheckpoint() {
	var u upload
	if w.Janitor {
		log := w.decided()
		s := 1 + w.pick(log.seq())
		if s > log.seq() {
			w.skip()
			return
		}
		u = upload{w.now, log.prefix(s)}
	} else {
		if len(w.uploads) == 0 {
			w.skip()
			return
		}
		u = w.uploads[w.pick(len(w.uploads))]
	}
	s := u.log.seq()
	if w.checkpoints[s].since != 0 {
		w.skip()
		return
	}
	w.checkpoints[s] = checkpoint{since: w.now, begun: u.begun, log: u.log}
	w.tell("checkpoint %d = %v becomes visible", s, u.log)
}

// recovered returns the log that a recovery would find now.
func (w *world) recovered() commit {
	s := w.newest()
	log := w.checkpoints[s].log
	for s++; s <= w.Slots && w.slots[s] != 0; s++ {
		log |= commit(w.slots[s].at(s)) << (slotBits * (s - 1))
	}
	return log
}
