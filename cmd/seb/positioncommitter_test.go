package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/httpapi"
	"github.com/simple-event-broker/seb/objstore"
)

// ordersBroker is a broker in this process whose topic orders has two partitions, with the values 0/0 to
// 0/4 and 1/0 to 1/4. before, if set, may answer a request instead of the broker and return true; after is
// called after the broker's answer.
type ordersBroker struct {
	*seb.Broker
	url           string
	before, after func(w http.ResponseWriter, r *http.Request) bool
}

func newOrdersBroker(t *testing.T) *ordersBroker {
	t.Helper()
	broker, err := seb.Open(t.Context(), objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	if err != nil {
		t.Fatal(err)
	}
	b := &ordersBroker{Broker: broker}
	api := httpapi.New(broker, httpapi.Options{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.before != nil && b.before(w, r) {
			return
		}
		rec := httptest.NewRecorder()
		if b.after == nil {
			api.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(rec, r)
		if b.after(w, r) {
			return
		}
		for name, values := range rec.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	}))
	t.Cleanup(func() {
		server.Close()
		if err := broker.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	b.url = server.URL
	if _, _, err := broker.CreateTopic(t.Context(), "orders", seb.TopicOptions{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	for p := range int32(2) {
		var records []seb.Record
		for i := range 5 {
			records = append(records, seb.Record{Value: fmt.Appendf(nil, "%d/%d", p, i)})
		}
		if _, err := broker.Append(t.Context(), "orders", records, seb.ToPartition(p)); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// wantAt checks the position of consumer c.
func (b *ordersBroker) wantAt(t *testing.T, want ...seb.Offset) {
	t.Helper()
	info, err := b.Consumer("orders", "c").Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []seb.Offset
	for _, p := range info.Positions {
		got = append(got, p.Next)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the consumer is at %v, want %v", got, want)
	}
}

func isCommit(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/commit") }

// brokenOutput takes room bytes, and then fails.
type brokenOutput struct {
	bytes.Buffer
	room int
}

func (o *brokenOutput) Write(p []byte) (int, error) {
	n, err := o.Buffer.Write(p[:min(len(p), o.room)])
	o.room -= n
	if n < len(p) && err == nil {
		err = errors.New("the disk is full")
	}
	return n, err
}

// Records that the output did not take come again, and no record is skipped.
func TestConsumerCommitsWhatWasWritten(t *testing.T) {
	b := newOrdersBroker(t)
	var err bytes.Buffer
	out := &brokenOutput{room: 30} // all of the first partition, and a part of the second
	code := run(t.Context(), []string{"consume", "orders", "--consumer", "c", "--server", b.url}, streams{nil, out, &err})
	result{code, out.String(), err.String()}.want(t, exitFailure, "5 records were written", "the same command continues after the committed records")
	b.wantAt(t, 5, 0)
	r := runSeb(t, nil, "consume", "orders", "--consumer", "c", "--server", b.url)
	r.want(t, exitOK)
	if r.out != "1/0\n1/1\n1/2\n1/3\n1/4\n" {
		t.Errorf("it goes on with %q", r.out)
	}
	b.wantAt(t, 5, 5)
}

func TestConsumerCommitsNoMoreThanTheLimit(t *testing.T) {
	b := newOrdersBroker(t)
	for i, follow := range []string{"--limit=3", "--follow"} {
		runSeb(t, nil, "consume", "orders", "--consumer", "c", "--partition", "0", "--limit", "3", follow, "--server", b.url).want(t, exitOK)
		if i == 0 {
			b.wantAt(t, 3, 0)
			if _, err := b.Append(t.Context(), "orders", []seb.Record{{Value: []byte("0/5")}, {Value: []byte("0/6")}}, seb.ToPartition(0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.wantAt(t, 6, 0)
}

// After an interrupt the consumer's position covers all records that were written, and no others.
func TestInterruptedConsumerHasCommittedWhatItWrote(t *testing.T) {
	b := newOrdersBroker(t)
	ctx, interrupt := context.WithCancel(t.Context())
	b.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if isCommit(r) {
			interrupt() // just before the broker gets the commit
		}
		return false
	}
	r := runSebContext(ctx, t, nil, "consume", "orders", "--consumer", "c", "--partition", "1", "--follow", "--server", b.url)
	if r.code != exitSignal+2 || r.out != "1/0\n1/1\n1/2\n1/3\n1/4\n" || r.err != "" {
		t.Fatalf("it ended with %+v", r)
	}
	b.wantAt(t, 0, 5)

	ctx, interrupt = context.WithCancel(t.Context())
	b.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/records") {
			interrupt()
			<-r.Context().Done() // no records come
		}
		return false
	}
	r = runSebContext(ctx, t, nil, "consume", "orders", "--consumer", "c", "--server", b.url)
	if r.code != exitSignal+2 || r.out != "" {
		t.Fatalf("it ended with %+v", r)
	}
	b.wantAt(t, 0, 5)
}

// A commit whose answer was lost is sent again, and recognized as the same.
func TestConsumerOutlivesLostAnswers(t *testing.T) {
	b := newOrdersBroker(t)
	var mu sync.Mutex
	commits := 0
	nth := func(r *http.Request) int {
		mu.Lock()
		defer mu.Unlock()
		if isCommit(r) {
			commits++
			return commits
		}
		return 0
	}
	lost := 0
	b.after = func(w http.ResponseWriter, r *http.Request) bool {
		switch nth(r) {
		case 1, 4:
			lost++
			panic(http.ErrAbortHandler)
		case 3:
			lost++
			problem(http.StatusServiceUnavailable, "store_unavailable", string(seb.Unknown))(w, r)
			return true
		}
		return false
	}
	r := runSeb(t, nil, "consume", "orders", "--consumer", "c", "--server", b.url)
	r.want(t, exitOK, "trying again")
	if r.out != "0/0\n0/1\n0/2\n0/3\n0/4\n1/0\n1/1\n1/2\n1/3\n1/4\n" || lost < 2 {
		t.Errorf("%d answers were lost, and it wrote %q", lost, r.out)
	}
	b.wantAt(t, 5, 5)
}

// consume undoes neither a reset nor the commit of another reader.
func TestConsumerEndsWhenSomebodyElseMovesIt(t *testing.T) {
	b := newOrdersBroker(t)
	once := sync.OnceFunc(func() {
		if _, _, err := b.Consumer("orders", "c").Reset(t.Context(), seb.Last(2)); err != nil {
			t.Error(err)
		}
	})
	b.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if isCommit(r) {
			once()
		}
		return false
	}
	r := runSeb(t, nil, "consume", "orders", "--consumer", "c", "--server", b.url)
	r.want(t, exitRefused, "commit: position_conflict", "5 records were written; the consumer was reset, or another reader uses its name")
	b.wantAt(t, 3, 3)

	gone := sync.OnceFunc(func() {
		if err := b.Consumer("orders", "c").Delete(t.Context()); err != nil {
			t.Error(err)
		}
	})
	b.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if isCommit(r) {
			gone()
		}
		return false
	}
	runSeb(t, nil, "consume", "orders", "--consumer", "c", "--server", b.url).want(t, exitRefused, "consumer_not_found")
}

// All partitions are followed at the same time, also one that is added, and their positions are committed
// together.
func TestConsumerFollowsAllPartitions(t *testing.T) {
	b := newOrdersBroker(t)
	broker, err := (serverFlag{Server: b.url}).client()
	if err != nil {
		t.Fatal(err)
	}
	reader, writer := io.Pipe()
	cmd := &consumeCmd{Topic: "orders", Partition: "all", From: "earliest", Consumer: "c", Follow: true, Limit: 11}
	cmd.Format = formatLine
	done := make(chan error, 1)
	go func() {
		c := &topicReader{
			cmd: cmd, broker: broker, form: cmd.output(), warn: io.Discard, committer: newPositionCommitter(broker.Consumer("orders", "c")),
			lookEvery: 5 * time.Millisecond, out: bufio.NewWriter(writer), progress: newProgress(io.Discard, 0),
		}
		done <- c.readAll(context.WithoutCancel(t.Context()))
		_ = writer.Close()
	}()
	if _, err := b.UpdateTopic(t.Context(), "orders", seb.TopicUpdate{Partitions: new(int32(3))}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Append(t.Context(), "orders", []seb.Record{{Value: []byte("2/0")}}, seb.ToPartition(2)); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(reader)
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(all))
	slices.Sort(lines)
	if got := strings.Join(lines, " "); got != "0/0 0/1 0/2 0/3 0/4 1/0 1/1 1/2 1/3 1/4 2/0" {
		t.Errorf("it wrote %s", got)
	}
	b.wantAt(t, 5, 5, 1)
}

// Whenever a consumer is killed, all records below its committed position were written, and the next run
// writes the others.
func TestKilledConsumerPassesOverNothing(t *testing.T) {
	const rounds, batches, perBatch = 6, 5, 20
	b := serve(t, nil, "--store", "memory:", "--linger", "1ms")
	broker, err := (serverFlag{Server: b.url}).client()
	if err != nil {
		t.Fatal(err)
	}
	name := func(i int) string { return fmt.Sprintf("record-%04d", i) }
	runSeb(t, nil, "topic", "create", "orders", "--server", b.url).want(t, exitOK)
	written := map[string]int{}
	produced := 0
	for range rounds {
		out := newOutput()
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "seb", "consume", "orders", "--consumer", "c", "--follow", "--server", b.url)
		cmd.Stdout = out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		from := produced
		produced += batches * perBatch
		victim := from + rand.IntN(batches*perBatch)
		var producer sync.WaitGroup
		producer.Go(func() {
			for i := from; i < produced; i += perBatch {
				var lines strings.Builder
				for k := range perBatch {
					lines.WriteString(name(i+k) + "\n")
				}
				if r := runSeb(t, strings.NewReader(lines.String()), "produce", "orders", "--server", b.url); r.code != exitOK {
					t.Errorf("produce: %s", r.err)
				}
			}
		})
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // it was killed
			close(ended)
		}()
		if _, ok := out.lineAfter(name(victim), ended); !ok {
			t.Fatalf("%s never came; it wrote %s", name(victim), out)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-ended
		producer.Wait()
		for line := range strings.Lines(out.String()) {
			if line, whole := strings.CutSuffix(line, "\n"); whole {
				written[line]++
			}
		}
		c, err := broker.Consumer("orders", "c").Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		committed := int(nextOf(c)[0])
		for i := range committed {
			if written[name(i)] == 0 {
				t.Fatalf("it is committed up to %d, and %s was not written", committed, name(i))
			}
		}
	}
	r := runSeb(t, nil, "consume", "orders", "--consumer", "c", "--server", b.url)
	r.want(t, exitOK)
	for _, line := range strings.Fields(r.out) {
		written[line]++
	}
	again := 0
	for i := range produced {
		if written[name(i)] == 0 {
			t.Errorf("%s was never written", name(i))
		}
		again += max(0, written[name(i)]-1)
	}
	t.Logf("%d records, %d of them again", produced, again)
}
