package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/test/s3test"

	"github.com/simple-event-broker/seb/client"
)

const (
	loadTopic      = "events"
	loadPartitions = 2
	pollPause      = 2 * time.Millisecond
	connectionsMax = 16 // idle connections that are kept
)

// onStores runs a test on a directory and on a real S3 server at the same time; with -short, on the
// directory alone.
func onStores(t *testing.T, test func(t *testing.T, env []string, store string)) {
	t.Run("directory", func(t *testing.T) {
		t.Parallel()
		test(t, nil, t.TempDir())
	})
	if testing.Short() {
		return
	}
	t.Run("versitygw", func(t *testing.T) {
		t.Parallel()
		test(t, s3test.Env(), s3test.VersityGW(t))
	})
}

// target is a broker as its clients see it: an address, which may change, and the number of appends that it
// acknowledged and refused, and of reads that it answered.
type target struct {
	acks, refusals, reads atomic.Int64

	mu     sync.Mutex
	url    string
	client *client.Client
	moved  chan struct{} // closed when client changes
}

func newTarget(t *testing.T, url string) *target {
	g := &target{moved: make(chan struct{})}
	g.move(t, url)
	return g
}

func (g *target) get() (*client.Client, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.client, g.moved
}

// move does not close the earlier client: appenders and readers may still use it.
func (g *target) move(t *testing.T, url string) {
	t.Helper()
	c, err := serverFlag{Server: url}.client()
	if err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.url, g.client = url, c
	close(g.moved)
	g.moved = make(chan struct{})
}

// load runs appenders and readers on one topic, and keeps what they learn: the offset of each acknowledged
// record, the refused records, those with an unknown outcome, and all that was read.
type load struct {
	each int // number of appenders of each target
	mix  mix // sizes of the records that they send
	// loose is for connections that may be cut: a broker may get only a part of a request, and may carry it
	// out after the appender's next request.
	loose bool

	targets   []*target
	history   history
	appenders []*appender
	readers   []*reader

	cancel  context.CancelFunc // ends the sending of requests
	running sync.WaitGroup
}

// start creates the topic and lets appenders, and a reader of each partition,
// work on each of the targets.
func (l *load) start(t *testing.T, targets ...*target) {
	t.Helper()
	runSeb(t, nil, "topic", "create", loadTopic, "--partitions", strconv.Itoa(loadPartitions), "--server", targets[0].url).want(t, exitOK)
	// The test's context ends before its cleanups, and ends requests that still wait for a suspended
	// broker.
	requests := t.Context()
	ctx, cancel := context.WithCancel(requests)
	l.targets, l.cancel = targets, cancel
	t.Cleanup(l.end)
	for _, target := range targets {
		for range l.each {
			a := &appender{id: len(l.appenders), target: target, mix: l.mix, loose: l.loose}
			l.appenders = append(l.appenders, a)
			l.running.Go(func() { a.run(ctx, requests, t) })
		}
		for p := range loadPartitions {
			r := &reader{target: target, history: &l.history, partition: p, loose: l.loose}
			l.readers = append(l.readers, r)
			l.running.Go(func() { r.run(ctx, t) })
		}
	}
}

// end ends the load and waits for its last answers.
func (l *load) end() {
	l.cancel()
	l.running.Wait()
}

// more waits until n more appends were acknowledged at a target. The running processes must not end
// meanwhile.
func (l *load) more(t *testing.T, target *target, n int, running ...*process) {
	t.Helper()
	grown(t, &target.acks, n, "appends are acknowledged", running...)
}

// grown waits until a counter has grown by n.
func grown(t *testing.T, counter *atomic.Int64, n int, what string, running ...*process) {
	t.Helper()
	want := counter.Load() + int64(n)
	until(t, fmt.Sprintf("%d more %s", n, what), func() bool { return counter.Load() >= want }, running...)
}

// until waits for a condition while processes run.
func until(t *testing.T, what string, met func() bool, running ...*process) {
	t.Helper()
	for deadline := time.Now().Add(startTimeout); !met(); {
		for _, p := range running {
			select {
			case <-p.done:
				t.Fatalf("serve ended by itself (%v):\n%s", p.cmd.ProcessState, p.stderr)
			default:
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("time-out while waiting until %s", what)
		}
		<-time.After(pollPause)
	}
}

// verify ends the load, reads the whole log through each target, and compares it with what appenders and
// readers know.
func (l *load) verify(t *testing.T) {
	t.Helper()
	l.end()
	var sum tally
	for partition := range loadPartitions {
		end := l.history.end(partition)
		for _, a := range l.appenders {
			if a.partition() == partition {
				end = max(end, a.end())
			}
		}
		for _, target := range l.targets {
			broker, _ := target.get()
			readAll(t, broker, &l.history, partition, end)
		}
		log := newIndex(t, partition, l.history.log[partition])
		for _, a := range l.appenders {
			if a.partition() == partition {
				log.check(t, a, &sum)
			}
		}
		log.noPhantoms(t)
	}
	for _, r := range l.readers {
		sum.read += r.read
		sum.again += r.again
	}
	if sum.acknowledged == 0 || sum.read == 0 || sum.again == 0 {
		t.Error("nothing was acknowledged, read, or read again")
	}
	t.Logf("records: %d acknowledged, %d refused, %d unknown (%d of them committed); %d read while it ran, %d read again",
		sum.acknowledged, sum.refused, sum.unknown, sum.landed, sum.read, sum.again)
}

// tally counts records.
type tally struct{ acknowledged, refused, unknown, landed, read, again int }
