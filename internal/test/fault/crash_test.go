package fault_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// crash makes a process die at its k-th request. That request is executed or not, and neither it nor
// any later request is ever answered.
type crash struct {
	k        int // counted from 0
	executes bool
	died     chan struct{}

	mu sync.Mutex
	n  int
}

func newCrash(k int, executes bool) *crash {
	return &crash{k: k, executes: executes, died: make(chan struct{})}
}

func (c *crash) fault(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
	c.mu.Lock()
	n := c.n
	c.n++
	c.mu.Unlock()
	if n < c.k {
		return next(ctx, r)
	}
	if n == c.k {
		if c.executes {
			// The dead process does not get the answer.
			_, _ = next(context.WithoutCancel(ctx), r)
		}
		close(c.died)
	}
	<-ctx.Done()
	return storetest.Answer{}, ctx.Err()
}

func (c *crash) requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// crashLoad appends to two topics, one after the other and at the same time, small and large records,
// with checkpoints. It returns what was acknowledged, by topic and offset. It ends early when the
// broker dies.
func crashLoad(ctx context.Context, b *seb.Broker) map[string]map[seb.Offset]string {
	acked := map[string]map[seb.Offset]string{"a": {}, "b": {}}
	for i := range 9 {
		var pending []*seb.Pending
		var sent [][]seb.Record
		for j := range 3 {
			topic := []string{"a", "b", "a"}[j]
			rs := values(fmt.Sprintf("%s %d.%d.0", topic, i, j), fmt.Sprintf("%s %d.%d.1", topic, i, j))
			if i%4 == 3 && j == 2 {
				rs = values(large(fmt.Sprintf("%s %d.%d", topic, i, j), 5<<20))
			}
			p, err := b.AppendAsync(ctx, topic, rs)
			if err != nil {
				return acked
			}
			pending, sent = append(pending, p), append(sent, rs)
		}
		for j, p := range pending {
			a, err := p.Wait(ctx)
			if err != nil {
				continue
			}
			for k, r := range sent[j] {
				acked[a.Topic][a.Ranges[0].Offset+seb.Offset(k)] = string(r.Value)
			}
		}
	}
	return acked
}

// crashOnce runs the load, makes the process crash, and checks what a restart finds. It returns the
// number of requests to the store.
func crashOnce(t *testing.T, k int, executes bool) int {
	memory, faulty := newFaulty()
	onlyProbesAreDeleted(t, faulty)
	c := newCrash(k, executes)
	faulty.On("", "", c.fault)
	opts := immediate()
	opts.CheckpointCommits = 4
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		select {
		case <-c.died:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer cancel()
	var acked map[string]map[seb.Offset]string
	if b, err := seb.Open(ctx, faulty, opts); err == nil {
		acked = crashLoad(ctx, b)
		kill(t, b)
	}
	requests := c.requests()

	b := open(t, memory, opts)
	for topic, want := range acked {
		if len(want) == 0 {
			continue
		}
		got := readAll(t, b, topic, 0)
		for at, v := range want {
			if int(at) >= len(got) || got[at] != v {
				t.Errorf("request %d (executed: %v): the acknowledged record %q is not at %s/%d", k, executes, v[:8], topic, at)
			}
		}
		sorted := slices.Sorted(slices.Values(got))
		if len(slices.Compact(sorted)) != len(got) {
			t.Errorf("request %d (executed: %v): %s holds a record twice", k, executes, topic)
		}
	}
	mustAppend(t, b, "a", "after")
	return requests
}

func TestCrashAtAnyRequestLosesNothingAcknowledged(t *testing.T) {
	const never = 1 << 30
	total := 0
	synctest.Test(t, func(t *testing.T) { total = crashOnce(t, never, false) })
	if total < 35 {
		t.Fatalf("the load makes only %d requests", total)
	}
	step := 1
	if testing.Short() {
		step = 5
	}
	for k := 0; k < total; k += step {
		for _, executes := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) { crashOnce(t, k, executes) })
		}
	}
	t.Logf("crashed at one in %d of %d requests, before and after its execution", step, total)
}

// One broker is killed and restarted while another one goes on. Both must see one log.
func TestCrashOfOneBrokerLeavesTheOtherRunning(t *testing.T) {
	for k := range 30 {
		synctest.Test(t, func(t *testing.T) {
			memory, faulty := newFaulty()
			c := newCrash(k+15, k%2 == 0)
			faulty.On("", "", c.fault)
			steady := open(t, memory, immediate())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				select {
				case <-c.died:
					cancel()
				case <-ctx.Done():
				}
			}()
			dying, err := seb.Open(ctx, faulty, immediate())
			if err != nil {
				return // the broker died before it had started
			}
			acked := map[seb.Offset]string{}
			for i := range 20 {
				v := fmt.Sprintf("dying %d", i)
				if a, err := dying.Append(ctx, "t", values(v)); err == nil {
					acked[a.Ranges[0].Offset] = v
				}
				v = fmt.Sprintf("steady %d", i)
				acked[mustAppend(t, steady, "t", v)] = v
			}
			kill(t, dying)
			got := readAll(t, steady, "t", 0)
			for at, v := range acked {
				if got[at] != v {
					t.Errorf("offset %d holds %q, acknowledged was %q", at, got[at], v)
				}
			}
			if extra := len(got) - len(acked); extra < 0 || extra > 1 {
				t.Errorf("%d records beyond the acknowledged ones", extra)
			}
		})
	}
}
