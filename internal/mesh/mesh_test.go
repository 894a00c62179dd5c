package mesh

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/test/loglines"
	"github.com/simple-event-broker/seb/internal/test/meshtest"
	"github.com/simple-event-broker/seb/internal/wait"
)

// net connects meshes. The address of a mesh is its session.
type net struct {
	*testing.T
	mu     sync.Mutex
	meshes map[format.SessionID]*node
	dials  int
	cut    bool          // nobody reaches anybody
	slow   time.Duration // how long a message to the dialed node takes
	ends   []*meshtest.Pipe
}

// handed is a message about requests, and who has sent it.
type handed struct {
	from format.SessionID
	m    Handed
}

// node is a broker: its mesh, its position, and what it was told.
type node struct {
	*Mesh
	mu   sync.Mutex
	seq  format.Seq
	hash format.Hash
	told []Commit
	bad  error // what Told returns

	joined  atomic.Int64
	lost    int
	syncs   int
	syncing time.Duration // how long Sync takes
	failing error         // what Sync returns
	handed  []handed
}

func (n *node) Sync(ctx context.Context) error {
	n.mu.Lock()
	n.syncs++
	syncing, failing := n.syncing, n.failing
	n.mu.Unlock()
	wait.For(ctx, syncing)
	return cmp.Or(ctx.Err(), failing)
}

// Joined implements Log.
func (n *node) Joined() { n.joined.Add(1) }

// Lost implements Log.
func (n *node) Lost() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost++
}

// set changes what the node answers.
func (n *node) set(seq format.Seq, syncing time.Duration, failing error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seq, n.syncing, n.failing = seq, syncing, failing
}

func (n *node) Position() (format.Seq, format.Hash) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seq, n.hash
}

func (n *node) Told(body []byte, size int64, at time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = append(n.told, Commit{body, size, at})
	return n.bad
}

func (n *node) Handed(from format.SessionID, m Handed) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.handed = append(n.handed, handed{from, m})
	return nil
}

func (n *node) bodies() (all []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.told {
		all = append(all, string(c.Body))
	}
	return all
}

func (n *net) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

func (n *net) dialed() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}

var errUnreachable = errors.New("unreachable")

func (n *net) dial(from format.SessionID) func(context.Context, format.SessionID, string) (Conn, error) {
	return func(_ context.Context, session format.SessionID, address string) (Conn, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.dials++
		to := n.meshes[session]
		if n.cut || to == nil || address != fmt.Sprint(session) {
			return nil, errUnreachable
		}
		one, two := meshtest.NewPipe(100)
		n.ends = append(n.ends, one)
		go to.Serve(slowConn{two, n.slow}, from)
		return one, nil
	}
}

// slowConn is a connection on which messages come late.
type slowConn struct {
	Conn
	late time.Duration
}

func (c slowConn) Receive(ctx context.Context) ([]byte, error) {
	b, err := c.Conn.Receive(ctx)
	wait.For(ctx, c.late)
	return b, err
}

// breakAll ends all connections.
func (n *net) breakAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, end := range n.ends {
		end.Close()
	}
}

func id(i int) format.SessionID { return format.SessionID{byte(i), byte(i >> 8)} }

func (n *net) add(i int, zone string) *node {
	x := n.create(i, fmt.Sprint(id(i)))
	n.open(x, i, zone)
	return x
}

// create adds a node whose mesh is not open yet.
func (n *net) create(i int, address string) *node {
	x := &node{}
	x.Mesh = New(id(i), address, format.LevelSegments, x, loglines.Text(n.T, n.Output(), slog.LevelDebug))
	n.Cleanup(x.Close)
	return x
}

func (n *net) open(x *node, i int, zone string) {
	x.Open(Options{Version: "v1", Zone: zone, Dial: n.dial(id(i))})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.meshes[id(i)] = x
}

func (n *node) sees(i int) { n.Seen(id(i), fmt.Sprint(id(i)), false) }

func (n *node) connected() (count int) {
	n.Mesh.mu.Lock()
	defer n.Mesh.mu.Unlock()
	for _, p := range n.peers {
		if p.link != nil {
			count++
		}
	}
	return count
}

