package explore

import (
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/handover"
)

// handoverBroker is a broker that hands over bundles and takes them. Package handover makes its decisions.
type handoverBroker struct {
	name byte // not part of the state: brokers are interchangeable

	session uint8 // of the next bundle; 0 if the broker has sealed none under its session yet
	send    *handover.Sender
	take    *handover.Receiver
	claim   written // the commit that the broker tries to write; 0 if there is none
	sealed  uint8   // a bit for each bundle that the broker sealed under its session, and each request from getRequest
	kept    uint8   // a bit for each bundle that it has kept over a load; only without the rule "Load"
	home    uint8   // 1 + the request that is in no bundle yet; 0 if there is none
}

// sharedSession is the session of a broker that was copied before it has sealed a bundle. All other sessions have
// the number of their first bundle, plus 1.
const sharedSession = 200

// strangersSession is the session of a broker that has another log.
const strangersSession = 255

// What a broker can do.
const (
	getRequest = iota
	sealBundle
	sendAgain
	takeBundle
	claimSlot
	abandonClaim
	applyCommit
	loadCheckpoint
	beNamed
	crashBroker
	hearStranger
	handoverSteps
)

func (w *handoverWorld) stepHandover(b *handoverBroker) {
	switch w.pick(handoverSteps) {
	case getRequest:
		w.getRequest(b)
	case sealBundle:
		w.seal(b)
	case sendAgain:
		w.sendAgain(b)
	case takeBundle:
		w.takeBundle(b)
	case claimSlot:
		w.claim(b)
	case abandonClaim:
		w.abandonClaim(b)
	case applyCommit:
		w.applyNext(b)
	case loadCheckpoint:
		w.load(b)
	case beNamed:
		w.beNamed(b)
	case crashBroker:
		w.crash(b)
	case hearStranger:
		w.hearStranger(b)
	}
}

// restart makes a broker begin without memory, before the first slot. It may load a checkpoint then.
func (w *handoverWorld) restart(b *handoverBroker) {
	*b = handoverBroker{
		name: b.name,
		send: handover.NewSender(handover.Session{}, 0, hashOf(0)),
		take: handover.NewReceiver(w.limits(), 0, hashOf(0)),
	}
	w.nameAny(b)
}

// nameAny makes a broker a winner although the broker has not won the last slot. It does so only if AnyWinner is true.
func (w *handoverWorld) nameAny(b *handoverBroker) {
	if w.AnyWinner {
		b.take.Named(handover.Session{}, b.take.Position())
	}
}

// load makes a broker load a checkpoint of any later slot.
func (w *handoverWorld) load(b *handoverBroker) {
	from := int(b.take.Position())
	if !w.Loads || from >= w.end || !w.rarely(6) {
		w.skip()
		return
	}
	seq := format.Seq(from + 1 + w.pick(w.end-from))
	w.tell("%c loads the checkpoint of slot %d", b.name, seq)
	b.send, b.take = b.send.Clone(), b.take.Clone()
	if w.Without == LoadUnheeded {
		for s := format.Seq(from) + 1; s <= seq; s++ {
			b.send.Applied(handover.Commit{Seq: s, Hash: hashOf(s)})
		}
	} else if len(b.send.Loaded(seq, hashOf(seq))) > 0 {
		w.tell("%c: the outcome of its bundles is unknown", b.name)
		w.count(givenUp)
	}
	dropped := b.take.Loaded(seq, hashOf(seq))
	if len(dropped) > 0 {
		w.count(droppedInLoads)
	}
	for _, d := range dropped {
		if w.Without == HandKept && d.After < seq || w.Without == SuccessorKept && d.After >= seq {
			b.kept |= 1 << bundleOf(d.Mark)
		}
	}
	w.nameAny(b)
	if b.claim.slot() <= int(seq) {
		if b.isClaimed() {
			b.home = 0 // the outcome of the request is unknown
		}
		b.claim = 0
	}
}

// beNamed makes another broker name this one as its successor, which then takes bundles. Any broker may do that at
// any time, since a bundle is safe with every broker.
func (w *handoverWorld) beNamed(b *handoverBroker) {
	if w.AnyWinner || b.take.Winner() || b.take.Position() == 0 || !w.rarely(4) {
		w.skip()
		return
	}
	b.take = b.take.Clone()
	b.take.Named(handover.Session{}, b.take.Position())
	w.tell("%c is named to go on", b.name)
}

// crash makes a broker lose its memory. Its callers get no answers. Its frames and PUTs may still arrive.
func (w *handoverWorld) crash(b *handoverBroker) {
	if w.crashed == w.Crashes || b.take.Position() == 0 && b.session == 0 && b.take.Hand() == 0 && b.claim == 0 && b.home == 0 || !w.rarely(20) {
		w.skip()
		return
	}
	w.tell("%c crashes and restarts", b.name)
	w.count(brokersCrashed)
	w.crashed++
	w.restart(b)
}

// hearStranger gives the broker a commit or a bundle from a peer that has another log.
func (w *handoverWorld) hearStranger(b *handoverBroker) {
	at := b.take.Position()
	if !w.Strangers || at == 0 || !w.rarely(10) {
		w.skip()
		return
	}
	if w.pick(2) == 0 {
		w.hearCommit(b, at)
		return
	}
	f := w.names().Frame(byte(stranger), at+format.Seq(w.pick(w.Slots-int(at)+1)))
	if w.Without == NotAwaited {
		f.After = at
		f.AfterHash = hashOf(at)
	}
	take := b.take.Clone()
	answer := take.Take(f)
	if answer == handover.OtherLog {
		w.count(strangers)
	}
	if take.Hand() == b.take.Hand() {
		w.skip()
		return
	}
	w.tell("%c takes a bundle of a broker that has another log, sent after slot %d", b.name, f.After)
	w.count(strangersTaken)
	b.take = take
}

// hearCommit makes a broker get a commit that is built on another commit than the one that it has applied. The
// broker closes the connection, and reads the slot from the store.
func (w *handoverWorld) hearCommit(b *handoverBroker, at format.Seq) {
	if w.Without != WordIsEvidence {
		w.skip()
		return
	}
	w.tell("%c gets slot %d from another broker, with another hash of slot %d", b.name, at+1, at)
	w.violate(LossIsLoud, "%c halts, although the log has lost nothing", b.name)
}
