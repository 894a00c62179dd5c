package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

func TestConsumeReadsAllPartitions(t *testing.T) {
	b := serve(t, nil, "--store", "memory:", "--linger", "1ms")
	runSeb(t, nil, "topic", "create", "orders", "--partitions", "3", "--server", b.url).want(t, exitOK)
	for partition, lines := range map[string]string{"0": "a\nb\n", "2": "c\nd\ne\n"} {
		runSeb(t, strings.NewReader(lines), "produce", "orders", "--partition", partition, "--server", b.url).want(t, exitOK)
	}
	for args, want := range map[string]string{
		"":                            "a\nb\nc\nd\ne\n",
		"--partition all":             "a\nb\nc\nd\ne\n",
		"--from -1":                   "b\ne\n",
		"--limit 3":                   "a\nb\nc\n",
		"--from latest":               "",
		"--partition 1":               "",
		"--partition 2 --from 1":      "d\ne\n",
		"--partition 2 --limit 1 -f":  "c\n",
		"--partition 0 --from latest": "",
	} {
		r := runSeb(t, nil, append([]string{"consume", "orders", "--server", b.url}, strings.Fields(args)...)...)
		r.want(t, exitOK)
		if r.out != want {
			t.Errorf("consume %s: %q, not %q", args, r.out, want)
		}
	}
	runSeb(t, nil, "consume", "orders", "--from", "1", "--server", b.url).want(t, exitUsage, "choose one with --partition")

	// Follows all partitions at once: none waits for another.
	r := runSeb(t, nil, "consume", "orders", "--follow", "--limit", "5", "--server", b.url)
	r.want(t, exitOK)
	lines := strings.Fields(r.out)
	slices.Sort(lines)
	if !slices.Equal(lines, []string{"a", "b", "c", "d", "e"}) || strings.Index(r.out, "c") > strings.Index(r.out, "d") {
		t.Errorf("follow: %q", r.out)
	}
}

// The hint how to continue names every partition, also one that was not read yet.
func TestConsumeShowsTheNextOffsetOfEveryPartition(t *testing.T) {
	r := &topicReader{cmd: &consumeCmd{From: "-5"}}
	r.readers = []*partitionReader{{topicReader: r, next: 3}, {topicReader: r, partition: 1, next: -1}}
	if got := r.positions(); got != "--partition 0 --from 3, --partition 1 --from -5" {
		t.Error(got)
	}
	r.readers = r.readers[1:]
	if got := r.positions(); got != "--from -5" {
		t.Error(got)
	}
}

func TestFollowReadsPartitionsThatAreAdded(t *testing.T) {
	b := serve(t, nil, "--store", "memory:", "--linger", "1ms")
	runSeb(t, nil, "topic", "create", "orders", "--server", b.url).want(t, exitOK)
	broker, err := (serverFlag{Server: b.url}).client()
	if err != nil {
		t.Fatal(err)
	}
	reader, writer := io.Pipe()
	cmd := &consumeCmd{Topic: "orders", Partition: "all", From: "latest", Follow: true, Limit: 2}
	cmd.Format = formatLine
	c := &topicReader{
		cmd: cmd, broker: broker, form: cmd.output(), from: seb.Earliest, warn: io.Discard,
		lookEvery: 5 * time.Millisecond, out: bufio.NewWriter(writer), progress: newProgress(io.Discard, 0),
	}
	done := make(chan error, 1)
	go func() { done <- c.readAll(context.WithoutCancel(t.Context())) }()
	lines := bufio.NewScanner(reader)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("%q, not %q", lines.Text(), want)
		}
	}
	runSeb(t, strings.NewReader("old"), "produce", "orders", "--partition", "0", "--server", b.url).want(t, exitOK)
	next("old")
	if _, err := broker.UpdateTopic(t.Context(), "orders", seb.TopicUpdate{Partitions: new(int32(2))}); err != nil {
		t.Fatal(err)
	}
	runSeb(t, strings.NewReader("new"), "produce", "orders", "--partition", "1", "--server", b.url).want(t, exitOK)
	next("new")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The total of the progress is the number of records that will be written.
func TestConsumeKnowsHowMuchThereIs(t *testing.T) {
	server := httptest.NewServer(asBroker(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Seb-Topic-Id", "00000000.1")
		_, _ = fmt.Fprint(w, `{"name":"orders","partitions":[{"partition":0,"start_offset":5,"end_offset":10},{"partition":1,"end_offset":3}]}`)
	}))
	defer server.Close()
	broker, err := (serverFlag{Server: server.URL}).client()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		cmd  consumeCmd
		want int64
	}{
		{consumeCmd{Topic: "orders", Partition: "all", From: "earliest"}, 8},
		{consumeCmd{Topic: "orders", Partition: "1", From: "earliest"}, 3},
		{consumeCmd{Topic: "orders", Partition: "all", From: "earliest", Limit: 6}, 6},
		{consumeCmd{Topic: "orders", Partition: "all", From: "1h"}, 0}, // unknown
	} {
		c := &topicReader{cmd: &test.cmd, broker: broker, progress: newProgress(io.Discard, 0)}
		if err := c.find(t.Context()); err != nil || c.progress.total != test.want {
			t.Errorf("%+v: %d records, %v, not %d", test.cmd, c.progress.total, err, test.want)
		}
	}
}
