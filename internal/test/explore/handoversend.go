package explore

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/handover"
)

// getRequest gives a broker a request, which the broker does not put into a bundle at once.
func (w *handoverWorld) getRequest(b *handoverBroker) {
	if !w.Direct || w.sealed == w.Bundles || b.home != 0 || !w.rarely(4) {
		w.skip()
		return
	}
	n := bundle(w.sealed)
	w.tell("%c gets a request, b%d", b.name, n)
	w.bundles[n] = sealedBundle{request: uint8(n), earlier: w.earlierThan(b, b.send)}
	w.sealed++
	b.home = uint8(n) + 1
	b.sealed |= 1 << n
}

// earlierThan returns the requests that must not come after the broker's next request.
func (w *handoverWorld) earlierThan(b *handoverBroker, send *handover.Sender) (requests uint8) {
	for _, e := range ones(b.sealed) {
		if !w.copied(e, b) {
			requests |= 1 << w.bundles[e].request
		}
	}
	for _, u := range send.Undecided() {
		requests |= 1 << w.bundles[bundleOf(u.Mark)].request
	}
	return requests
}

// seal seals a bundle, and sends it. The bundle has the request that was in no bundle until then, or a new request.
func (w *handoverWorld) seal(b *handoverBroker) {
	if w.sealed == w.Bundles || !w.rarely(4) {
		w.skip()
		return
	}
	send := b.send.Clone()
	n := bundle(w.sealed)
	s := sealedBundle{request: uint8(n), session: b.session}
	home := b.home
	switch {
	case home != 0 && b.isClaimed() && w.pick(2) == 1: // a later request; only without the rule "Claimed"
	case home != 0:
		s.request, home = w.bundles[home-1].request, 0
	}
	if again := send.Undecided(); w.Without == NewNumber && len(again) > 0 {
		s.request = uint8(bundleOf(again[0].Mark))
		send = handover.NewSender(handover.Session{}, b.take.Position(), hashOf(b.take.Position()))
		s.session = 0
	}
	if s.session == 0 {
		s.session = uint8(n) + 1
		send.Renew(handover.Session{s.session})
	}
	next, ok := send.Next()
	if !ok {
		w.skip()
		return
	}
	s.number = uint8(next.Number)
	s.earlier = w.earlierThan(b, send) &^ (1 << s.request)
	if next.Before != (handover.Mark{}) {
		s.before = 1 + uint8(bundleOf(next.Before))
	}
	s.conditional = w.Conditions && w.pick(2) == 1
	w.bundles[n] = s
	w.sealed++
	send.Sealed(w.sealedAs(n))
	b.send, b.session, b.sealed, b.home = send, s.session, b.sealed|1<<n, home
	w.tell("%c seals b%d as number %d of session %d%s, and sends it", b.name, n, s.number, s.session, details(n, s))
	w.transmit(frameFor(send, n))
}

func details(n bundle, s sealedBundle) string {
	switch {
	case s.request != uint8(n):
		return fmt.Sprintf(", with the request of b%d", s.request)
	case s.conditional:
		return ", with a condition"
	default:
		return ""
	}
}

// frameFor returns the frame that a sender sends for an undecided bundle.
func frameFor(send *handover.Sender, n bundle) handover.Frame {
	frames := send.Frames()
	return frames[slices.IndexFunc(frames, func(f handover.Frame) bool { return bundleOf(f.Mark) == n })]
}

// transmit puts a frame on its way, and returns false if an equal one is on its way already.
func (w *handoverWorld) transmit(f handover.Frame) bool {
	before := len(w.frames)
	w.frames = inserted(w.frames, handedOver{bundleOf(f.Mark), uint8(f.After)}, func(x, y handedOver) int {
		return cmp.Or(cmp.Compare(x.bundle, y.bundle), cmp.Compare(x.after, y.after))
	})
	return len(w.frames) > before
}

func (w *handoverWorld) sendAgain(b *handoverBroker) {
	frames := b.send.Frames()
	if len(frames) == 0 {
		w.skip()
		return
	}
	f := frames[w.pick(len(frames))]
	if !w.transmit(f) {
		w.skip()
		return
	}
	w.tell("%c sends b%d again, after slot %d", b.name, bundleOf(f.Mark), f.After)
}

// frameOf returns a frame as it arrives at a broker. To leave out some of the rules, it changes the frame.
func (w *handoverWorld) frameOf(h handedOver, b *handoverBroker) handover.Frame {
	f := handover.Frame{Bundle: w.sealedAs(h.bundle), After: format.Seq(h.after)}
	switch w.Without {
	case NoCompare:
		if f.After >= b.take.Horizon() {
			f.After = max(f.After, b.take.Position())
		}
	case NoHorizon:
		f.After = max(f.After, b.take.Horizon())
	case NoPredecessor:
		f.Before = handover.Mark{}
	case PredecessorByNumber:
		f.Before = w.byNumber(f.Before, b)
	case NoOrder:
		f.Bundle = unnumbered(f.Bundle)
	default:
	}
	f.AfterHash = hashOf(f.After)
	return f
}

// byNumber returns a mark that has the session and the number of another mark, if the log up to the broker's
// position has one.
func (w *handoverWorld) byNumber(m handover.Mark, b *handoverBroker) handover.Mark {
	for s := 1; s <= int(b.take.Position()); s++ {
		for _, l := range w.log[s].marks() {
			if o := w.markOf(l.bundle()); o.Session == m.Session && o.Number == m.Number {
				return o
			}
		}
	}
	return m
}

// takeBundle makes a broker get a frame that was sent some time ago.
func (w *handoverWorld) takeBundle(b *handoverBroker) {
	if len(w.frames) == 0 {
		w.skip()
		return
	}
	h := w.frames[w.pick(len(w.frames))]
	if b.sealed&(1<<h.bundle) != 0 && !w.copied(h.bundle, b) {
		w.skip() // no broker sends a bundle to itself
		return
	}
	take := b.take.Clone()
	answer := take.Take(w.frameOf(h, b))
	w.counted(answer, take.Hand() > b.take.Hand())
	switch {
	case answer == handover.Have && take.Hand() > b.take.Hand():
		w.tell("%c takes b%d, which was sent after slot %d", b.name, h.bundle, h.after)
		b.take = take
	case answer != handover.Have && w.Without == NoIsFinal && w.undecided(h.bundle):
		w.tell("%c answers no to b%d: %v", b.name, h.bundle, answer)
		w.refuse(h.bundle)
	default:
		w.skip()
	}
}

// copied reports whether another broker has sealed a bundle, too, as a copy of the broker b.
func (w *handoverWorld) copied(n bundle, b *handoverBroker) bool {
	return slices.ContainsFunc(w.brokers[:w.Brokers], func(o handoverBroker) bool { return o.name != b.name && o.sealed&(1<<n) != 0 })
}

// undecided reports whether a broker knows a bundle as undecided.
func (w *handoverWorld) undecided(n bundle) bool {
	return slices.ContainsFunc(w.brokers[:w.Brokers], func(b handoverBroker) bool {
		return slices.ContainsFunc(b.send.Undecided(), func(u handover.Bundle) bool { return bundleOf(u.Mark) == n })
	})
}

func (w *handoverWorld) counted(a handover.Answer, more bool) {
	switch {
	case a == handover.Have && more:
		w.count(taken)
	case a == handover.Seen:
		w.count(seenMarks)
	case a == handover.TooOld:
		w.count(tooOld)
	case a == handover.Overtaken:
		w.count(overtaken)
	case a == handover.NoPredecessor:
		w.count(withoutBefore)
	}
}
