package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/simple-event-broker/seb/internal/test/s3test"
)

// Clients write to two brokers of one store and read from both at once: each broker has all lines, in the
// same order, and the lines of each writer in the order in which it wrote them.
func TestTwoBrokersAtOnce(t *testing.T) {
	t.Run("directory", func(t *testing.T) {
		t.Parallel()
		twoBrokers(t, nil, t.TempDir())
	})
	t.Run("versitygw", func(t *testing.T) {
		t.Parallel()
		twoBrokers(t, s3test.Env(), s3test.VersityGW(t))
	})
}

func twoBrokers(t *testing.T, env []string, store string) {
	const writers, lines = 4, 500
	brokers := []*process{
		serve(t, env, "--store", store, "--linger", "5ms"),
		serve(t, env, "--store", store, "--linger", "5ms"),
	}
	runSeb(t, nil, "topic", "create", "events", "--server", brokers[0].url).want(t, exitOK)

	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			var in bytes.Buffer
			for i := range lines {
				fmt.Fprintf(&in, "%d-%d\n", w, i)
			}
			// Small requests, so that there are many races.
			r := runSeb(t, &in, "produce", "events", "--batch-records", "50", "--server", brokers[w%2].url)
			if r.code != exitOK {
				t.Errorf("writer %d: %s", w, r.err)
			}
		})
	}
	seen := make([]string, len(brokers))
	for i, b := range brokers {
		all.Go(func() {
			r := runSeb(t, nil, "consume", "events", "--follow", "--limit", strconv.Itoa(writers*lines), "--server", b.url)
			if r.code != exitOK {
				t.Errorf("reader %d: %s", i, r.err)
			}
			seen[i] = r.out
		})
	}
	all.Wait()
	if seen[0] != seen[1] {
		t.Error("the brokers show different logs")
	}
	next := make([]int, writers)
	got := strings.Fields(seen[0])
	for _, line := range got {
		w, i, _ := strings.Cut(line, "-")
		writer, err := strconv.Atoi(w)
		if err != nil || i != strconv.Itoa(next[writer]) {
			t.Fatalf("line %s comes where writer %s had got to %d", line, w, next[writer])
		}
		next[writer]++
	}
	if !slices.Equal(next, slices.Repeat([]int{lines}, writers)) {
		t.Errorf("the log has %v lines of the writers", next)
	}
	for _, b := range brokers {
		b.stopped(t)
	}
}
