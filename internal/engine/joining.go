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

// joining knows, during the recovery, who has written the last commit.
type joining struct {
	mark *format.WriterMark // nil if the recovery has applied no commit after the checkpoint, or one of an older version
	at   int64              // the log's time in that commit
}

// prepareJoin makes the broker that wrote the last commit the winner, to whom this one hands over its requests, unless that broker
// has probably ended. This one connects to it as soon as it may have connections.
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
