package sim

import (
	"time"
)

// injectFaults changes networks, stops processes and crashes them, until heal ends the faults.
func (s *simulation) injectFaults() {
	if s.plan.calm {
		return
	}
	r := stream(s.cfg.Seed, "befall")
	for {
		s.sleep(between(r, 20*time.Millisecond, time.Minute))
		if s.healed() {
			return
		}
		n := s.nodes[r.IntN(len(s.nodes))]
		l := n.current()
		switch what := r.IntN(10); {
		case what < 4:
			w := networks[r.IntN(len(networks))]
			s.history.note("the network of %s: %s", n.name, w.name)
			s.setNetwork(n, w)
		case what < 5:
			w := networks[r.IntN(len(networks))]
			s.history.note("all networks: %s", w.name)
			for _, n := range s.nodes {
				s.setNetwork(n, w)
			}
		case l == nil:
		case what < 6:
			d := between(r, time.Second, 2*s.plan.delay)
			s.history.note("%s is stopped for %v", l.name, d)
			l.link.stop(d)
		case what < 7:
			s.history.note("%s will crash soon", l.name)
			l.link.crashIn(1 + r.IntN(10))
		case what < 8:
			n.crash(l)
		case what < 9:
			n.stop(l)
		}
	}
}

// heal ends all faults, and waits until the last fault has had its effect.
func (s *simulation) heal() {
	s.mu.Lock()
	s.isHealed = true
	s.mu.Unlock()
	s.history.note("everything heals")
	for _, n := range s.nodes {
		s.setNetwork(n, healthy)
		if l := n.present(); l != nil {
			l.clear()
		}
	}
	time.Sleep(4*s.plan.delay + 10*time.Minute) // by then the store has executed the most delayed request, and the longest downtime is over
}

func (s *simulation) healed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isHealed
}
