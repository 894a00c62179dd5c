package explore

import "slices"

// Invariant is a property that must hold in every state.
type Invariant uint8

// The invariants.
const (
	// SlotAgreement: all brokers that have applied a slot have applied the same commit: the first that was
	// ever created in that slot.
	SlotAgreement Invariant = iota + 1
	// Contiguity: the commits that a broker has applied are a prefix of the log, and each was built on
	// the commit that the broker applied before.
	Contiguity
	// AckDurable: every recovery finds the commits that were acknowledged before, with their data.
	AckDurable
	// NoPhantom: what a broker reported as not committed never appears in the log.
	NoPhantom
	// AtMostOnce: no payload takes effect twice.
	AtMostOnce
	// DenseOffsets: slots are written in order. The first commit of each slot was built on the first commit
	// of the previous slot.
	DenseOffsets
	// FloorSafe: a slot is deleted only at or below a checkpoint that has been visible for D. A slot
	// that is gone, or that holds a commit other than its first one, is at or below the newest
	// checkpoint. Every checkpoint holds a prefix of the log.
	FloorSafe
	// LossIsLoud: a broker halts only after the store has lost an object. A broker that has seen a slot,
	// or a checkpoint that covers the slot, never claims an earlier slot, and never takes an earlier
	// slot for the end of the log. When it finds an earlier slot missing, it does not go on. No
	// broker goes on after a List which shows that the last slot that the broker has applied is gone.
	LossIsLoud
	// RecoverOK: a recovery at any time finds, for every slot that was ever written, the commit that was
	// created there first (acknowledged or not), in the slot or in a checkpoint. It also finds every data
	// object that these commits still need.
	RecoverOK
	// MissOK: if the log lease covers a 404 for a slot, the slot was never written.
	MissOK
	// ReadOK: while the log lease covers a read, the read finds every live payload, in a slot or in a
	// data object, as it was first written.
	ReadOK

	// OwnNumber: no two deliveries of a record have the same number.
	OwnNumber
	// AtMost: no record is handed out more often than its queue allows, counted from the record's
	// last redrive.
	AtMost
	// LastCounts: a worker's answer takes effect only if it is for the last delivery of its record, and the record
	// was not redriven since that delivery. A broker refuses the answer to such a delivery only if the record is
	// done or a dead letter, or if the log already counts the next delivery.
	LastCounts
	// LeaseKept: as long as the owner keeps the lease of a delivery, no broker refuses the first answer of the
	// worker that got this delivery.
	LeaseKept
	// DoneOnce: a record becomes done at most once. Of the commits in which workers acknowledge the
	// record, at most one is accepted.
	DoneOnce
	// Fenced: what an owner commits is refused after another broker has taken over.
	Fenced
	// OneEach: for each record, an owner uses up at most one attempt that reaches no worker.
	OneEach
	// NeverLost: if a record is neither done nor a dead letter, the current owner can still act on the
	// record once it knows the log, and the next owner can finish the record.
	NeverLost

	// OnceAtMost: no bundle has more than one mark in the log, and no request of a bundle is committed
	// twice.
	OnceAtMost
	// ToldIsTrue: a caller is told that its request is committed only if the log has the request, and at the place
	// that the caller is told.
	ToldIsTrue
	// RefusedIsTrue: a request whose caller was told that it is not committed is never in the log.
	RefusedIsTrue
	// InOrder: the bundles that a broker has sealed under one session are in the log in the order of their
	// sealing. If bundles are undecided when the broker takes a new session, they come before those of the new
	// session. There is one exception: if a broker gives up a bundle that a copy of the broker still waits for,
	// that bundle may come later.
	InOrder
	// NothingLost: if no more faults happen, each bundle of a broker that lives and loads no checkpoint is decided in
	// the end: the broker finds the bundles that the log has, and claims a slot of the log for each of the others.
	NothingLost
	// WireIsTrue: a commit that a broker got from another broker, and applied, is what the store has in that
	// slot. No broker commits a bundle of a broker that has another log.
	WireIsTrue

	// Conserved: each record between a partition's start and end is where the state says, wherever it was moved.
	Conserved
	// TwoOpen: from each of the newest two checkpoints, the log can be opened.
	TwoOpen
	// Collected: if nothing else happens, all that is dead is deleted in the end, and the state forgets it.
	Collected
)

