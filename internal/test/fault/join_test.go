package fault_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/meshtest"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// joinAnswer is how long the store takes for a request.
const joinAnswer = 30 * time.Millisecond

// joiners are brokers that start one after the other. The address of a broker is its index.
type joiners struct {
	*testing.T
	memory objstore.Store

	mu      sync.Mutex
	brokers []*seb.Broker
	claims  []int // Creates in log/ by each broker
	refused int   // those that lost a race
	deaf    map[int]bool
	dead    map[int]bool
}

func newJoiners(t *testing.T) *joiners {
	t.Helper()
	return &joiners{T: t, memory: objstore.NewMemory(), deaf: map[int]bool{}, dead: map[int]bool{}}
}

// start starts a further broker. address may be empty.
func (j *joiners) start(address bool) *seb.Broker {
	j.Helper()
	j.mu.Lock()
	i := len(j.brokers)
	j.brokers, j.claims = append(j.brokers, nil), append(j.claims, 0)
	j.mu.Unlock()
	return j.startAs(i, address)
}

// startAs starts a broker in the place of broker i.
func (j *joiners) startAs(i int, address bool) *seb.Broker {
	j.Helper()
	store := storetest.NewFaulty(j.memory)
	store.On("", "", func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
		time.Sleep(joinAnswer / 2)
		a, err := next(ctx, q)
		time.Sleep(joinAnswer / 2)
		if q.Verb == objstore.VerbCreate && strings.HasPrefix(q.Key, "log/") {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.claims[i]++
			if errors.Is(err, objstore.ErrExists) {
				j.refused++
			}
		}
		return a, err
	})
	opts := immediate()
	if address {
		opts.Address = strconv.Itoa(i)
	}
	b := open(j.T, store, opts)
	j.mu.Lock()
	j.brokers[i] = b
	j.mu.Unlock()
	b.Peers().Open(seb.PeerOptions{Dial: func(ctx context.Context, session seb.SessionID, address string) (seb.PeerConn, error) {
		to, err := strconv.Atoi(address)
		if err != nil {
			return nil, err
		}
		j.mu.Lock()
		deaf, dead, other := j.deaf[to], j.dead[to], j.brokers[to]
		j.mu.Unlock()
		if deaf {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if dead || other.Session().ID() != session {
			return nil, errors.New("nobody with that session is there")
		}
		near, far := meshtest.NewPipe(1000)
		go other.Peers().Serve(far, b.Session())
		return near, nil
	}})
	return b
}

// counts returns how many claims a broker has sent, and how many of all brokers were refused.
func (j *joiners) counts(i int) (claims, refused int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.claims[i], j.refused
}

// load appends through a broker all the time, until the returned function is called. That returns how long the slowest append took.
func (j *joiners) load(b *seb.Broker) (stop func() time.Duration) {
	var (
		wg      sync.WaitGroup
		longest time.Duration
		ends    = make(chan struct{})
	)
	wg.Go(func() {
		for {
			select {
			case <-ends:
				return
			default:
			}
			begun := time.Now()
			if _, err := b.Append(j.Context(), "t", values("v")); err != nil {
				j.Error(err)
				return
			}
			longest = max(longest, time.Since(begun))
		}
	})
	return func() time.Duration {
		close(ends)
		wg.Wait()
		return longest
	}
}

func (j *joiners) wantAllConnected() {
	j.Helper()
	for i, b := range j.brokers {
		connected := 0
		for _, p := range b.Peers().List(j.Context()) {
			if p.Connected {
				connected++
			}
		}
		if connected != len(j.brokers)-1 {
			j.Errorf("broker %d is connected to %d others", i, connected)
		}
	}
}

// A broker that starts while others are busy slows them down as little as it slows itself down: it claims no slot, and all brokers
// are connected to each other.
func TestStartingBrokerJoinsWithoutRaces(t *testing.T) {
	for _, addresses := range [][]bool{{true, true, true}, {true, false, true}} {
		synctest.Test(t, func(t *testing.T) {
			j := newJoiners(t)
			a := j.start(addresses[0])
			mustCreateTopic(t, a, "t", 1)
			stops := []func() time.Duration{j.load(a)}
			b := j.start(addresses[1])
			stops = append(stops, j.load(b))
			time.Sleep(5 * time.Second)
			c := j.start(addresses[2])
			begun := time.Now()
			mustAppend(t, c, "t", "v")
			if took := time.Since(begun); took > 6*joinAnswer {
				t.Errorf("the first append took %v", took)
			}
			stops = append(stops, j.load(c))
			time.Sleep(5 * time.Second)
			j.wantAllConnected()
			for i, stop := range stops {
				if longest := stop(); longest > 6*joinAnswer {
					t.Errorf("addresses %v: an append of broker %d took %v", addresses, i, longest)
				}
			}
			claims := 0
			for i := 1; i < 3; i++ {
				n, _ := j.counts(i)
				claims += n
			}
			if _, refused := j.counts(0); claims > 0 || refused > 0 {
				t.Errorf("addresses %v: the new brokers sent %d claims, and %d claims were refused", addresses, claims, refused)
			}
		})
	}
}

