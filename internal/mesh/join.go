package mesh

import (
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// join is the first connection of a broker that has just started: to the broker that wrote the last commit.
type join struct {
	session format.SessionID // zero if there is nobody to connect to
	address string
	max     time.Duration
	until   time.Time // when this broker stops waiting for the connection; zero if it does not wait
}

// Join names the broker that wrote the last commit before this one started. Once the mesh is open, it connects to that broker, and
// Joining tells how long this one waits for that, at most max. If the address is that of this broker, the other one has ended.
// Call it before Open.
func (m *Mesh) Join(session format.SessionID, address string, max time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if session != m.session && address != "" && address != m.address {
		m.join = join{session: session, address: address, max: max}
	}
}

// Joining returns how long this broker may still wait for its first connection; 0 if it does not wait: it is connected, the attempt
// has failed, or there was nobody to connect to.
func (m *Mesh) Joining() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(0, time.Until(m.join.until))
}

// joinLocked begins to connect to the broker of Join.
func (m *Mesh) joinLocked() {
	if m.join.session == (format.SessionID{}) || !m.open {
		return
	}
	p := m.peerLocked(m.join.session) // not nil, since there are no connections yet
	p.address, p.alive, m.join.until = m.join.address, time.Now(), time.Now().Add(m.join.max)
	m.dialLocked(p)
}

// joinedLocked ends the wait for the first connection if it was one to that session.
func (m *Mesh) joinedLocked(session format.SessionID) {
	if session == m.join.session && !m.join.until.IsZero() {
		m.join.until = time.Time{}
		m.log.Joined()
	}
}