func inBubble(t *testing.T, test func(n *net)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(&net{T: t, meshes: map[format.SessionID]*node{}}) })
}

func requireEqual[T any](t *testing.T, got, want T) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestCommitsReachAllPeers(t *testing.T) {
	inBubble(t, func(n *net) {
		a, b, c := n.add(1, "east"), n.add(2, "east"), n.add(3, "west")
		b.sees(1)
		c.sees(1)
		c.sees(2)
		synctest.Wait()
		requireEqual(n.T, []int{a.connected(), b.connected(), c.connected()}, []int{2, 2, 2})
		date := time.UnixMicro(123456)
		a.Write([]byte("head"), [][]byte{[]byte(" pay"), []byte("load")}, 12, date)
		large := bytes.Repeat([]byte("x"), inlineBytesMax+1)
		a.Write([]byte("big"), [][]byte{large}, int64(3+len(large)), date)
		synctest.Wait()
		requireEqual(n.T, b.bodies(), []string{"head payload", "big"}) // the payload goes to the same zone, unless it is large
		requireEqual(n.T, c.bodies(), []string{"head", "big"})
		if told := b.told[0]; told.Size != 12 || !told.Date.Equal(date) {
			n.Fatalf("told a size of %d, at %v", told.Size, told.Date)
		}
		requireEqual(n.T, len(a.told), 0)
	})
}

func TestPeersAreListed(t *testing.T) {
	inBubble(t, func(n *net) {
		n.slow = 3 * time.Millisecond
		a, b := n.add(1, "east"), n.add(2, "west")
		b.sees(1)
		b.Seen(id(3), "", false)
		seen := time.Now()
		time.Sleep(time.Second)
		requireEqual(n.T, b.Peers(n.Context()), []Peer{
			{Session: id(1), Address: fmt.Sprint(id(1)), Committed: seen, Connected: true, HandsOver: true, RoundTrip: 3 * time.Millisecond, Version: "v1", Zone: "east"},
			{Session: id(3), Committed: seen},
		})
		requireEqual(n.T, a.Peers(n.Context()), []Peer{{Session: id(2), Address: fmt.Sprint(id(2)), Connected: true, HandsOver: true, RoundTrip: 3 * time.Millisecond, Version: "v1", Zone: "west"}})
		n.setCut(true)
		n.breakAll()
		time.Sleep(time.Minute)
		requireEqual(n.T, b.Peers(n.Context())[0], Peer{Session: id(1), Address: fmt.Sprint(id(1)), Committed: seen, Version: "v1", Zone: "east", Err: errUnreachable})
	})
}

// Both sides connect to each other at the same time. One connection stays.
func TestOneConnectionForEachPair(t *testing.T) {
	inBubble(t, func(n *net) {
		a, b := n.add(1, ""), n.add(2, "")
		for range 3 {
			a.sees(2)
			b.sees(1)
			time.Sleep(time.Minute)
		}
		a.Write([]byte("x"), nil, 1, time.Now())
		b.Write([]byte("y"), nil, 1, time.Now())
		synctest.Wait()
		requireEqual(n.T, []any{a.bodies(), b.bodies()}, []any{[]string{"y"}, []string{"x"}})
		if n.dialed() > 2 {
			n.Fatalf("%d connections", n.dialed())
		}
	})
}

// A connection that is not new gives way to the next one, whoever asked for it: the other side may have lost the old one.
func TestNewConnectionReplacesAnOldOne(t *testing.T) {
	inBubble(t, func(n *net) {
		a := n.add(1, "")
		n.add(2, "")
		a.sees(2)
		time.Sleep(time.Minute)
		one, two := meshtest.NewPipe(10)
		defer two.Close()
		go a.Serve(one, id(2))
		if err := two.Send(n.Context(), hello{layout: Layout}.encode()); err != nil {
			n.Fatal(err)
		}
		synctest.Wait()
		a.Write([]byte("x"), nil, 1, time.Now())
		synctest.Wait()
		for range 2 { // the hello, and then the commit
			within, cancel := context.WithTimeout(n.Context(), time.Second)
			if _, err := two.Receive(within); err != nil {
				n.Fatal(err)
			}
			cancel()
		}
		requireEqual(n.T, a.Any(), true)
		two.Close()
		synctest.Wait()
		requireEqual(n.T, a.Any(), false) // both connections have ended
	})
}