// The broker that commits for all ends, and starts again at once. It joins the others, and the appends through them go on.
func TestRestartedBrokerJoinsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoiners(t)
		a := j.start(true)
		mustCreateTopic(t, a, "t", 1)
		mustAppend(t, a, "t", "v")
		stops := []func() time.Duration{j.load(j.start(true)), j.load(j.start(true))}
		time.Sleep(5 * time.Second)
		for range 3 {
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			a = j.startAs(0, true)
			before, _ := j.counts(0)
			for range 20 {
				mustAppend(t, a, "t", "v")
			}
			if claims, _ := j.counts(0); claims > before {
				t.Errorf("it sent %d claims", claims-before)
			}
			time.Sleep(2 * time.Second)
			j.wantAllConnected()
		}
		for i, stop := range stops {
			if longest := stop(); longest > 6*joinAnswer {
				t.Errorf("an append of broker %d took %v", i+1, longest)
			}
		}
		if _, refused := j.counts(0); refused > 0 {
			t.Errorf("%d claims were refused", refused)
		}
	})
}

// A broker whose predecessor at the same address wrote the last commit joins the broker that wrote the one before.
func TestRestartedBrokerFindsTheOtherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoiners(t)
		b := j.start(true)
		mustCreateTopic(t, b, "t", 1)
		opts := immediate()
		opts.Address = "1"
		mustAppend(t, open(t, j.memory, opts), "t", "v")
		j.brokers, j.claims = append(j.brokers, nil), append(j.claims, 0)
		j.startAs(1, true)
		time.Sleep(time.Second)
		j.wantAllConnected()
	})
}

// A broker that starts after the others have ended commits at once, and one whose others don't answer after a short wait.
func TestStartingBrokerDoesNotWaitForDeadOnes(t *testing.T) {
	for name, x := range map[string]struct {
		prepare func(j *joiners)
		most    time.Duration
	}{
		"refused":         {func(j *joiners) { j.dead[0] = true }, 2 * joinAnswer},
		"no answer":       {func(j *joiners) { j.deaf[0] = true }, 500*time.Millisecond + 2*joinAnswer},
		"long ago":        {func(j *joiners) { j.deaf[0] = true; time.Sleep(11 * time.Minute) }, 2 * joinAnswer},
		"a broker itself": {func(j *joiners) { j.brokers, j.claims = nil, nil }, 2 * joinAnswer}, // the new one gets the same address
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJoiners(t)
				a := j.start(true)
				mustCreateTopic(t, a, "t", 1)
				x.prepare(j)
				b := j.start(true)
				begun := time.Now()
				mustAppend(t, b, "t", "v")
				if took := time.Since(begun); took > x.most {
					t.Errorf("the first append took %v, want at most %v", took, x.most)
				}
			})
		})
	}
}

// A broker that keeps no connections, such as that of an embedding program, waits for nobody.
func TestBrokerWithoutPeersDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoiners(t)
		mustCreateTopic(t, j.start(true), "t", 1)
		b := open(t, storetest.Slow(j.memory, joinAnswer), immediate())
		begun := time.Now()
		mustAppend(t, b, "t", "v")
		if took := time.Since(begun); took > 2*joinAnswer {
			t.Errorf("the first append took %v", took)
		}
	})
}

// Several brokers that start at the same time all join the one that is busy.
func TestBrokersThatStartTogetherJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoiners(t)
		a := j.start(true)
		mustCreateTopic(t, a, "t", 1)
		stop := j.load(a)
		var starts sync.WaitGroup
		for i := range 4 {
			starts.Go(func() {
				b := j.start(true)
				for n := range 20 {
					if _, err := b.Append(t.Context(), "t", values(fmt.Sprintf("%d/%d", i, n))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		starts.Wait()
		if longest := stop(); longest > 6*joinAnswer {
			t.Errorf("an append took %v", longest)
		}
		time.Sleep(5 * time.Second)
		j.wantAllConnected()
		if _, refused := j.counts(0); refused > 0 {
			t.Errorf("%d claims were refused", refused)
		}
	})
}
