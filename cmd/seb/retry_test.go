package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/simple-event-broker/seb"
)

// At the start of a machine, a client may start before its broker: it waits for the broker, and says so once.
func TestCommandsWaitForTheirBroker(t *testing.T) {
	dir, port := t.TempDir(), freePort(t)
	url := "http://127.0.0.1:" + port
	at := []string{"--store", filepath.Join(dir, "log"), "--linger", "1ms", "--http", "127.0.0.1:" + port}
	first := serve(t, nil, at...)
	runSeb(t, nil, "topic", "create", "orders", "--server", url).want(t, exitOK)
	runSeb(t, nil, "queue", "create", "orders", "mail", "--server", url).want(t, exitOK)
	first.stopped(t)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	results := map[string]*result{}
	said := map[string]*output{}
	for _, command := range []string{"produce orders", "consume orders --follow --limit 1", "work orders mail --exec true --limit 1"} {
		r, err := &result{}, newOutput()
		results[command], said[command] = r, err
		all.Go(func() {
			var out strings.Builder
			r.code = run(ctx, append(strings.Fields(command), "--server", url), streams{strings.NewReader("one\n"), &out, err})
			r.out, r.err = out.String(), err.String()
		})
	}
	for command, err := range said {
		until(t, command+" says that it waits", func() bool { return strings.Contains(err.String(), "trying again") })
	}
	second := serve(t, nil, at...)
	all.Wait()
	for command, r := range results {
		if r.code != exitOK || strings.Count(r.err, "no broker answers at "+url) != 1 || !strings.Contains(r.err, "\n     start one with `seb serve`") {
			t.Errorf("seb %s: %d\n%s", command, r.code, r.err)
		}
	}
	if got := results["consume orders --follow --limit 1"].out; got != "one\n" {
		t.Errorf("consume wrote %q", got)
	}
	second.stopped(t)
}

// Where a retry can't help, or the caller wants to know soon, commands end at once.
func TestCommandsDoNotWaitWithoutHope(t *testing.T) {
	t.Setenv("SEB_SERVER", "http://127.0.0.1:1")
	for _, command := range []string{
		"produce orders --retry-for 0s", "consume orders", "consume orders --consumer billing", "work orders mail --drain --exec true", "topic list",
		// A host that does not exist is mistyped. No resolver is asked for this one.
		"produce orders --server http://no..such.host:1", "consume orders --follow --server http://no..such.host:1", "work orders mail --exec true --server http://no..such.host:1",
		"produce orders --server http://127.0.0.1:99999",
	} {
		r := runSeb(t, strings.NewReader("one\n"), strings.Fields(command)...)
		r.want(t, exitUnreachable, "no broker answers")
		if strings.Contains(r.err, "trying again") {
			t.Errorf("seb %s:\n%s", command, r.err)
		}
	}
}

// A worker tells of an outage in plain words, once, and of its end.
func TestWorkerTellsOnceOfAnOutage(t *testing.T) {
	dir, port := t.TempDir(), freePort(t)
	at := []string{"--store", filepath.Join(dir, "log"), "--linger", "1ms", "--http", "127.0.0.1:" + port}
	first := serve(t, nil, at...)
	runSeb(t, nil, "topic", "create", "orders", "--server", first.url).want(t, exitOK)
	runSeb(t, nil, "queue", "create", "orders", "mail", "--server", first.url).want(t, exitOK)
	worker := work(t, dir, first.url, "--exec", "true")
	until(t, "the worker works", func() bool { return strings.Contains(worker.stderr.String(), "working on") }, worker)
	first.stopped(t)
	// The broker refuses the connection, or closes it before it answers the request.
	until(t, "the worker tells of the outage", func() bool { return strings.Contains(worker.stderr.String(), "trying again") }, worker)
	second := serve(t, nil, at...)
	until(t, "the worker tells of the end", func() bool { return strings.Contains(worker.stderr.String(), "serves the queue again") }, worker)
	worker.signalled(t, os.Interrupt)
	if code := worker.left(t); code != exitOK {
		t.Errorf("it ended with %d", code)
	}
	if text := worker.stderr.String(); strings.Count(text, "; trying again\n") != 1 || strings.Count(text, "again\n") != 2 || strings.Contains(text, "level=") {
		t.Errorf("it said\n%s", text)
	}
	second.stopped(t)
}

// An outage may begin with a request that got no answer. The cause is told when it is known.
func TestOutageTellsItsCauseLater(t *testing.T) {
	var told strings.Builder
	o := &outage{w: &told}
	silent := &seb.Error{Code: seb.CodeCanceled, Detail: "the deadline passed"}
	down := &seb.Error{Code: seb.CodeStoreUnavailable, Detail: "no answer"}
	for _, err := range []error{silent, silent, down, silent, down} {
		o.begins(err)
	}
	o.ends()
	o.ends()
	o.begins(down)
	want := "seb: the broker did not answer in time; trying again\nseb: store_unavailable: no answer; trying again\n" +
		"seb: the broker serves the queue again\nseb: store_unavailable: no answer; trying again\n"
	if told.String() != want {
		t.Errorf("it told\n%s", &told)
	}
}
