package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/httpapi"
	"github.com/simple-event-broker/seb/internal/test/kit"
)

const (
	openTimeout  = 2 * time.Minute
	leaveTimeout = 30 * time.Second // longer than the 10 s of seb serve, because a process that was paused takes longer to end
)

// node is a machine with its disk. Brokers run on the machine one after the other; each run is a life.
type node struct {
	sim  *simulation
	name string
	rng  *rand.Rand
	dir  string // directory of the cache; "" if there is none

	mu   sync.Mutex
	life *life // nil while no broker serves clients on the node
	link *link // link of the newest life, which may have ended
	born int
}

// life is one run of a broker, from its start to its end.
type life struct {
	name   string
	link   *link
	broker *seb.Broker
	server *http.Server
	listen *listener
}

// current returns the life that serves clients; nil if the node is down.
func (n *node) current() *life {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.life
}

// present returns the link of the newest life, which may have ended; nil before the first life.
func (n *node) present() *link {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.link
}

// run starts one life after the other until the simulation ends.
func (n *node) run() {
	for !n.sim.ending() {
		l := n.start()
		if l == nil {
			n.sim.sleep(between(n.rng, 10*time.Millisecond, 10*time.Second))
			continue
		}
		<-l.link.cut
		n.cleanUp(l)
		n.sim.sleep(between(n.rng, time.Millisecond, n.sim.plan.delay))
		n.spoilCache()
	}
}

// newLife returns a life that has not begun to open the bucket.
func (n *node) newLife() *life {
	n.born++
	l := &life{name: fmt.Sprintf("%s%d", n.name, n.born), listen: newListener()}
	n.sim.begin(l.name)
	// Each link has a clock of its own, which dates the store's answers. The dates of two links at the same
	// moment differ by less than half of the option Margin, including jitter and rounding to whole seconds.
	most := n.sim.plan.margin/4 - n.sim.plan.dateJitter - time.Second
	skew := time.Duration(n.rng.Int64N(int64(2*most))) - most
	l.link = newLink(n.sim, l.name, n.sim.network(n.name), skew, func() { n.crash(l) })
	n.mu.Lock()
	n.link = l.link
	n.mu.Unlock()
	if dies := chance(n.rng, 0.3); dies && !n.sim.plan.calm && !n.sim.healed() {
		l.link.crashIn(1 + n.rng.IntN(60))
	}
	return l
}

// start opens the bucket. It returns nil if that failed.
func (n *node) start() *life {
	l := n.newLife()
	opts := n.sim.plan.options(n.rng)
	opts.CacheDir, opts.Address = n.dir, n.sim.plan.address(l.name)
	if n.sim.plan.clock {
		opts = kit.InVirtualTime(opts)
	}
	if n.sim.plan.walls {
		opts.WallClock = n.wall()
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	n.sim.history.note("%s starts", l.name)
	b, err := seb.Open(ctx, l.link.store, opts)
	if err != nil {
		n.sim.history.note("%s does not start: %v", l.name, err)
		if !l.link.dead() && seb.CodeOf(err) != seb.CodeStoreUnavailable {
			n.sim.history.violate("LossIsLoud", "a false alarm of %s: %v", l.name, err)
		}
		l.link.sever()
		return nil
	}
	l.broker = b
	l.server = httpapi.NewServer(httpapi.New(b, httpapi.Options{DialPeer: n.sim.dialPeer(l)}), nil)
	n.sim.flights.Go(func() {
		if err := l.server.Serve(l.listen); !errors.Is(err, http.ErrServerClosed) {
			n.sim.history.violate("Liveness", "the server of %s ends: %v", l.name, err)
		}
	})
	n.sim.flights.Go(func() { n.watch(l) })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.life = l
	n.sim.history.note("%s is ready", l.name)
	return l
}

// wallJumps is the time between two jumps of a machine's wall clock.
const wallJumps = time.Minute

// wall returns a wall clock that is up to 6 hours off. Every wallJumps it jumps to a different error.
func (n *node) wall() func() time.Time {
	return func() time.Time {
		r := stream(n.sim.cfg.Seed, "wall", n.name, n.sim.now()/wallJumps)
		return time.Now().Round(0).Add(time.Duration(r.Int64N(int64(12*time.Hour))) - 6*time.Hour)
	}
}

// dialPeer returns a function with which a life connects to other lives by their names.
func (s *simulation) dialPeer(l *life) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		rng := l.link.draw("peer")
		for _, n := range s.nodes {
			if owner := n.current(); owner != nil && owner.name+":80" == address && !l.link.dead() {
				bytes := 0
				if !s.plan.calm && !s.healed() && chance(rng, 0.15) {
					bytes = 1 + rng.IntN(2000)
				}
				conn, err := owner.listen.dial(ctx, bytes)
				if err == nil && !s.plan.calm && !s.healed() && chance(rng, 0.15) {
					conn = newSluggish(conn, between(rng, 10*time.Millisecond, 10*time.Second), s.healed)
				}
				return conn, err
			}
		}
		return nil, errNobody
	}
}

