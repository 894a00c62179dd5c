package commitlog

import (
	"context"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/wait"
	"github.com/simple-event-broker/seb/objstore"
)

const (
	// toldMax and toldBytesMax bound the commits that other brokers have sent, and that are not applied yet: those that the
	// Log has not passed to the protocol, and those that wait for an earlier one. The commit of the next slot is taken
	// whatever its size.
	toldMax      = Window
	toldBytesMax = 16 << 20
)

// inbox has the commits that other brokers have sent. The goroutine of the Log takes them out between two steps, and
// while it waits.
type inbox struct {
	commits []toldCommit
	bytes   int64
	heard   chan struct{} // has an element if there are commits; its capacity is 1
}

type toldCommit struct {
	readCommit
	at Stamp
}

// Told takes a commit that another broker says it has written. body has the bytes of the commit's object, at least those of
// the head; size is the size of the whole object, and at is the store's date in the answer that decided the slot. The Log
// uses the commit like the answer to a Get, but never as evidence that the store has lost something, or of what time it
// is: see [Protocol.Told]. It drops a commit that it has applied already, that lies too far ahead, or that exceeds its
// memory; the slot is then read from the store, as if nobody had sent it.
//
// Told returns an error if body is not a commit of this log. Any goroutine may call Told. body must not change afterwards.
func (l *Log) Told(body []byte, size int64, at time.Time) error {
	start, err := StartCommit(objstore.Object{Body: body, Size: size})
	if err != nil {
		return err
	}
	if !start.Whole() {
		return format.Corrupt("%d bytes are not the whole head of a commit", len(body))
	}
	c, err := l.decode(body, size)
	if err != nil {
		return err
	}
	told := toldCommit{readCommit{commit: c, memory: start.Memory()}, l.stamp(at)}
	if int64(len(body)) == size {
		told.object = body
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	applied, _ := l.p.Position()
	full := len(l.inbox.commits) >= toldMax || l.inbox.bytes+told.memory > toldBytesMax && c.Seq > applied+1
	again := slices.ContainsFunc(l.inbox.commits, func(t toldCommit) bool { return t.commit.Seq == c.Seq })
	if full || again || c.Seq <= applied || c.Seq >= applied+Window {
		return nil
	}
	l.inbox.commits = append(l.inbox.commits, told)
	l.inbox.bytes += told.memory
	select {
	case l.inbox.heard <- struct{}{}:
	default:
	}
	return nil
}

// Heard returns a channel that has an element if other brokers have sent commits: see Follow.
func (l *Log) Heard() <-chan struct{} { return l.inbox.heard }

// Follow applies the commits that other brokers have sent, as far as they fit. It sends no requests to the store.
func (l *Log) Follow() error {
	l.takeTold()
	for l.canApply() {
		if err := l.apply(l.next().Seq); err != nil {
			return err
		}
	}
	return nil
}

// takeTold passes the commits that other brokers have sent to the protocol.
func (l *Log) takeTold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	applied, _ := l.p.Position()
	held := l.aheadBytes()
	for _, t := range l.inbox.commits {
		fits := held+t.memory <= toldBytesMax || t.commit.Seq == applied+1
		if fits && l.p.Told(t.commit.Seq, t.commit.Hash, t.commit.Prev, t.at) {
			l.read[t.commit.Seq] = t.readCommit
			held += t.memory
		}
	}
	if l.p.Confirmed() {
		l.read[l.claim.Seq] = readCommit{commit: l.claim}
	}
	l.inbox.commits, l.inbox.bytes = nil, 0
}

// ByWire reports whether the commit that is being applied came from its writer, and not from the store. Only [Fold].Apply calls it.
func (l *Log) ByWire() bool { return l.byWire }

// Gap reports whether commits that other brokers have sent wait for one that has not come, so that Follow can't apply them.
func (l *Log) Gap() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.p.Gap()
}

// Young reports whether the log lease is so young that no List is due to renew it.
func (l *Log) Young() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.p.Young(l.clock.Boot())
}

func (l *Log) canApply() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.p.CanApply()
}

// rest waits until d has passed, ctx ends, or another broker sends a commit.
func (l *Log) rest(ctx context.Context, d time.Duration) { wait.ForSignal(ctx, d, l.inbox.heard) }
