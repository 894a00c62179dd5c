package explore

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/handover"
)

// bundle is the number of a sealed bundle in the world, beginning at 0.
type bundle uint8

// stranger is the bundle of a peer that has another log. No slot of that log has the hash that the slot has in the
// log of the world.
const stranger bundle = bundlesMax

// sealedBundle is what the world knows about a bundle. A bundle has one request. A request that is in no bundle also has
// a number and a sealedBundle of its own, but the log never has a mark for it.
type sealedBundle struct {
	session, number uint8
	before          uint8 // 1 + the bundle before it; 0 if there is none
	request         uint8 // the bundle that had the request first: usually the same bundle
	earlier         uint8 // a bit for each request that must not come later in the log
	conditional     bool
}

// written is a commit: its slot, its marks in order, and a bit for each bundle that its writer has refused
// without a mark (only without the rule "Verdict"). A slot that is not written has 0.
type written uint64

// mark is a mark in a commit: 1 + the bundle, and refusedMark if the verdict is "refused". If it has noMark, it is
// not a mark, but a request that is in no bundle.
type mark uint8

const refusedMark, noMark mark = 0x80, 0x40

func (m mark) bundle() bundle { return bundle(m&^(refusedMark|noMark)) - 1 }

func writtenIn(slot int, marks []mark, left uint8) written {
	c := written(slot) | written(left)<<(8*(1+entriesMax))
	for i, m := range marks {
		c |= written(m) << (8 * (1 + i))
	}
	return c
}

func (c written) slot() int   { return int(c & 0xff) }
func (c written) left() uint8 { return uint8(c >> (8 * (1 + entriesMax))) }

func (c written) marks() []mark {
	var list []mark
	for i := 1; i <= entriesMax; i++ {
		if m := mark(c >> (8 * i)); m != 0 {
			list = append(list, m)
		}
	}
	return list
}

