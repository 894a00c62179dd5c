package mesh

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// A broker that starts waits for the connection to the one that wrote the last commit, but only while that attempt is under way.
func TestStartingBrokerWaitsForItsFirstConnection(t *testing.T) {
	const most = 300 * time.Millisecond
	reaches := func(ctx context.Context, n *net, d time.Duration) func(context.Context, format.SessionID, string) (Conn, error) {
		return func(_ context.Context, session format.SessionID, address string) (Conn, error) {
			time.Sleep(d)
			return n.dial(id(3))(ctx, session, address)
		}
	}
	for name, x := range map[string]struct {
		session int
		address string
		dial    time.Duration // how long the attempt takes
		cut     bool
		waits   time.Duration
		linked  bool
	}{
		"reached":                        {session: 1, address: fmt.Sprint(id(1)), dial: 50 * time.Millisecond, waits: 50 * time.Millisecond, linked: true},
		"refused":                        {session: 1, address: fmt.Sprint(id(1)), dial: 50 * time.Millisecond, cut: true, waits: 50 * time.Millisecond},
		"slow":                           {session: 1, address: fmt.Sprint(id(1)), dial: time.Second, waits: most, linked: true},
		"another broker at that address": {session: 7, address: fmt.Sprint(id(1)), dial: 0, waits: 0},
		"no address":                     {session: 1, waits: 0},
		"its own address":                {session: 1, address: fmt.Sprint(id(3)), waits: 0},
		"itself":                         {session: 3, address: fmt.Sprint(id(1)), waits: 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(n *net) {
				n.add(1, "")
				n.setCut(x.cut)
				c := n.create(3, fmt.Sprint(id(3)))
				c.Join(id(x.session), x.address, most)
				time.Sleep(time.Minute) // a broker that keeps no connections does not wait
				requireEqual(n.T, c.Joining(), 0)
				begun := time.Now()
				c.Open(Options{Dial: reaches(n.Context(), n, x.dial)})
				if x.waits > 0 {
					requireEqual(n.T, c.Joining(), most)
				}
				for synctest.Wait(); c.Joining() > 0; synctest.Wait() {
					time.Sleep(time.Millisecond)
				}
				requireEqual(n.T, time.Since(begun), x.waits)
				if told := int64(1); x.waits < most && x.waits > 0 {
					requireEqual(n.T, c.joined.Load(), told)
				}
				time.Sleep(2 * time.Second)
				requireEqual(n.T, c.connected() == 1, x.linked)
				requireEqual(n.T, c.Joining(), 0)
			})
		})
	}
}
