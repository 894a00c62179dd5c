package engine

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/handover"
	"github.com/simple-event-broker/seb/internal/mesh"
	"github.com/simple-event-broker/seb/internal/pack"
)

// lettersMax bounds the messages that wait for the commit loop. Further ones are dropped, as if they were lost.
const lettersMax = 4096

// mailbox has the messages that other brokers have sent. Its lock is a leaf.
type mailbox struct {
	wake   chan struct{} // has an element if there are messages; its capacity is 1
	mu     sync.Mutex
	all    []letter
	called map[format.SessionID]uint64 // the call that a broker may still answer with a bundle
}

// letter is a message of another broker. If the message is a Bundle, bundle is what it has, or nil if it is empty.
type letter struct {
	from   format.SessionID
	at     time.Time // when it came
	m      mesh.Handed
	bundle *bundle
}

// put adds a message. It returns false if the message is a bundle that nobody has called for.
func (b *mailbox) put(l letter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x, ok := l.m.(mesh.Bundle); ok {
		if call, ok := b.called[l.from]; !ok || call != x.Call {
			return false
		}
		delete(b.called, l.from)
	}
	switch l.m.(type) {
	case mesh.Bundle, mesh.Answer:
	default: // the last message of a kind says all
		b.all = slices.DeleteFunc(b.all, func(o letter) bool { return o.from == l.from && reflect.TypeOf(o.m) == reflect.TypeOf(l.m) })
	}
	if len(b.all) >= lettersMax {
		return false
	}
	b.all = append(b.all, l)
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return true
}

func (b *mailbox) has() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.all) > 0
}

func (b *mailbox) take() []letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.all
	b.all = nil
	return taken
}

// forget notes that a broker has answered a call with a bundle that was not taken.
func (b *mailbox) forget(session format.SessionID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.called, session)
}

func (b *mailbox) call(session format.SessionID, number uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.called[session] = number
}

// open returns how many of the sessions may still answer a call.
func (b *mailbox) open(sessions []format.SessionID) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range sessions {
		if _, ok := b.called[s]; ok {
			n++
		}
	}
	return n
}

// Handed implements mesh.Log.
func (e meshLog) Handed(from format.SessionID, m mesh.Handed) error {
	l, again := letter{from: from, at: time.Now(), m: m}, false
	if x, ok := m.(mesh.Bundle); ok && len(x.Sealed) > 0 {
		b, err := decodeBundle(x.Sealed, e.opts.DecodeChange)
		if errors.Is(err, pack.ErrUnknown) {
			e.hand.mailbox.forget(from)
			e.metrics.bundleRefusals.add("unknown version")
			e.mesh.Hand(from, mesh.Answer{Code: byte(handover.NoRoom)})
			return nil
		}
		if err != nil {
			return err
		}
		if b.Session != handover.Session(from) {
			return fmt.Errorf("%w: a bundle names another session than the one that has sent it", pack.ErrMalformed)
		}
		b.Seal = sha256.Sum256(x.Sealed)
		var ok bool
		if again, ok = e.hand.memory.take(e.life, b.Mark, len(x.Sealed)); !ok {
			e.hand.mailbox.forget(from)
			e.metrics.bundleRefusals.add(handover.NoRoom.String())
			e.mesh.Hand(from, mesh.Answer{Number: b.Number, Draw: b.Draw, Code: byte(handover.NoRoom)})
			return nil
		}
		l.bundle = b
	}
	if !e.hand.mailbox.put(l) && l.bundle != nil && !again {
		e.hand.memory.give(l.bundle.Mark)
	}
	switch m.(type) {
	case mesh.Offer, mesh.Turn:
		e.beatFor(from)
	}
	return nil
}

// readMail handles the messages of other brokers.
func (e *Engine) readMail() {
	h := &e.hand
	letters := h.mailbox.take()
	e.follow() // a commit that was sent before a message comes first
	for _, l := range letters {
		delete(h.missed, l.from)
		peer := handover.Session(l.from)
		h.winner.Heard(peer, h.now())
		switch m := l.m.(type) {
		case mesh.Offer:
			switch {
			case h.receiver.Winner() && e.closing.Load(): // soon it is told who goes on
				h.gave[l.from] = l.at
			case h.receiver.Winner():
				h.offers[l.from] = l.at.Add(m.Due)
			default:
				e.mesh.Hand(l.from, mesh.Answer{Code: byte(handover.NotWinner)})
			}
		case mesh.Ride:
			if h.receiver.Winner() {
				h.riders[l.from] = true
			}
		case mesh.Turn:
			if h.receiver.Winner() && !e.closing.Load() && h.mayHaveTurn(l.from) {
				h.needs[l.from] = min(m.For, yieldMax)
				h.turns = append(slices.DeleteFunc(h.turns, func(s format.SessionID) bool { return s == l.from }), l.from)
			} else {
				e.mesh.Hand(l.from, mesh.Answer{Code: byte(handover.NotWinner)})
			}
		case mesh.Yield:
			switch {
			case m.After != 0:
				h.granted, h.behind, h.asked = m.After, m.After, format.SessionID{} // behind, in case this broker has missed a commit
			case l.from == h.turnOf: // it no longer needs the slot
				h.free = time.Time{}
			}
		case mesh.Call:
			e.answerCall(l.from, m)
		case mesh.Bundle:
			e.takeBundle(l.from, m, l.bundle)
		case mesh.Answer:
			e.readAnswer(peer, m)
		case mesh.Alive:
			if peer == h.winner.Session() {
				h.winnerFails = m.Fails
			}
			if m.Fails && !e.storeFails() || m.Since > max(300*time.Millisecond, 4*e.commitTime()) {
				e.leave(peer, leftStoreSlow)
			}
		case mesh.Successor:
			e.succeed(m)
		}
	}
	e.setPulse()
}