// A connection that ends is made again, for as long as the other broker was seen lately.
func TestConnectionsComeBack(t *testing.T) {
	inBubble(t, func(n *net) {
		a, b := n.add(1, ""), n.add(2, "")
		b.sees(1)
		synctest.Wait()
		n.breakAll()
		synctest.Wait()
		requireEqual(n.T, []int{a.connected(), b.connected(), a.lost, b.lost}, []int{0, 0, 1, 1})
		time.Sleep(2 * retryMin)
		requireEqual(n.T, []int{a.connected(), b.connected()}, []int{1, 1})

		n.setCut(true)
		n.breakAll()
		time.Sleep(2 * Lively)
		before := n.dialed()
		time.Sleep(2 * Lively)
		requireEqual(n.T, n.dialed(), before) // it has given up
		n.setCut(false)
		b.sees(1)
		synctest.Wait()
		requireEqual(n.T, []int{a.connected(), b.connected()}, []int{1, 1})
	})
}

// A broker on a copy of the log, which has gone its own way, is no peer.
func TestBrokerOfAnotherLogIsNoPeer(t *testing.T) {
	inBubble(t, func(n *net) {
		a, b := n.add(1, ""), n.add(2, "")
		a.seq, a.hash = 7, format.Hash{1}
		b.seq, b.hash = 7, format.Hash{2}
		b.sees(1)
		time.Sleep(2 * time.Second)
		requireEqual(n.T, []int{a.connected(), b.connected()}, []int{0, 0})
		requireEqual(n.T, n.dialed(), 1) // the next attempt comes after a minute
		b.Mesh.mu.Lock()
		failed := b.peers[id(1)].failed
		b.Mesh.mu.Unlock()
		if !errors.Is(failed, ErrOtherLog) {
			n.Fatal(failed)
		}
	})
}

// A peer that sends what is no commit of the log loses its connection.
func TestBadCommitEndsTheConnection(t *testing.T) {
	inBubble(t, func(n *net) {
		a, b := n.add(1, ""), n.add(2, "")
		b.sees(1)
		synctest.Wait()
		b.mu.Lock()
		b.bad = format.ErrCorrupt
		b.mu.Unlock()
		a.Write([]byte("x"), nil, 1, time.Now())
		synctest.Wait()
		requireEqual(n.T, []int{a.connected(), b.connected()}, []int{0, 0})
	})
}

// A peer that does not read costs bounded memory, and delays nobody.
func TestSlowPeerIsLeftBehind(t *testing.T) {
	inBubble(t, func(n *net) {
		a := n.add(1, "")
		one, two := meshtest.NewPipe(0)
		go a.Serve(one, id(9))
		if _, err := greet(n.Context(), two, hello{layout: Layout}); err != nil {
			n.Fatal(err)
		}
		synctest.Wait()
		requireEqual(n.T, a.connected(), 1)
		commit := bytes.Repeat([]byte("x"), 1<<20)
		for range 100 {
			a.Write(commit, nil, 1<<20, time.Now())
		}
		a.Mesh.mu.Lock()
		waits := a.peers[id(9)].link.bytes
		a.Mesh.mu.Unlock()
		if waits > outboxBytesMax {
			n.Fatalf("%d bytes wait", waits)
		}
		time.Sleep(2 * sendTimeout)
		requireEqual(n.T, a.connected(), 0)
		two.Close()
	})
}

// A broker asks another one where the log ends. That one finds it out after the question has come.
func TestPeerProvesTheEnd(t *testing.T) {
	inBubble(t, func(n *net) {
		a, b := n.add(1, ""), n.add(2, "")
		ctx := n.Context()
		if _, err := b.Ask(ctx, id(1)); !errors.Is(err, ErrNoPeer) {
			n.Fatal(err)
		}
		b.sees(1)
		synctest.Wait()
		const syncing = 30 * time.Millisecond
		a.set(7, syncing, nil)
		begin := time.Now()
		end, err := b.Ask(ctx, id(1))
		if took := time.Since(begin); err != nil || end != 7 || took != syncing || a.syncs != 1 {
			n.Fatalf("slot %d after %v and %d syncs: %v", end, took, a.syncs, err)
		}

		a.set(7, syncing, errUnreachable) // then it says nothing
		within, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := b.Ask(within, id(1)); !errors.Is(err, context.DeadlineExceeded) {
			n.Fatal(err)
		}

		a.set(7, time.Hour, nil)
		go func() {
			time.Sleep(time.Second)
			n.breakAll()
		}()
		if _, err := b.Ask(ctx, id(1)); !errors.Is(err, ErrNoPeer) {
			n.Fatal(err)
		}
	})
}