var invariantNames = [...]string{"", "SlotAgreement", "Contiguity", "AckDurable", "NoPhantom", "AtMostOnce",
	"DenseOffsets", "FloorSafe", "LossIsLoud", "RecoverOK", "MissOK", "ReadOK",
	"OwnNumber", "AtMost", "LastCounts", "LeaseKept", "DoneOnce", "Fenced", "OneEach", "NeverLost",
	"OnceAtMost", "ToldIsTrue", "RefusedIsTrue", "InOrder", "NothingLost", "WireIsTrue",
	"Conserved", "TwoOpen", "Collected"}

func (i Invariant) String() string { return invariantNames[i] }

// violation is an invariant that does not hold, and why.
type violation struct {
	invariant Invariant
	detail    string
}

// check checks all invariants in a state; the steps have checked some of them before.
func (w *world) check() {
	decided := w.decided()
	w.checkHistory(decided)
	w.checkStore(decided)
	for b := range w.living() {
		w.checkBroker(b, decided)
	}
}

func (w *world) checkHistory(decided commit) {
	var seen uint16
	for s := 1; s <= w.Slots; s++ {
		c := w.first[s]
		if c == 0 {
			continue
		}
		if s > decided.seq() || c.seq() != s || c != decided.prefix(s) {
			w.violate(DenseOffsets, "slot %d was first written with %v, which does not fit the log %v", s, c, decided)
		}
		p := c.last().number()
		if seen&(1<<p) != 0 {
			w.violate(AtMostOnce, "p%d takes effect twice: %v", p, decided)
		}
		if w.void&(1<<p) != 0 {
			w.violate(NoPhantom, "p%d is in the log, though a broker reported it as not committed: %v", p, decided)
		}
		seen |= 1 << p
	}
}

func (w *world) checkStore(decided commit) {
	recovered, newest := w.recovered(), w.newest()
	for _, a := range w.acked {
		if s := a.seq(); recovered.prefix(s) != a || decided.prefix(s) != a {
			w.violate(AckDurable, "%v was acknowledged, a recovery finds %v", a, recovered)
		}
	}
	if recovered != decided {
		w.violate(RecoverOK, "a recovery finds %v, decided was %v", recovered, decided)
	}
	for s := 1; s <= decided.seq(); s++ {
		e := decided.at(s)
		if !e.data() || !w.live(decided, s) || w.stands(e) {
			continue
		}
		w.violate(RecoverOK, "a recovery finds %v, but the data object of slot %d, %v, is not there", decided, s, e)
		if slices.Contains(w.acked, decided.prefix(s)) {
			w.violate(AckDurable, "slot %d was acknowledged, but its data object, %v, is not there", s, e)
		}
	}
	for s := 1; s <= w.Slots; s++ {
		if s > newest && w.slots[s] != w.first[s] {
			w.violate(FloorSafe, "slot %d is above all checkpoints, but no longer has its first commit", s)
		}
		if c := w.checkpoints[s]; c.since != 0 && c.log != decided.prefix(s) {
			w.violate(FloorSafe, "checkpoint %d holds %v, decided was %v", s, c.log, decided)
		}
	}
}

func (w *world) checkBroker(b *broker, decided commit) {
	applied, tip := b.p.Position()
	s := int(applied)
	if s != b.log.seq() || s > decided.seq() {
		w.violate(Contiguity, "%c is at slot %d and holds %v; decided was %v", b.name, s, b.log, decided)
	}
	if b.log != decided.prefix(s) || tip != w.first[s].hash() {
		w.violate(SlotAgreement, "%c holds %v, decided was %v", b.name, b.log, decided)
	}
	if !b.p.Covers(stampAt(w.now)) {
		return
	}
	if s < w.Slots && w.slots[s+1] == 0 && w.first[s+1] != 0 {
		w.violate(MissOK, "the lease of %c covers the 404 of slot %d, which had been written", b.name, s+1)
	}
	for r := 1; r <= b.log.seq(); r++ {
		switch e := b.log.at(r); {
		case !w.live(b.log, r):
		case e.data() && !w.stands(e):
			w.violate(ReadOK, "the lease of %c covers a read of %v, which is live in slot %d, but it is gone", b.name, e, r)
		case !e.data() && w.slots[r] != w.first[r]:
			w.violate(ReadOK, "the lease of %c covers a read of slot %d, whose data is live, but it is gone", b.name, r)
		}
	}
}
