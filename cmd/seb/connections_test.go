package main

import (
	"bufio"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb/internal/test/s3test"
)

// Connections to the store and to the brokers are cut at any byte of requests and answers, or in one
// direction only, or pause for a while. Each broker finds out which of its creates were carried out, so no
// record is in the log twice, and a request that was cut off leaves nothing behind.
func TestConnectionsCut(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	store, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	endpoint, err := url.Parse(store.Query().Get("endpoint"))
	if err != nil {
		t.Fatal(err)
	}
	toStore := startProxy(t, endpoint.Host)
	query := store.Query()
	query.Set("endpoint", "http://"+toStore.address)
	store.RawQuery = query.Encode()

	args := []string{"--store", store.String(), "--linger", "5ms", "--checkpoint-commits", "20"}
	brokers := make([]*process, 2)
	toBroker := make([]*proxy, 2)
	targets := make([]*target, 2)
	for i := range brokers {
		toStore.gentle.Store(true) // a start must succeed; see TestKillNine for those that don't
		brokers[i] = serve(t, s3test.Env(), args...)
		toBroker[i] = startProxy(t, strings.TrimPrefix(brokers[i].url, "http://"))
		toBroker[i].gentle.Store(true)
		targets[i] = newTarget(t, "http://"+toBroker[i].address)
	}
	load := &load{each: 3, mix: mixedRecords, loose: true}
	load.start(t, targets...)
	for _, p := range append(toBroker, toStore) {
		p.gentle.Store(false)
	}
	for range crashCycles(t, 4) {
		for _, p := range append(toBroker, toStore) {
			want := p.harmed() + 1
			until(t, "a connection is cut", func() bool { return p.harmed() >= want }, brokers...)
		}
	}
	lost := func() (n int) {
		for _, b := range brokers {
			n += counter(t, b, "seb_unknown_creates_total")
		}
		return n
	}
	until(t, "the answer to a create is lost", func() bool { return lost() > 0 }, brokers...)
	for _, p := range append(toBroker, toStore) {
		p.gentle.Store(true)
	}
	for i, target := range targets {
		target.move(t, brokers[i].url) // verify through connections that are not harmed
	}
	for _, target := range targets { // only now: a large upload could hold it up for long
		load.more(t, target, 10, brokers...)
	}
	load.verify(t)
	for i, p := range append(toBroker, toStore) {
		t.Logf("proxy %d: requests %s, answers %s", i, p.told(0), p.told(1))
	}
	t.Logf("%d creates without a usable answer", lost())
	for _, b := range brokers {
		b.stopped(t)
	}
}

// A client can't fill the memory with the lines of a header.
func TestHeaderWithManyLinesIsRefused(t *testing.T) {
	t.Parallel()
	broker := serve(t, nil, "--store", "memory:")
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(broker.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n"+strings.Repeat("a:\r\n", 500)); err != nil {
		t.Fatal(err)
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if want := "HTTP/1.1 431 "; err != nil || !strings.HasPrefix(answer, want) {
		t.Errorf("the answer is %q, %v; want %s", answer, err, want)
	}
	broker.stopped(t)
}
