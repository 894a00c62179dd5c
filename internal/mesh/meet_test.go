package mesh

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/pack"
	"github.com/simple-event-broker/seb/internal/test/meshtest"
)

// connections returns how many brokers each node is connected to.
func connections(nodes ...*node) (counts []int) {
	for _, x := range nodes {
		counts = append(counts, x.connected())
	}
	return counts
}

// Brokers that have seen no commit of each other connect, since a third one is connected to all of them.
func TestConnectedBrokersMeetEachOther(t *testing.T) {
	inBubble(t, func(n *net) {
		a, b, c, d := n.add(1, ""), n.add(2, ""), n.add(3, ""), n.add(4, "")
		b.sees(1)
		synctest.Wait()
		c.sees(1)
		synctest.Wait()
		requireEqual(n.T, connections(a, b, c), []int{2, 2, 2})
		d.sees(3)
		synctest.Wait()
		requireEqual(n.T, connections(a, b, c, d), []int{3, 3, 3, 3})
		requireEqual(n.T, n.dialed(), 6) // one for each pair
		for _, p := range d.Peers(n.Context()) {
			if p.Address != fmt.Sprint(p.Session) || !p.Committed.IsZero() && p.Session != id(3) {
				n.Errorf("%+v", p)
			}
		}
		// After a long time without commits, a lost connection comes back.
		time.Sleep(2 * Lively)
		n.breakAll()
		time.Sleep(2 * retryMax)
		requireEqual(n.T, connections(a, b, c, d), []int{3, 3, 3, 3})
	})
}

// A broker without an address connects to those that join later.
func TestBrokerWithoutAddressMeetsOthers(t *testing.T) {
	inBubble(t, func(n *net) {
		a, b, c := n.add(1, ""), n.create(2, ""), n.add(3, "")
		n.open(b, 2, "")
		b.sees(1)
		synctest.Wait()
		c.sees(1)
		synctest.Wait()
		requireEqual(n.T, connections(a, b, c), []int{2, 2, 2})
	})
}

// A broker that can't be reached, though another one is connected to it, costs some attempts. So does an address that is wrong.
func TestUnreachableBrokerIsNotTriedForEver(t *testing.T) {
	inBubble(t, func(n *net) {
		a, b := n.add(1, ""), n.create(2, "wrong")
		n.open(b, 2, "")
		b.sees(1)
		synctest.Wait()
		c := n.add(3, "")
		c.sees(1)
		time.Sleep(2 * Lively)
		requireEqual(n.T, connections(a, b, c), []int{2, 1, 1})
		if before := n.dialed(); before > 30 {
			n.Errorf("%d attempts", before)
		} else if time.Sleep(time.Hour); n.dialed() != before {
			n.Errorf("%d further attempts", n.dialed()-before)
		}
	})
}

// fake connects a node to a broker that says hello in a layout. It returns the connection of that broker.
func (n *net) fake(to *node, i int, layout uint16) *meshtest.Pipe {
	near, far := meshtest.NewPipe(1000)
	go to.Serve(near, id(i))
	if err := far.Send(n.Context(), hello{layout: layout}.encode()); err != nil {
		n.Fatal(err)
	}
	synctest.Wait()
	return far
}

// kinds returns the kinds of the messages that have come.
func (n *net) kinds(conn *meshtest.Pipe) (kinds []byte) {
	conn.Close()
	for {
		b, err := conn.Receive(n.Context())
		if err != nil {
			return kinds
		}
		kinds = append(kinds, b[0])
	}
}

func TestOlderBrokersAreToldOfNobody(t *testing.T) {
	inBubble(t, func(n *net) {
		a, b := n.add(1, ""), n.add(2, "")
		b.sees(1)
		synctest.Wait()
		for layout, want := range map[uint16]bool{1: false, 2: false, 3: true, 4: true} {
			got := strings.Contains(string(n.kinds(n.fake(a, 9, layout))), string([]byte{kindMeet}))
			if got != want {
				n.Errorf("layout %d: told of others: %v", layout, got)
			}
		}
	})
}

// A malformed message ends the connection. One that tells of many brokers makes no broker forget those that it is connected to.
func TestHostileMeetings(t *testing.T) {
	for name, m := range map[string]meet{
		"too many":    {others: make([]contact, PeersMax+1)},
		"own address": {address: strings.Repeat("x", format.WriterAddressMax+1)},
		"address":     {others: []contact{{id(5), strings.Repeat("x", format.WriterAddressMax+1)}}},
	} {
		if _, err := decode(m.encode()); !errors.Is(err, pack.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b := (meet{others: []contact{{id(5), "x"}}}).encode(); len(b) > 0 {
		for i := range b {
			if _, err := decode(b[:i]); err == nil {
				t.Errorf("it ends after %d bytes", i)
			}
		}
	}
	inBubble(t, func(n *net) {
		a, b := n.add(1, ""), n.add(2, "")
		b.sees(1)
		synctest.Wait()
		conn := n.fake(a, 9, Layout)
		for round := range 3 {
			m := meet{others: []contact{{id(1), "of itself"}, {id(7), ""}}}
			for i := range PeersMax - 2 {
				m.others = append(m.others, contact{id(1000*round + 100 + i), "nowhere"})
			}
			if err := conn.Send(n.Context(), m.encode()); err != nil {
				n.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		requireEqual(n.T, connections(a, b), []int{2, 1})
		if l := len(a.Peers(n.Context())); l > PeersMax {
			n.Errorf("%d peers", l)
		}
		if err := conn.Send(n.Context(), meet{others: make([]contact, PeersMax+1)}.encode()); err != nil {
			n.Fatal(err)
		}
		synctest.Wait()
		requireEqual(n.T, a.connected(), 1)
	})
}
