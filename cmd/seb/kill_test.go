package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/s3test"
)

const (
	killCyclesDefault = 10
	killAppenders     = 6
	killPartitions    = 2
	killAcksMax       = 40                    // acknowledged appends before a kill, at most
	killDelayMax      = 20 * time.Millisecond // after the last of these
)

func killCycles(t *testing.T) int {
	s := os.Getenv("SEB_KILL_CYCLES")
	if s == "" {
		return killCyclesDefault
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("SEB_KILL_CYCLES=%q is no number of cycles", s)
	}
	return n
}

// A broker that is killed at any moment under load, and started again, has
// every record it acknowledged at the offset it told, and none twice.
func TestKillNine(t *testing.T) {
	t.Run("directory", func(t *testing.T) {
		t.Parallel()
		killNine(t, nil, "--store", t.TempDir(), "--checkpoint-commits", "20")
	})
	t.Run("versitygw", func(t *testing.T) {
		t.Parallel()
		killNine(t, s3test.Env(), "--store", s3test.VersityGW(t), "--linger", "10ms", "--checkpoint-commits", "20")
	})
}

func killNine(t *testing.T, env []string, args ...string) {
	broker := serve(t, env, args...)
	runSeb(t, nil, "topic", "create", "events", "--partitions", strconv.Itoa(killPartitions), "--server", broker.url).want(t, exitOK)

	ctx, cancel := context.WithCancel(t.Context())
	target := newTarget(broker.url)
	acked := make(chan struct{}, 1<<20)
	appenders := make([]*appender, killAppenders)
	var running sync.WaitGroup
	for i := range appenders {
		appenders[i] = &appender{id: i, target: target, acked: acked}
		running.Go(func() { appenders[i].run(ctx) })
	}
	for range killCycles(t) {
		for range 1 + rand.IntN(killAcksMax) {
			select {
			case <-acked:
			case <-broker.done:
				t.Fatalf("serve ended by itself:\n%s", broker.stderr)
			case <-time.After(startTimeout):
				t.Fatalf("nothing is acknowledged any more:\n%s", broker.stderr)
			}
		}
		<-time.After(rand.N(killDelayMax))
		broker.kill()
		broker = serve(t, env, args...)
		target.move(broker.url)
	}
	cancel()
	target.move("") // whoever waits for a broker may go
	running.Wait()
	verifyLog(t, broker.url, appenders)
	broker.stopped(t)
}

// target is where the broker is at the moment.
type target struct {
	mu    sync.Mutex
	url   string
	moved chan struct{} // closed when url changes
}

func newTarget(url string) *target { return &target{url: url, moved: make(chan struct{})} }

func (g *target) get() (string, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.url, g.moved
}

func (g *target) move(url string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.url = url
	close(g.moved)
	g.moved = make(chan struct{})
}

// ack is an append that was acknowledged at an offset.
type ack struct {
	offset int
	values []string
}

// appender appends to one partition as fast as it is answered.
type appender struct {
	id     int
	target *target
	acked  chan<- struct{}

	acks    []ack
	unknown []string // values of appends without an answer
	count   int
}

func (a *appender) partition() int { return a.id % killPartitions }

func (a *appender) run(ctx context.Context) {
	for ctx.Err() == nil {
		url, moved := a.target.get()
		b := &lineBatch{}
		b.reset()
		var values []string
		for range 1 + rand.IntN(5) {
			values = append(values, fmt.Sprintf("%d-%06d-%s", a.id, a.count, strings.Repeat("x", rand.IntN(2000))))
			b.add([]byte(values[len(values)-1]))
			a.count++
		}
		offset, err := a.post(ctx, url, b)
		if err != nil {
			a.unknown = append(a.unknown, values...)
			select {
			case <-moved:
			case <-ctx.Done():
			}
			continue
		}
		a.acks = append(a.acks, ack{offset, values})
		select {
		case a.acked <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

func (a *appender) post(ctx context.Context, url string, b *lineBatch) (offset int, err error) {
	u := fmt.Sprintf("%s/v1/topics/events/records?partition=%d", url, a.partition())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u, b.body())
	if err != nil {
		return 0, err
	}
	req.ContentLength = int64(b.size())
	req.Header.Set("Content-Type", batchType)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	var answer struct {
		Offset *int `json:"offset"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return 0, err
	}
	if res.StatusCode != http.StatusCreated || answer.Offset == nil {
		return 0, fmt.Errorf("answered %s", res.Status)
	}
	return *answer.Offset, nil
}

// verifyLog reads everything and compares it with what the appenders know.
func verifyLog(t *testing.T, url string, appenders []*appender) {
	t.Helper()
	acknowledged, unknown := 0, 0
	for partition := range killPartitions {
		r := runSeb(t, nil, "consume", "events", "--partition", strconv.Itoa(partition), "--server", url)
		r.want(t, exitOK)
		log := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
		at := map[string]int{}
		for offset, value := range log {
			if before, ok := at[value]; ok {
				t.Errorf("partition %d: %.12s is at offsets %d and %d", partition, value, before, offset)
			}
			at[value] = offset
		}
		known := map[string]bool{}
		for _, a := range appenders {
			if a.partition() != partition {
				continue
			}
			for _, v := range a.unknown {
				known[v] = true
			}
			unknown += len(a.unknown)
			for _, ack := range a.acks {
				for i, v := range ack.values {
					known[v] = true
					acknowledged++
					if offset, ok := at[v]; !ok || offset != ack.offset+i {
						t.Errorf("partition %d: %.12s was acknowledged at offset %d; it is at %d (found: %v)",
							partition, v, ack.offset+i, offset, ok)
					}
				}
			}
		}
		inOrder(t, partition, log)
		for _, v := range log {
			if !known[v] {
				t.Errorf("partition %d: nobody appended %.12q", partition, v)
			}
		}
	}
	if acknowledged == 0 {
		t.Error("nothing was acknowledged")
	}
	t.Logf("%d records acknowledged, %d without an answer", acknowledged, unknown)
}

// inOrder expects every appender's records in the order of its calls.
func inOrder(t *testing.T, partition int, log []string) {
	t.Helper()
	last := map[string]string{}
	for offset, value := range log {
		id, rest, _ := strings.Cut(value, "-")
		count, _, _ := strings.Cut(rest, "-")
		if count <= last[id] {
			t.Errorf("partition %d: offset %d has record %s of appender %s after %s", partition, offset, count, id, last[id])
		}
		last[id] = count
	}
}
