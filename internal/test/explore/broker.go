package explore

import (
	"iter"

	"github.com/simple-event-broker/seb/internal/commitlog"
)

// broker drives one Protocol, as commitlog.Log does in a real broker.
type broker struct {
	name byte // not part of the state: brokers are interchangeable
	p    commitlog.Protocol

	log     commit               // the applied log
	payload entry                // what the broker wants to commit; 0 means nothing
	stored  bool                 // the store has confirmed the payload's data object
	claim   commit               // the commit that the broker tries to write; 0 if there is none
	read    [slotsMax + 1]commit // commits that the broker has read or created, but not applied yet, by slot
	pending pending
	// false404 has a bit for each slot for which the protocol remembers a 404, although the slot had
	// been written, and deleted again, before the store gave that answer.
	false404 uint16
	halted   bool
	evidence int    // the broker has seen proof that all slots below this one were written
	readBack bool   // a Get has found the broker's own claim
	ended    commit // the last claim whose outcome the broker did not learn; only if Config.Replies is true
}

// kind is what a broker waits for.
type kind uint8

const (
	nothing  kind = iota
	aListing      // the List of log/, after the List of checkpoint/
	someGets      // Gets of several slots, at the same time
	aCreate
)

// pending is a request under way that takes more than one step.
type pending struct {
	kind kind
	// listing is what the List of checkpoint/ has returned.
	listing commitlog.Listing
	// known is the highest slot that the protocol knew to exist when the Gets were sent. want has a
	// bit for each slot whose Get has no answer yet. got has the answers.
	known int
	want  uint16
	alone bool // there is only one Get; it is sent and ends in the same step
	got   [slotsMax + 2]got
	sent  int // when the Create was sent
}

type got struct {
	at       int8 // when the store answered; 0 means that it did not answer, -1 that the answer has no date
	commit   commit
	false404 bool
}

// living yields the brokers that have not halted.
func (w *world) living() iter.Seq[*broker] {
	return func(yield func(*broker) bool) {
		for i := range w.brokers[:w.Brokers] {
			if b := &w.brokers[i]; !b.halted && !yield(b) {
				return
			}
		}
	}
}

// What a broker can do when none of its requests is under way.
const (
	goOn           = iota // perform the protocol's next action
	renew                 // like goOn, but as if D/2 had passed since the last List
	crash                 // crash and restart
	abandon               // the caller stops waiting
	relist                // a reader asks for a List, because the lease does not cover the reader's answer
	syncs                 // a reader at the end of the log asks for a sync
	propose               // a caller wants to commit something
	putData               // upload a payload as a data object
	sendCheckpoint        // begin to upload a checkpoint
	hear                  // get a commit that another broker has sent
	waysCount
)

func (w *world) stepBroker(b *broker) {
	if b.halted {
		w.skip()
		return
	}
	b.p = b.p.Clone()
	if b.pending.kind != nothing {
		switch w.pick(5) {
		case 4:
			w.hear(b)
		case 3:
			w.crash(b)
		default:
			w.resume(b)
		}
		return
	}
	way := w.pick(waysCount)
	if way == renew && !w.Renewals || way == syncs && !w.Syncs || way == relist && (!w.Relists || !w.rarely(10)) ||
		way == abandon && (!w.Abandons || !w.rarely(10)) {
		w.skip()
		return
	}
	switch way {
	case goOn:
		if !w.idle(b) {
			w.request(b, b.p.Next(0))
		} else {
			w.skip()
		}
	case renew:
		w.renew(b)
	case crash:
		w.crash(b)
	case abandon:
		w.abandon(b)
	case relist:
		w.tell("%c has a reader whose answer the lease does not cover", b.name)
		b.p.Relist()
		w.request(b, b.p.Next(0))
	case syncs:
		if !w.idle(b) {
			w.skip()
			return
		}
		w.tell("%c has a reader at the end of the log", b.name)
		b.p.Sync()
		w.request(b, b.p.Next(0))
	case propose:
		w.propose(b)
	case putData:
		w.upload(b)
	case sendCheckpoint:
		w.sendCheckpoint(b)
	case hear:
		w.hear(b)
		return
	}
	w.settle(b)
}

// idle reports whether the protocol has no next action.
func (w *world) idle(b *broker) bool {
	p := b.p.Clone()
	return p.Next(0).Do == commitlog.Idle
}

// renew performs the protocol's next action as if D/2 had passed by the local clock. If that action is
// not a List, or is a List that is due already, the step is not possible.
func (w *world) renew(b *broker) {
	early, late := b.p.Clone(), b.p.Clone()
	act := late.Next(w.lease())
	if act.Do != commitlog.DoList || early.Next(0).Do == act.Do {
		w.undo = true
		return
	}
	b.p = late
	w.request(b, act)
}

// crash loses everything in the broker's memory. The store may still execute requests that the broker sent.
func (w *world) crash(b *broker) {
	if position, _ := b.p.Position(); !w.Crashes || !w.rarely(30) || position == 0 && b.pending.kind == nothing && b.payload == 0 && !b.p.Settled() {
		w.skip() // the broker has only just begun, so a crash changes nothing
		return
	}
	w.tell("%c crashes and restarts", b.name)
	w.count(crashes)
	*b = broker{name: b.name, p: w.newProtocol()}
}