// A connection without a hello ends soon.
func TestSilentPeerIsNoPeer(t *testing.T) {
	inBubble(t, func(n *net) {
		a := n.add(1, "")
		one, two := meshtest.NewPipe(1)
		defer two.Close()
		begin := time.Now()
		a.Serve(one, id(9))
		if took := time.Since(begin); took != helloTimeout {
			n.Fatalf("it took %v", took)
		}
	})
}

func TestPeersAreBounded(t *testing.T) {
	inBubble(t, func(n *net) {
		a := n.add(1, "")
		n.setCut(true)
		for i := range 2 * PeersMax {
			a.sees(i + 2)
			time.Sleep(time.Second)
		}
		a.Mesh.mu.Lock()
		requireEqual(n.T, len(a.peers), PeersMax)
		if a.peers[id(2)] != nil || a.peers[id(2*PeersMax+1)] == nil {
			n.Error("the oldest peers are kept")
		}
		a.Mesh.mu.Unlock()

		// Peers that a does not reach keep nobody out, neither one that it sees nor one that connects to it.
		n.setCut(false)
		b, c := n.add(5000, ""), n.add(5001, "")
		a.sees(5000)
		c.sees(1)
		synctest.Wait()
		requireEqual(n.T, []int{a.connected(), b.connected(), c.connected()}, []int{2, 2, 2}) // b and c have met
	})
}

// A connection over which nothing comes counts as broken, so that nobody waits for it.
func TestConnectionThatBringsNothingCountsAsBroken(t *testing.T) {
	inBubble(t, func(n *net) {
		a, b := n.add(1, ""), n.add(2, "")
		b.sees(1)
		synctest.Wait()
		works := func(want bool) {
			n.Helper()
			if got := b.Connected(id(1)); got != want || (b.Stats().Peers == 1) != want {
				n.Fatalf("connected: %v, %+v", got, b.Stats())
			}
		}
		works(true)
		time.Sleep(time.Hour)
		works(true) // a wrote nothing
		b.sees(1)
		works(false) // b has read a commit of a from the store
		a.Write([]byte("x"), nil, 1, time.Now())
		synctest.Wait()
		works(true)

		a.set(7, time.Hour, nil) // a takes long to answer
		for _, pause := range []time.Duration{askPauseMin, 2 * askPauseMin, 4 * askPauseMin} {
			within, cancel := context.WithTimeout(n.Context(), time.Millisecond)
			if _, err := b.Ask(within, id(1)); !errors.Is(err, context.DeadlineExceeded) {
				n.Fatal(err)
			}
			cancel()
			time.Sleep(pause - time.Nanosecond)
			works(false)
			time.Sleep(time.Nanosecond)
			works(true)
		}
	})
}

// Peers leaves out brokers that have ended: those that have written nothing for long, and those whose address another one has.
func TestPeersThatHaveEndedAreNotListed(t *testing.T) {
	inBubble(t, func(n *net) {
		a := n.add(1, "")
		n.setCut(true)
		for i := range 3 {
			a.Seen(id(i+2), "same", false)
			time.Sleep(time.Nanosecond)
		}
		a.Seen(id(9), "other", false)
		var listed []format.SessionID
		for _, p := range a.Peers(n.Context()) {
			listed = append(listed, p.Session)
		}
		requireEqual(n.T, fmt.Sprint(listed), fmt.Sprint([]format.SessionID{id(4), id(9)}))
		time.Sleep(Lively + time.Nanosecond)
		requireEqual(n.T, len(a.Peers(n.Context())), 0)
	})
}