// watch reports a violation if the broker of a life stops by itself.
func (n *node) watch(l *life) {
	select {
	case <-l.link.cut:
		return
	case <-l.broker.Stopped():
	}
	if err := l.broker.Status().Err; seb.CodeOf(err) == seb.CodeBrokerStopped && !l.link.dead() {
		n.sim.history.violate("LossIsLoud", "a false alarm of %s: %v", l.name, err)
		n.crash(l)
	}
}

// leave removes a life from the node, so that no new client connects to it.
func (n *node) leave(l *life) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life == l {
		n.life = nil
	}
}

// crash ends a life as kill -9 does: from this instant on, nothing that the life does reaches the store or a
// client.
func (n *node) crash(l *life) {
	n.leave(l)
	n.sim.history.note("%s crashes", l.name)
	l.link.sever()
	l.listen.hangUp()
}

// cleanUp closes the server and the broker of a life that has ended.
func (n *node) cleanUp(l *life) {
	n.leave(l)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	n.within(leaveTimeout, l.name+" does not end when its context has ended", func() {
		_ = l.server.Close() // nobody sees the errors of a dead process
		_ = l.broker.Shutdown(ctx)
	})
	n.sim.keepEnded(l)
}

// stop ends a life in the way that SIGTERM does.
func (n *node) stop(l *life) {
	n.leave(l)
	n.sim.history.note("%s is asked to end", l.name)
	l.link.stop(0)
	n.within(leaveTimeout, l.name+" does not end when it is asked to", func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		shut := l.server.Shutdown(ctx)
		closed := l.server.Close()
		n.sim.history.note("%s has ended: %v", l.name, errors.Join(shut, closed, l.broker.Close()))
	})
	l.link.sever()
}

// within calls do, and reports a violation if do has not returned after the time d.
func (n *node) within(d time.Duration, complaint string, do func()) {
	done := make(chan struct{})
	n.sim.flights.Go(func() {
		defer close(done)
		do()
	})
	select {
	case <-done:
	case <-time.After(d):
		n.sim.history.violate("Liveness", "%s", complaint)
	}
}

// spoilCache deletes or damages the cache on disk, or leaves it as it is.
func (n *node) spoilCache() {
	if n.dir == "" {
		return
	}
	files, err := filepath.Glob(filepath.Join(n.dir, "*"))
	if err != nil {
		panic(err) // can't happen: the pattern is constant and valid
	}
	switch how := n.rng.IntN(4); how {
	case 0:
		n.sim.history.note("the cache of %s is gone", n.name)
		n.sim.must(os.RemoveAll(n.dir))
	case 1, 2:
		n.sim.history.note("the cache of %s is damaged", n.name)
		for _, f := range files {
			n.sim.must(damage(n.rng, f, how == 1))
		}
	}
}

// damage flips a few bytes of a file, or cuts off its end.
func damage(r *rand.Rand, path string, flip bool) error {
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 {
		return err
	}
	if flip {
		for range 1 + r.IntN(20) {
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		}
	} else {
		b = b[:r.IntN(len(b))]
	}
	return os.WriteFile(path, b, 0o600)
}