// abandon mirrors Log.abandon.
func (w *world) abandon(b *broker) {
	if b.claim == 0 {
		w.skip()
		return
	}
	c := b.p.Abandon()
	if c.Sent {
		w.tell("%c's caller goes away: the outcome of %v is unknown", b.name, b.payload)
		w.end(b)
	} else {
		w.tell("%c's caller goes away: %v is not committed", b.name, b.payload)
		w.void |= 1 << b.payload.number()
	}
	b.claim, b.payload, b.stored = 0, 0, false
}

// end remembers a claim whose outcome the broker does not learn. The Create was sent, and the reply to it may
// still come.
func (w *world) end(b *broker) {
	if w.Replies {
		b.ended = b.claim
	}
}

func (w *world) sendCheckpoint(b *broker) {
	if w.Janitor || b.log == 0 {
		w.skip()
		return
	}
	u := upload{log: b.log}
	if w.Without == UploadTime {
		u.begun = w.now
	}
	for _, o := range w.uploads {
		if o == u {
			w.skip()
			return
		}
	}
	w.tell("%c begins to upload checkpoint %d = %v", b.name, b.log.seq(), b.log)
	w.uploads = append(w.uploads[:len(w.uploads):len(w.uploads)], u)
}

// request performs an action of the protocol, as Log.perform does.
func (w *world) request(b *broker, act commitlog.Action) {
	switch act.Do {
	case commitlog.DoList:
		w.list(b)
	case commitlog.DoLoad:
		w.load(b, act.Seq)
	case commitlog.DoGet:
		w.get(b, act)
	case commitlog.DoCreate:
		w.create(b)
	default:
		w.undo = true // the action is Idle, since settle has performed all other actions without a request
	}
}

// settle performs actions of the protocol for as long as they need no request.
func (w *world) settle(b *broker) {
	for !b.halted && !w.undo && w.wrong == nil {
		p := b.p.Clone()
		act := p.Next(0)
		switch act.Do {
		case commitlog.DoApply:
			b.p = p
			w.apply(b)
		case commitlog.Tail:
			b.p = p
			w.tail(b)
		case commitlog.Halt:
			b.p = p
			b.halted = true
			w.tell("%c halts: %v", b.name, p.Err())
			if w.losses > 0 {
				w.count(alarms)
				return
			}
			w.violate(LossIsLoud, "false alarm of %c, which has applied slot %d: %v", b.name, b.log.seq(), p.Err())
		case commitlog.DoList, commitlog.DoLoad:
			b.p = p // keep the copy: its Next may have noted that the lease has ended
			return
		default:
			return
		}
	}
}

// apply mirrors Log.apply.
func (w *world) apply(b *broker) {
	s := b.log.seq() + 1
	c, claim := b.read[s], b.claim
	b.read[s] = 0
	if c.seq() != s || c != w.first[s] {
		w.violate(SlotAgreement, "%c applies %v in slot %d, whose first commit was %v", b.name, c, s, w.first[s])
	}
	if c.prev() != b.log {
		w.violate(Contiguity, "%c holds %v and applies %v", b.name, b.log, c)
	}
	own := b.p.Applied()
	w.saw(b, s)
	b.log |= commit(c.at(s)) << (slotBits * (s - 1))
	defer func() { b.claim, b.readBack = 0, false }()
	if own != (claim != 0 && c == claim) {
		w.violate(AckDurable, "%c's claim is %v, slot %d holds %v; whether the protocol takes that commit for its own: %v", b.name, claim, s, c, own)
	}
	switch {
	case own && w.Without == NoNonce && b.readBack:
		w.tell("%c applies slot %d, %v, and takes it for another broker's", b.name, s, c.at(s))
	case own:
		w.tell("%c applies slot %d, its own %v, and acknowledges it", b.name, s, c.at(s))
		w.acknowledge(c)
		b.payload, b.stored = 0, false
		if w.Wire {
			w.wire = insert(w.wire, reply{w.dates[s], c})
		}
	default:
		w.tell("%c applies slot %d, another broker's %v", b.name, s, c.at(s))
		if claim != 0 {
			w.count(races)
		}
	}
}

// acknowledge tells a caller that its payload is in the log. The world keeps acknowledged commits only if
// Config.Only is set: if all invariants are checked, AckDurable follows from RecoverOK.
func (w *world) acknowledge(c commit) {
	w.count(acks)
	if decided := w.decided(); decided.prefix(c.seq()) != c {
		w.violate(AckDurable, "%v is acknowledged, decided was %v", c, decided)
	}
	if len(w.Only) > 0 {
		w.acked = w.acked.with(c)
	}
}

// tail performs the action Tail: for the protocol, the log ends at the applied slot. tail checks that the
// log does end there.
func (w *world) tail(b *broker) {
	w.count(tails)
	w.tell("%c: the log ends at slot %d", b.name, b.log.seq())
	w.checkGap(b, b.log.seq()+1, "takes the log to end before")
	if s := b.log.seq() + 1; b.false404&(1<<s) != 0 {
		w.violate(MissOK, "%c concludes from a 404 that the log ends at slot %d, but slot %d had been written", b.name, s-1, s)
	}
}