// A broker notices that its messages get lost while it sends commits, though the other one says nothing anyway.
func TestLostMessagesAreNoticed(t *testing.T) {
	inBubble(t, func(n *net) {
		a, b := n.add(1, ""), n.add(2, "")
		b.sees(1)
		synctest.Wait()
		works := func(want bool) {
			n.Helper()
			if got := a.Takes(id(2)); got != want {
				n.Fatalf("takes: %v", got)
			}
		}
		write := func() {
			a.Write([]byte("x"), nil, 1, time.Now())
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		for range 3 {
			write()
			time.Sleep(time.Second)
			works(true)
		}
		n.ends[0].Mute(true) // what b sends
		write()
		time.Sleep(pingTimeout)
		works(true)
		time.Sleep(time.Nanosecond)
		works(false)
		n.ends[0].Mute(false)
		write()
		works(false) // it sends no second ping
		requireEqual(n.T, b.Hand(id(1), Turn{}), true)
		synctest.Wait()
		works(true)

		a.Silent(id(2))
		works(false)
		requireEqual(n.T, b.Hand(id(1), Turn{}), true)
		synctest.Wait()
		works(true)
	})
}

// The more often a broker refuses a connection, the less often others ask for one.
func TestRefusedConnectionsAreTriedLessOften(t *testing.T) {
	inBubble(t, func(n *net) {
		a, b := n.add(1, ""), n.add(2, "")
		a.Close() // it accepts, and closes at once
		b.sees(1)
		time.Sleep(Lively)
		if n.dialed() > 20 {
			n.Fatalf("%d attempts in %v", n.dialed(), Lively)
		}
	})
}

// While one of the connected brokers does not agree to a level of the log's format, or says nothing of levels as earlier versions
// do, the brokers do not all agree.
func TestAllConnectedBrokersMustAgreeToALevel(t *testing.T) {
	inBubble(t, func(n *net) {
		a := n.add(1, "")
		n.add(2, "")
		a.sees(2)
		time.Sleep(time.Minute)
		if !a.AllAgree(format.LevelSegments) {
			n.Error("one other broker is connected, which agrees")
		}
		holds := hello{layout: Layout, level: format.LevelSegments - 1}.encode()
		for _, greeting := range [][]byte{holds, holds[:len(holds)-4]} {
			one, two := meshtest.NewPipe(10)
			a.sees(3)
			go a.Serve(one, id(3))
			if err := two.Send(n.Context(), greeting); err != nil {
				n.Fatal(err)
			}
			synctest.Wait()
			if a.AllAgree(format.LevelSegments) {
				n.Errorf("a broker with the hello %x is connected", greeting)
			}
			two.Close()
			synctest.Wait()
			if !a.AllAgree(format.LevelSegments) {
				n.Error("that broker has gone")
			}
		}
	})
}

func FuzzMessage(f *testing.F) {
	f.Add(hello{layout: Layout, applied: 7, hash: format.Hash{1}, version: "v1.2", zone: "east", level: 6}.encode())
	f.Add(Commit{Body: []byte("head"), Size: 10, Date: time.UnixMicro(99)}.encode())
	f.Add(ask{7}.encode())
	f.Add(proof{7, 8}.encode())
	f.Add(Successor{Ended: id(1), Session: id(2), After: 7}.encode())
	f.Add(Ride{}.encode())
	f.Add(meet{address: "http://a", others: []contact{{id(1), "http://b"}, {id(2), ""}}}.encode())
	f.Add([]byte{99})
	f.Fuzz(func(t *testing.T, b []byte) {
		message, err := decode(b)
		if err != nil {
			return
		}
		var again []byte
		switch m := message.(type) {
		case hello:
			again = m.encode()
			n := min(len(again), len(b)) // an earlier version sends no level; what follows is of a newer one
			again, b = again[:n], b[:n]
		case Commit:
			again = m.encode()
		case ask:
			again = m.encode()
			b = b[:len(again)]
		case proof:
			again = m.encode()
			b = b[:len(again)]
		case Ride:
			again = m.encode()
			b = b[:len(again)]
		case Successor:
			again = m.encode()
			b = b[:len(again)]
		case meet:
			again = m.encode()
			b = b[:len(again)]
		default:
			return
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}
