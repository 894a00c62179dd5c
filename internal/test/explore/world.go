package explore

import (
	"cmp"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/commitlog"
)

// tick is a unit of time. It is long enough that its half and its quarter are whole nanoseconds.
const tick = 4 * time.Nanosecond

// brokersMax is how many brokers a world can have.
const brokersMax = 3

// world is the store, the requests on their way to the store, the brokers, and what the invariants need
// to know of the past.
type world struct {
	*Config
	moment

	now      int
	payloads int // how many payload numbers were used so far

	slots       [slotsMax + 1]commit // the commits in log/, by slot; 0 means none
	checkpoints [slotsMax + 1]checkpoint
	flights     commits  // commits whose Create was sent
	uploads     []upload // checkpoints whose Create was sent
	replies     []reply  // replies to Creates, on their way
	wire        []reply  // commits that their writers have sent to the other brokers, with the dates of their Creates
	objects     []object // data objects whose Create was sent, sorted by entry
	losses      int      // how many objects the store has lost so far

	first [slotsMax + 1]commit // the first commit ever created in each slot
	dates [slotsMax + 1]int    // the store's dates of these Creates; kept only if Config.Wire is set
	acked commits              // the acknowledged commits; kept only if Config.Only is set
	bare  uint16               // a bit for each slot whose checkpoint refers to a page that is gone
	void  uint16               // a bit for each payload that a broker reported as not committed

	brokers [brokersMax]broker
}

// checkpoint is a checkpoint in the store.
type checkpoint struct {
	since int // when it became visible; 0 means that there is none
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

// insert returns the sorted set with r. It does not change the set in place, so that worlds can share it.
func insert(set []reply, r reply) []reply {
	i, found := slices.BinarySearchFunc(set, r, reply.compare)
	if found {
		return set
	}
	return slices.Insert(slices.Clone(set), i, r)
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

// lease returns the D by which brokers compute the end of the log lease. If Without is NoLease or
// OffByOne, that D is too long.
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

// listStamp returns the date of a List's answer. [Explore] uses only the most dangerous date: the latest that
// the clocks allow, since the log lease begins at that date. [Walk] draws a date.
func (w *world) listStamp() commitlog.Stamp { return stampAt(w.now + w.skewed()) }

// stamp returns the date of any other answer. For these answers, the most dangerous date is the earliest that
// the clocks allow, since the log lease covers only answers before a certain date.
func (w *world) stamp() commitlog.Stamp { return stampAt(w.now + w.Skew - w.skewed()) }

// skewed returns how far a clock is wrong in the dangerous direction: Skew in [Explore], up to Skew in [Walk].
func (w *world) skewed() int {
	if w.rand == nil {
		return w.Skew
	}
	return w.rand.IntN(w.Skew + 1)
}

// step makes one thing happen.
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

// land executes a Create of a commit. A broker sent the Create in an earlier step.
func (w *world) land() {
	if len(w.flights) == 0 {
		w.skip()
		return
	}
	c := w.flights[w.pick(len(w.flights))]
	if w.slots[c.seq()] != 0 {
		w.skip() // the slot is taken, so the Create changes nothing
		return
	}
	w.tell("a Create of slot %d with %v, sent some time ago, executes at the store", c.seq(), c.last())
	w.execute(c)
	if w.Replies && w.pick(2) == 1 {
		r := reply{w.now + w.Skew - w.skewed(), c}
		w.replies = insert(w.replies, r)
	}
}

// execute writes a commit to its slot, which is free.
func (w *world) execute(c commit) {
	s := c.seq()
	w.slots[s] = c
	switch {
	case w.first[s] == 0:
		w.first[s] = c
		if w.Wire {
			w.dates[s] = w.now + w.Skew - w.skewed()
		}
	case w.first[s] != c:
		w.count(ghosts)
	}
}

// reply gives a late reply to the broker that sent the Create.
func (w *world) reply() {
	if len(w.replies) == 0 {
		w.skip()
		return
	}
	i := w.pick(len(w.replies))
	r := w.replies[i]
	w.replies = slices.Delete(slices.Clone(w.replies), i, i+1)
	if w.now+w.Skew-r.at > w.Margin && w.Without != LateReply {
		w.undo = true // brokers never use a reply that is so late: by its date, the store's clock would have stepped back
		return
	}
	for b := range w.living() {
		if b.pending.kind == nothing && (b.claim == r.commit || b.ended == r.commit) {
			w.tell("%c gets the reply to its Create of slot %d: success at %d", b.name, r.commit.seq(), r.at)
			w.lateReply(b, r)
			return
		}
	}
	w.undo = true // no broker waits for the reply: the sender has crashed, for example
}

// decided returns the log that has the first commit of every slot that was ever written.
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

// landCheckpoint makes a checkpoint visible.
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
