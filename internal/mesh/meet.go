package mesh

import (
	"cmp"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// A broker that hands over its requests need not write commits, so other brokers don't hear of it by the log. So brokers that
// connect to each other tell each other whom they are connected to.

// introduceLocked tells a peer that has just connected of the others. It does not wait.
func (m *Mesh) introduceLocked(p *peer) {
	if p.layout < layoutMeets {
		return
	}
	told := meet{address: m.address}
	for _, o := range m.peers {
		if o != p && o.link != nil && o.address != "" && len(told.others) < PeersMax {
			told.others = append(told.others, contact{o.session, o.address})
		}
	}
	p.link.put(told.encode())
}

// met takes what another broker tells of itself and of others, and connects to those.
func (m *Mesh) met(session format.SessionID, told meet) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from := m.peers[session]
	if from == nil || from.link == nil || !m.open {
		return
	}
	from.address = cmp.Or(told.address, from.address)
	for _, c := range told.others {
		if c.session == m.session || c.address == "" {
			continue
		}
		if p := m.peerLocked(c.session); p != nil {
			p.address, p.alive = cmp.Or(p.address, c.address), time.Now()
			m.dialLocked(p)
		}
	}
	m.passOnLocked(from)
}

// passOnLocked tells the peers that nobody can connect to of one with an address. It will not hear of them.
func (m *Mesh) passOnLocked(from *peer) {
	if from.address == "" {
		return
	}
	told := meet{address: m.address, others: []contact{{from.session, from.address}}}
	for _, o := range m.peers {
		if o != from && o.link != nil && o.layout >= layoutMeets && o.address == "" {
			o.link.put(told.encode())
		}
	}
}
