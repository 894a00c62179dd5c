package engine

import (
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/handover"
	"github.com/simple-event-broker/seb/internal/mesh"
)

// joinMax is how long a broker that has just started waits at most for a connection to the broker that commits for all, before it
// claims slots itself: each claim is a race, which slows the others down.
const joinMax = 500 * time.Millisecond

// joining knows, during the recovery, which other broker has written the last commit.
type joining struct {
	mark *format.WriterMark // nil if no other broker has written one after the checkpoint, or if one of an older version has
	at   int64              // the log's time in that commit
}

// noteWriter notes who has written a commit. If it has the address of this broker, it has ended: this one takes its place.
func (e *Engine) noteWriter(c *format.Commit) {
	if m := c.Mark(); m == nil || m.Address == "" || m.Address != e.opts.Address {
		e.joining = joining{m, c.Time}
	}
}

// prepareJoin makes the other broker that wrote the last commit the winner, to which this one hands over its requests, unless that
// broker has probably ended. This one connects to it as soon as it may have connections.
func (e *Engine) prepareJoin() {
	m := e.joining.mark
	if m == nil || e.log.StoreNow().UnixMicro()-e.joining.at > mesh.Lively.Microseconds() {
		return
	}
	e.writer = m.Session
	e.hand.winner.Applied(handover.Commit{Writer: handover.Session(m.Session)}, e.hand.now())
	e.mesh.Join(m.Session, m.Address, min(joinMax, e.opts.AppendTimeout/8))
}

// Joined implements mesh.Log.
func (e meshLog) Joined() { e.tail.wakeLoop() }
