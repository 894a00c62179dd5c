package mesh

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// roundTripMax is how long Peers waits for the answers to its pings.
const roundTripMax = time.Second

// Peer is what a broker knows of another one.
type Peer struct {
	Session   format.SessionID
	Address   string        // where others reach it; "" if it has told none
	Committed time.Time     // when this broker applied its last commit; zero if it has applied none since its own start
	Connected bool          // there is a connection, on which both have proved their sessions, and that seems to work
	HandsOver bool          // the two hand over their requests to each other
	RoundTrip time.Duration // of a message to the other broker and back; 0 if the other one did not answer within a second
	Version   string        // of Seb; "" if there has been no connection
	Zone      string
	Err       error // why the last attempt to connect failed; nil if it did not, or if the other broker has connected to this one
}

// replacedLocked reports whether another session has the address of a peer, as after a restart.
func (m *Mesh) replacedLocked(p *peer) bool {
	for _, o := range m.peers {
		if p.address != "" && o != p && o.address == p.address && (o.link != nil || o.alive.After(p.alive)) {
			return true
		}
	}
	return false
}

// AllAgree reports whether all connected brokers agree to a level of the log's format.
func (m *Mesh) AllAgree(level uint32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.peers {
		if p.link != nil && p.level < level {
			return false
		}
	}
	return true
}

// Peers returns the other brokers that have written commits since the start of this one, that others have told it of, or that are
// connected to it. It sends each a message to measure the round trip.
func (m *Mesh) Peers(ctx context.Context) []Peer {
	ctx, cancel := context.WithTimeout(ctx, roundTripMax)
	defer cancel()
	m.mu.Lock()
	peers, links := make([]Peer, 0, len(m.peers)), make([]*link, 0, len(m.peers))
	for _, p := range m.peers {
		if p.link == nil && (time.Since(p.alive) > Lively || m.replacedLocked(p)) {
			continue // it has ended
		}
		works := p.link != nil && p.link.works()
		peers = append(peers, Peer{
			Session: p.session, Address: p.address, Committed: p.seen, Connected: works, HandsOver: works && p.layout >= layoutHands,
			Version: p.version, Zone: p.zone, Err: p.failed,
		})
		links = append(links, p.link)
	}
	m.mu.Unlock()
	var pings sync.WaitGroup
	for i, l := range links {
		if l != nil && peers[i].HandsOver { // older brokers know no pings
			pings.Go(func() { peers[i].RoundTrip, _ = l.ping(ctx) }) // without an answer, the round trip is unknown
		}
	}
	pings.Wait()
	slices.SortFunc(peers, func(a, b Peer) int { return bytes.Compare(a.Session[:], b.Session[:]) })
	return peers
}