func (c written) String() string {
	if c == 0 {
		return "nothing"
	}
	list := []string{}
	for _, m := range c.marks() {
		s := fmt.Sprintf("b%d", m.bundle())
		if m&refusedMark != 0 {
			s += " refused"
		}
		if m&noMark != 0 {
			s += " in no bundle"
		}
		list = append(list, s)
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// handedOver is a frame with a bundle, which its sender has sent to any of the other brokers. It may arrive
// there at any later time, any number of times, or never.
type handedOver struct {
	bundle bundle
	after  uint8
}

// handoverWorld is a log, the brokers that commit to it, and the bundles that they hand over. The log is a simple
// model: a slot is won once, and a commit is built on the applied slot right before its own.
type handoverWorld struct {
	*HandoverConfig
	moment

	bundles [bundlesMax + 1]sealedBundle
	sealed  int                           // how many bundles were sealed
	log     [handoverSlotsMax + 1]written // by slot
	end     int                           // the last written slot
	flights []written                     // commits whose PUT may still succeed, sorted
	told    []written                     // commits that were sent to other brokers, sorted
	frames  []handedOver                  // sorted
	refused uint8                         // a bit for each request whose caller was told that it is not committed
	doubled bool                          // a broker was copied
	crashed int                           // how many brokers have crashed
	brokers [brokersMax]handoverBroker
}

func newHandoverWorld(cfg *HandoverConfig) *handoverWorld {
	w := &handoverWorld{HandoverConfig: cfg, moment: moment{only: cfg.Only}}
	w.bundles[stranger] = sealedBundle{session: strangersSession, number: 1}
	for i := range w.brokers[:cfg.Brokers] {
		w.brokers[i].name = 'A' + byte(i)
		w.restart(&w.brokers[i])
	}
	return w
}

// hashOf returns the hash of the commit in a slot. A slot is won once, so the slot determines the commit.
func hashOf(slot format.Seq) (h format.Hash) {
	h[0] = byte(slot)
	return h
}

// sealedAs returns a bundle as the package handover knows it.
func (w *handoverWorld) sealedAs(b bundle) handover.Bundle {
	s := w.bundles[b]
	as := handover.Bundle{Mark: w.markOf(b)}
	if s.before > 0 {
		as.Before = w.markOf(bundle(s.before - 1))
	}
	return as
}

func (w *handoverWorld) markOf(b bundle) (m handover.Mark) {
	m.Session[0], m.Number = w.bundles[b].session, uint64(w.bundles[b].number)
	m.Draw[0], m.Seal[0] = byte(b+1), byte(b+1)
	return m
}

// bundleOf is the inverse of markOf.
func bundleOf(m handover.Mark) bundle { return bundle(m.Draw[0] - 1) }

// names returns how a key of the world (see key) names marks, and how it names the frames and hashes of a receiver.
func (w *handoverWorld) names() handover.Names {
	return handover.Names{
		Name: func(m handover.Mark) byte { return byte(bundleOf(m)) },
		Frame: func(name byte, after format.Seq) handover.Frame {
			f := handover.Frame{Bundle: w.sealedAs(bundle(name)), After: after, AfterHash: hashOf(after)}
			if bundle(name) == stranger && w.Without != AnyHash && w.Without != NotAwaited {
				f.AfterHash[1] = 1
			}
			return f
		},
		Hash: hashOf,
	}
}

// receiverNames is like names, for the bundles and marks that a receiver knows. Without the rule "Order", they have
// no numbers.
func (w *handoverWorld) receiverNames() handover.Names {
	names := w.names()
	if w.Without == NoOrder {
		frame := names.Frame
		names.Frame = func(name byte, after format.Seq) handover.Frame {
			f := frame(name, after)
			f.Bundle = unnumbered(f.Bundle)
			return f
		}
	}
	return names
}

func unnumbered(b handover.Bundle) handover.Bundle {
	b.Number, b.Before.Number = 0, 0
	return b
}

// step makes one thing happen.
func (w *handoverWorld) step() {
	switch n := w.pick(2 + w.Brokers); n {
	case 0:
		w.land()
	case 1:
		w.double()
	default:
		w.stepHandover(&w.brokers[n-2])
	}
}

// land executes a PUT. It succeeds, since the slot is free; the other PUTs of that slot can't succeed any more.
func (w *handoverWorld) land() {
	if len(w.flights) == 0 {
		w.skip()
		return
	}
	c := w.flights[w.pick(len(w.flights))]
	if !w.rarely(4) {
		w.skip()
		return
	}
	w.end++
	w.log[w.end] = c
	w.flights = nil
	w.tell("a PUT of slot %d with %v, sent some time ago, succeeds", w.end, c)
	w.count(landed)
	if len(c.marks()) > 0 {
		w.count(bundlesLanded)
	}
	w.checkLog()
}

// double makes one broker a copy of another. Both have the same session, and go on with the same numbers.
func (w *handoverWorld) double() {
	if !w.Double || w.doubled || !w.rarely(10) {
		w.skip()
		return
	}
	from := &w.brokers[w.pick(w.Brokers)]
	to := &w.brokers[w.pick(w.Brokers)]
	if from == to || from.home != 0 {
		w.skip() // each copy would commit a request that is in no bundle
		return
	}
	w.tell("%c becomes a copy of %c, with its memory", to.name, from.name)
	w.count(doubles)
	w.doubled = true
	if from.session == 0 {
		from.session = sharedSession
		from.send = from.send.Clone()
		from.send.Renew(handover.Session{sharedSession})
	}
	name := to.name
	*to = *from
	to.name = name
}

// holds reports whether a condition holds at a place in the log: the log has one committed request before.
func (w *handoverWorld) holds(slot int, marks []mark) bool {
	committed := 0
	for s := 1; s < slot; s++ {
		committed += countCommitted(w.log[s].marks())
	}
	return committed+countCommitted(marks) == 1
}

func countCommitted(marks []mark) (n int) {
	for _, m := range marks {
		if m&refusedMark == 0 {
			n++
		}
	}
	return n
}

// all returns the marks of the log, in order.
func (w *handoverWorld) all() (marks []mark) {
	for s := 1; s <= w.end; s++ {
		marks = append(marks, w.log[s].marks()...)
	}
	return marks
}

// inserted returns a sorted list with x in it. It does not change the list.
func inserted[T any](list []T, x T, compare func(T, T) int) []T {
	i, found := slices.BinarySearchFunc(list, x, compare)
	if found {
		return list
	}
	return slices.Insert(slices.Clone(list), i, x)
}

func ones(mask uint8) (list []bundle) {
	for ; mask != 0; mask &= mask - 1 {
		list = append(list, bundle(bits.TrailingZeros8(mask)))
	}
	return list
}
