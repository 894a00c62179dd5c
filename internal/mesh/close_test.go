package mesh

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// What a mesh was told to send before it is closed arrives, also if it is a few megabytes.
func TestLastMessagesArrive(t *testing.T) {
	inBubble(t, func(n *net) {
		a, b, c := n.add(1, "east"), n.add(2, "east"), n.add(3, "west")
		b.sees(1)
		c.sees(1)
		synctest.Wait()
		want := []handed{}
		for i := range 20 {
			m := Bundle{Call: uint64(i), Sealed: make([]byte, 100_000)}
			a.HandAll(m)
			want = append(want, handed{id(1), m})
		}
		last := Successor{Ended: id(1), Session: id(2), After: 7}
		a.HandAll(last)
		a.Close()
		synctest.Wait()
		want = append(want, handed{id(1), last})
		requireEqual(n.T, b.handed, want)
		requireEqual(n.T, c.handed, want)
		requireEqual(n.T, []int{a.connected(), b.connected(), c.connected()}, []int{0, 1, 1}) // the two have met
	})
}

// A peer that takes no messages does not hold up the end of a mesh for long.
func TestCloseWaitsForNoDeafPeer(t *testing.T) {
	inBubble(t, func(n *net) {
		n.slow = 5 * time.Second // for what the second one receives
		a := n.add(1, "east")
		n.add(2, "east")
		a.sees(2)
		time.Sleep(n.slow)
		synctest.Wait()
		requireEqual(n.T, a.connected(), 1)
		for range 200 { // more than the connection holds
			a.HandAll(Alive{})
		}
		begun := time.Now()
		a.Close()
		requireEqual(n.T, time.Since(begun), finishMax)
	})
}

// busyConn is a connection on which each message takes a second to send.
type busyConn struct{ Conn }

func (busyConn) Send(context.Context, []byte) error {
	time.Sleep(time.Second)
	return nil
}

// A link ends with its last message, also if that came while an earlier one was being sent.
func TestLinkEndsWithItsLastMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(busyConn{}, id(1))
		begun := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- l.send(t.Context()) }()
		l.put([]byte("first"))
		synctest.Wait()
		l.put([]byte("last"))
		l.finish()
		select {
		case err := <-ended:
			if took := time.Since(begun); err != nil || took != 2*time.Second {
				t.Errorf("the link ended after %v: %v", took, err)
			}
		case <-time.After(time.Minute):
			t.Error("the link goes on")
		}
	})
}
