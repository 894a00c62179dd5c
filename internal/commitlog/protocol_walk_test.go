package commitlog

import (
	"encoding/binary"
	"fmt"
	"github.com/simple-event-broker/seb/internal/format"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The walk takes random steps with several Protocols and a model of the store. A Create that was
// sent may be executed at any later time, any number of times, even after its sender crashed.
// Replies get lost. A broker may stop between any two steps. Objects are deleted as soon as the
// rules allow it.
//
// What must hold: all brokers apply the commit that was first created in a slot (SlotAgreement);
// every later recovery finds all acknowledged commits (AckDurable), and all others that were
// decided (RecoverOK); no payload takes effect twice (NoDup); a covered 404 is at the end of the
// log (MissOK); no protocol halts.

const walkUnit = time.Hour

// walkCommit is a commit in the model. Each has its own id.
type walkCommit struct {
	id, payload int
	seq         format.Seq
	prev        format.Hash
}

func (c walkCommit) hash() (h format.Hash) {
	binary.LittleEndian.PutUint64(h[:], uint64(c.id))
	binary.LittleEndian.PutUint64(h[8:], uint64(c.seq))
	return h
}

type walkCheckpoint struct {
	since int // when it became visible
	log   []walkCommit
}

type world struct {
	*testing.T
	*rand.Rand
	delay int  // D, in units
	skew  int  // how much the store's clocks differ, in units; the margin is twice that
	blind bool // brokers have no local clock, which could end a lease earlier
	dire  bool // stamps are the most dangerous ones that skew allows
	now   int  // units
	event int  // number of the last step

	slots       map[format.Seq]walkCommit
	checkpoints map[format.Seq]walkCheckpoint
	flights     []walkCommit
	uploads     [][]walkCommit // checkpoints that are being written
	first       []walkCommit   // the commits that were first created in slots 1, 2, …
	born        []int          // the values of event when they were created
	dates       []Stamp        // the dates of the answers that said so
	told        []walkCommit   // commits that their writers have sent to the other brokers
	acked       []walkCommit
	payloads    int
	ids         int

	brokers []*walkBroker
	seen    walkCounts
}

type walkCounts struct {
	acks, races, lost, loads, unknown, ghosts, crashes, deleted, tails, told, beaten, confirmed int
}

// walkBroker is a broker with at most one running request.
type walkBroker struct {
	p       Protocol
	log     []walkCommit
	claim   walkCommit
	payload int // the payload that waits for a slot, 0 = none
	answers map[format.Seq]walkCommit
	doing   []func() // remaining steps of the running request
	creates bool     // the running request is a Create
	asked   int      // event of the last Sync
	wakes   int      // it does nothing before this time
}

// stamp returns the time of one of the store's clocks. If dire, a List gets the latest time and
// other requests the earliest, which is the most dangerous case; else the clock is random.
func (w *world) stamp(list bool) Stamp {
	ahead := w.IntN(w.skew + 1)
	if w.dire {
		ahead = 0
		if list {
			ahead = w.skew
		}
	}
	return Stamp{Store: testEpoch.Add(time.Duration(w.now+ahead) * walkUnit), Boot: w.boot()}
}

// boot returns the time of the local clock, always 0 if blind.
func (w *world) boot() time.Duration {
	if w.blind {
		return 0
	}
	return time.Duration(w.now) * walkUnit
}

func (w *world) restart(b *walkBroker) {
	*b = walkBroker{p: NewProtocol(time.Duration(w.delay)*walkUnit, time.Duration(2*w.skew)*walkUnit), answers: map[format.Seq]walkCommit{}}
}

// step takes one random step.
func (w *world) step() {
	w.event++
	b := w.brokers[w.IntN(len(w.brokers))]
	switch n := w.IntN(400); {
	case n < 12:
		w.now++
	case n < 22:
		w.land()
	case n < 32:
		w.landCheckpoint()
	case n < 72:
		w.delete()
	case n < 74:
		b.wakes = w.now + w.IntN(3*w.delay)
	case n == 74:
		w.seen.crashes++
		w.restart(b)
	case b.wakes <= w.now:
		w.stepBroker(b)
	}
}

// execute executes a Create: it writes the commit unless its slot is taken.
func (w *world) execute(c walkCommit) bool {
	if _, ok := w.slots[c.seq]; ok {
		return false
	}
	w.slots[c.seq] = c
	switch n := format.Seq(len(w.first)); {
	case c.seq == n+1:
		w.first, w.born, w.dates = append(w.first, c), append(w.born, w.event), append(w.dates, w.stamp(false))
		if slices.ContainsFunc(w.first[:n], func(o walkCommit) bool { return o.payload == c.payload }) {
			w.Fatalf("NoDup: payload %d takes effect again in slot %d", c.payload, c.seq)
		}
	case c.seq > n+1:
		w.Fatalf("Dense: slot %d is written after %d", c.seq, n)
	case w.first[c.seq-1] != c:
		w.seen.ghosts++
	}
	w.checkRecovery()
	return true
}

func (w *world) land() {
	if len(w.flights) > 0 {
		w.execute(w.flights[w.IntN(len(w.flights))])
	}
}

func (w *world) landCheckpoint() {
	if len(w.uploads) == 0 {
		return
	}
	log := w.uploads[w.IntN(len(w.uploads))]
	s := format.Seq(len(log))
	if _, ok := w.checkpoints[s]; !ok {
		w.checkpoints[s] = walkCheckpoint{w.now, log}
		w.checkRecovery()
	}
}

func (w *world) newest() (newest format.Seq) {
	for s := range w.checkpoints {
		newest = max(newest, s)
	}
	return newest
}

// delete deletes a slot that an old checkpoint covers, or a checkpoint that is not the newest.
// The clock that decides may be ahead.
func (w *world) delete() {
	var covered format.Seq
	for s, c := range w.checkpoints {
		if w.now+w.skew >= c.since+w.delay {
			covered = max(covered, s)
		}
	}
	if covered == 0 {
		return
	}
	if s := format.Seq(w.IntN(int(covered)) + 1); w.IntN(3) > 0 {
		if _, ok := w.slots[s]; ok {
			delete(w.slots, s)
			w.seen.deleted++
		}
	} else if s < w.newest() {
		delete(w.checkpoints, s)
	}
	w.checkRecovery()
}

// checkRecovery compares what a recovery would find now with all commits that were ever decided.
func (w *world) checkRecovery() {
	log := slices.Clone(w.checkpoints[w.newest()].log)
	for {
		c, ok := w.slots[format.Seq(len(log)+1)]
		if !ok {
			break
		}
		log = append(log, c)
	}
	if !slices.Equal(log, w.first) {
		w.Fatalf("RecoverOK: a recovery finds %v, decided was %v", log, w.first)
	}
	for _, a := range w.acked {
		if log[a.seq-1] != a {
			w.Fatalf("AckDurable: %v was acknowledged, and a recovery finds %v", a, log[a.seq-1])
		}
	}
}

// stepBroker takes the next step of a broker's request, or begins a request.
func (w *world) stepBroker(b *walkBroker) {
	if len(b.doing) == 0 {
		b.creates = false
	}
	if len(w.told) > 0 && (len(b.doing) == 0 || b.creates) && w.IntN(6) == 0 {
		w.tell(b)
		return
	}
	if len(b.doing) > 0 {
		do := b.doing[0]
		b.doing = b.doing[1:]
		do()
		return
	}
	if w.IntN(16) == 0 {
		b.p.Unsync()
	}
	applied, tip := b.p.Position()
	switch act := b.p.Next(w.boot()); act.Do {
	case Idle:
		w.idle(b, applied, tip)
	case Tail:
		w.seen.tails++
		if int(applied) < len(w.born) && w.born[applied] <= b.asked {
			w.Fatalf("MissOK: the log is said to end at slot %d, but slot %d had been written", applied, applied+1)
		}
	case DoList:
		w.list(b, applied)
	case DoLoad:
		b.doing = []func(){func() { w.load(b, act.Seq) }}
	case DoGet:
		w.get(b, act)
	case DoCreate:
		w.create(b)
	case DoApply:
		w.apply(b, act.Seq)
	case Halt:
		w.Fatalf("false alarm at slot %d: %v", applied, b.p.Err())
	}
}

// tell gives a broker a commit that another broker has sent, perhaps a long time ago.
func (w *world) tell(b *walkBroker) {
	c := w.told[w.IntN(len(w.told))]
	at := w.dates[c.seq-1]
	at.Boot = w.boot()
	if !b.p.Told(c.seq, c.hash(), c.prev, at) {
		return
	}
	b.answers[c.seq] = c
	if b.p.Confirmed() {
		b.answers[b.claim.seq] = b.claim
		w.seen.confirmed++
	}
	if b.creates && b.p.CanApply() {
		w.seen.beaten++
		b.doing = nil // the Create is given up, and may still be executed
	}
}

func (w *world) idle(b *walkBroker, applied format.Seq, tip format.Hash) {
	switch n := w.IntN(8); {
	case n < 4 && len(w.first) < 60:
		if b.payload == 0 {
			w.payloads++
			b.payload = w.payloads
		}
		w.ids++
		b.claim = walkCommit{id: w.ids, payload: b.payload, seq: applied + 1, prev: tip}
		b.p.Propose(b.claim.hash())
	case n == 4 && applied > 0:
		w.uploads = append(w.uploads, slices.Clone(b.log))
	case n == 5:
		b.p.Relist()
	default:
		b.p.Sync()
		b.asked = w.event
	}
}

func (w *world) list(b *walkBroker, applied format.Seq) {
	var l Listing
	b.doing = []func(){
		func() {
			l.At.Boot = w.boot() // time of sending
		},
		func() {
			at := w.stamp(true)
			l.At.Store = at.Store
			if s := w.newest(); s >= applied {
				l.Checkpoint = s
			}
			l.From = max(applied, l.Checkpoint)
		},
		func() {
			l.LogAt = w.stamp(false)
			for _, s := range slices.Sorted(maps.Keys(w.slots)) {
				if s >= l.From {
					if l.First == 0 {
						l.First = s
					}
					l.Last = s
				}
			}
		},
		func() {
			l.LogAt.Boot = w.boot()
			if w.IntN(10) > 0 {
				b.p.Listed(l)
			}
		},
	}
}

func (w *world) load(b *walkBroker, s format.Seq) {
	c, ok := w.checkpoints[s]
	if !ok {
		b.p.LoadMissing()
		return
	}
	w.seen.loads++
	b.log = slices.Clone(c.log)
	ended := b.p.Loaded(s, c.log[s-1].hash())
	if ended.Sent {
		w.seen.unknown++
		b.payload = 0 // its outcome is unknown, so it is never sent again
	}
}

func (w *world) get(b *walkBroker, act Action) {
	known := b.p.Known()
	var answers []Answer
	for s := act.Seq; s <= min(act.To, act.Seq+3); s++ {
		b.doing = append(b.doing, func() {
			c, ok := w.slots[s]
			a := Answer{Seq: s, Found: ok, At: w.stamp(false), Known: known}
			if ok {
				a.Hash, a.Prev = c.hash(), c.prev
				b.answers[s] = c
			}
			if w.IntN(20) == 0 {
				a.At.Store = time.Time{}
			}
			answers = append(answers, a)
		})
	}
	w.Shuffle(len(b.doing), func(i, j int) { b.doing[i], b.doing[j] = b.doing[j], b.doing[i] })
	b.doing = append(b.doing, func() {
		for _, a := range answers {
			a.At.Boot = w.boot()
			if w.IntN(10) > 0 {
				b.p.Answered(a)
			}
		}
	})
}

func (w *world) create(b *walkBroker) {
	c := b.claim
	w.flights = append(w.flights, c)
	if w.IntN(3) == 0 {
		return // the request timed out, and may be executed at any time
	}
	b.creates = true
	b.doing = []func(){func() {
		won, at, lost := w.execute(c), w.stamp(false), w.IntN(4) == 0
		b.doing = []func(){func() {
			at.Boot = w.boot()
			switch {
			case lost:
				w.seen.lost++
			case won:
				b.answers[c.seq] = c
				b.p.Created(c.seq, c.hash(), at)
			default:
				b.p.Exists(c.seq, at)
			}
		}}
	}}
}

func (w *world) apply(b *walkBroker, s format.Seq) {
	c := b.answers[s]
	if c.seq != s || c != w.first[s-1] {
		w.Fatalf("SlotAgreement: %v is applied in slot %d, which holds %v", c, s, w.first[s-1])
	}
	b.log = append(b.log, c)
	if b.p.answer(s).told {
		w.seen.told++
	}
	claimed := b.p.Claim().Seq == s
	own := b.p.Applied()
	if own != (claimed && c == b.claim) {
		w.Fatalf("slot %d holds %v, the claim is %v, and own is %v", s, c, b.claim, own)
	}
	switch {
	case own:
		w.seen.acks++
		w.told = append(w.told, c)
		w.acked = append(w.acked, c)
		b.payload = 0
		w.checkRecovery()
	case claimed:
		w.seen.races++
	}
}

func TestRandomWalkOfBrokers(t *testing.T) {
	walks, steps := 400, 2500
	if testing.Short() {
		walks = 100
	}
	var sum walkCounts
	for seed := range walks {
		w := &world{
			T: t, Rand: rand.New(rand.NewPCG(uint64(seed), 1)),
			delay: 1 + seed%5, blind: seed%4 < 2, dire: seed%8 < 4,
			slots: map[format.Seq]walkCommit{}, checkpoints: map[format.Seq]walkCheckpoint{},
		}
		if seed%2 == 1 {
			w.delay, w.skew = w.delay+4, 1
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w.T = t
			for range 2 + seed%3/2 {
				b := &walkBroker{}
				w.restart(b)
				w.brokers = append(w.brokers, b)
			}
			for range steps {
				w.step()
			}
		})
		sum.add(w.seen)
	}
	t.Logf("%d steps: %+v", walks*steps, sum)
	if slices.Contains([]int{sum.acks, sum.races, sum.lost, sum.loads, sum.unknown, sum.ghosts, sum.crashes, sum.deleted, sum.tails, sum.told, sum.beaten, sum.confirmed}, 0) {
		t.Fatal("something never happened, so that the walk shows nothing about it")
	}
}

func (c *walkCounts) add(o walkCounts) {
	c.acks += o.acks
	c.races += o.races
	c.lost += o.lost
	c.loads += o.loads
	c.unknown += o.unknown
	c.ghosts += o.ghosts
	c.crashes += o.crashes
	c.deleted += o.deleted
	c.tails += o.tails
	c.told += o.told
	c.confirmed += o.confirmed
	c.beaten += o.beaten
}
