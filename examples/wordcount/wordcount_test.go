package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// If WORDCOUNT_IS_THE_COMMAND is set, the test's binary runs the command instead of the tests.
func TestMain(m *testing.M) {
	if os.Getenv("WORDCOUNT_IS_THE_COMMAND") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// cycles returns how often the counter is killed.
func cycles(t *testing.T) int {
	t.Helper()
	s := os.Getenv("SEB_KILL_CYCLES")
	if s == "" {
		return 8
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("SEB_KILL_CYCLES=%q is no number of cycles", s)
	}
	return n
}

// start starts wordcount in count processes. kill kills all of them.
func start(t *testing.T, dir string, count int) (kill func()) {
	t.Helper()
	var out bytes.Buffer
	var running []*exec.Cmd
	for range count {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0], dir)
		cmd.Env = append(os.Environ(), "WORDCOUNT_IS_THE_COMMAND=1")
		if count == 1 {
			cmd.Stdout, cmd.Stderr = &out, &out
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	kill = sync.OnceFunc(func() {
		for _, cmd := range running {
			if err := cmd.Process.Kill(); err != nil {
				t.Errorf("it ended by itself: %v", err)
			}
			_ = cmd.Wait() // it was killed
		}
		if t.Failed() {
			t.Logf("it wrote:\n%s", out.String())
		}
	})
	t.Cleanup(kill)
	return kill
}

// feed appends lines of random words until stop is closed, and returns the true counts.
func feed(t *testing.T, b *seb.Broker, stop <-chan struct{}) map[string]int64 {
	truth := map[string]int64{}
	vocabulary := []string{"a", "rose", "is", "Größe", "42", "and", "so", "on"}
	for n := 0; ; n++ {
		select {
		case <-stop:
			return truth
		case <-time.After(rand.N(4 * time.Millisecond)):
		}
		var records []seb.Record
		for range 1 + rand.IntN(20) {
			var line []byte
			for range rand.IntN(6) {
				word := vocabulary[rand.IntN(len(vocabulary))]
				line = append(append(line, word...), ", "...)
				truth[string(bytes.ToLower([]byte(word)))]++
			}
			records = append(records, seb.Record{Value: line})
		}
		if _, err := b.Append(t.Context(), "lines", records, seb.ToPartition(int32(n%2))); err != nil {
			t.Errorf("append: %v", err)
			return truth
		}
	}
}

// While lines are appended, a counter is killed again and again, at any moment, sometimes
// together with a second counter. In the end every word of every line was counted once.
func TestKilledCounterCountsEveryWordOnce(t *testing.T) {
	dir := t.TempDir()
	store, err := objstore.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := seb.Open(t.Context(), store, seb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, _, err := b.CreateTopic(t.Context(), "lines", seb.TopicOptions{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	stop, fed := make(chan struct{}), make(chan map[string]int64)
	go func() { fed <- feed(t, b, stop) }()
	for cycle := range cycles(t) {
		before := lag(t, b)
		kill := start(t, dir, 1+cycle%2)
		await(t, func() bool { return lag(t, b).done > before.done })
		<-time.After(rand.N(100 * time.Millisecond))
		kill()
	}
	close(stop)
	truth := <-fed
	kill := start(t, dir, 1)
	await(t, func() bool { return lag(t, b).left == 0 })
	kill()
	wantCounts(t, b, truth)
}

// progress is how many lines were counted, and how many are left.
type progress struct{ done, left int64 }

func lag(t *testing.T, b *seb.Broker) (p progress) {
	t.Helper()
	c, err := b.Consumer("lines", "wordcount").Describe(t.Context())
	if seb.CodeOf(err) == seb.CodeConsumerNotFound {
		return progress{0, 1}
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range c.Positions {
		p.done += int64(at.Next)
		p.left += at.Lag()
	}
	return p
}

func await(t *testing.T, done func() bool) {
	t.Helper()
	for began := time.Now(); !done(); <-time.After(20 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("nothing happens")
		}
	}
}

// wantCounts reads the topic of counts. It checks that the counts of each word rise, and that
// the last count of each word is the one in truth.
func wantCounts(t *testing.T, b *seb.Broker, truth map[string]int64) {
	t.Helper()
	counts := map[string]int64{}
	for r, err := range b.Read(t.Context(), "counts", 0, seb.Earliest) {
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseInt(string(r.Value), 10, 64)
		if err != nil || n <= counts[string(r.Key)] {
			t.Errorf("the count of %s is %s after %d, at %d", r.Key, r.Value, counts[string(r.Key)], r.Offset)
		}
		counts[string(r.Key)] = n
	}
	if !maps.Equal(counts, truth) {
		t.Errorf("counted %v, want %v", counts, truth)
	}
	if len(truth) == 0 {
		t.Error("there was nothing to count")
	}
}

func TestWords(t *testing.T) {
	for line, want := range map[string]string{
		"":                      "[]",
		" A rose, a ROSE! ":     "[a rose a rose]",
		"Größe 42;über-all\n":   "[größe 42 über all]",
		"\xff\xfea\x00b ... x.": "[a b x]",
	} {
		if got := fmt.Sprint(words([]byte(line))); got != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"a", "b"}, {"-unknown", "a"}} {
		if err := run(t.Context(), args, t.Output()); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

// A mistyped directory is an error, and no log is created there.
func TestDirectoryWithoutALogIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "seb-daat")
	err := run(t.Context(), []string{dir}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "there is no log in "+dir) {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is there now: %v", err)
	}
}

// A broker that found that the log is damaged never goes on, so the counter that uses this broker
// ends too.
func TestDamagedLogEndsTheCounter(t *testing.T) {
	dir := t.TempDir()
	store, err := objstore.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := seb.Open(t.Context(), store, seb.Options{Batching: seb.Immediate()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }() // may fail, since b has stopped
	if _, _, err := b.CreateTopic(t.Context(), "counts", seb.TopicOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Consumer("counts", "test").Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	counted, err := b.Consumer("counts", "test").Follower(t.Context(), seb.AllPartitions)
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{broker: b, from: "lines", to: "counts", log: slog.New(slog.DiscardHandler)}
	ended := make(chan error, 1)
	go func() { ended <- c.run(t.Context()) }()
	if _, err := b.Append(t.Context(), "lines", []seb.Record{{Value: []byte("a rose")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := counted.Next(t.Context(), seb.FetchOptions{Wait: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	slots, err := filepath.Glob(filepath.Join(dir, "log", "*"))
	if err != nil || len(slots) == 0 {
		t.Fatalf("the log is %v, %v", slots, err)
	}
	next := filepath.Join(dir, "log", fmt.Sprintf("%020d", len(slots)+1))
	if err := os.WriteFile(next, []byte("this is no commit"), 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if seb.CodeOf(err) != seb.CodeBrokerStopped {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it goes on")
	}
}
