package httpapi

import (
	"fmt"
	"io"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/sebprom"
)

const (
	boundsMemory  = 16 << 20 // Options.Memory
	boundsCallers = 24
	// boundsRest is the memory that requests may take outside of the budget: connections, goroutines,
	// pooled chunks of answers, and one answer with all metrics.
	boundsRest = 12 << 20
)

// largeBodies are the bodies for routes that need one, except for routes that would discard what the log has.
var largeBodies = map[string]string{
	"POST /v1/commits": `{"appends":[{"topic":"t000","records":[{"value":"x"}]}],"positions":[` +
		`{"topic":"orders","consumer":"billing","offsets":{"0":0}}]}`,
	"POST /v1/events":                                     `{"event":"paid","entity_id":"42"}`,
	"POST /v1/keys":                                       `{"name":"again","scopes":["read"]}`,
	"PATCH /v1/topics/{topic}":                            `{"config":{"retention":"1h"}}`,
	"POST /v1/topics/{topic}/records":                     "x",
	"POST /v1/topics/{topic}/consumers/{consumer}/commit": `{"offsets":{"0":0}}`,
	"POST /v1/topics/{topic}/queues/{queue}/receive":      `{"max":100}`,
	"POST /v1/topics/{topic}/queues/{queue}/ack":          `{"tokens":["nonsense"]}`,
	"POST /v1/topics/{topic}/queues/{queue}/nack":         `{"tokens":["nonsense"]}`,
	"POST /v1/topics/{topic}/queues/{queue}/extend":       `{"tokens":["nonsense"]}`,
	"PUT /v1/topics/{topic}/queues/{queue}/push":          `{"url":"https://example.com/hooks"}`,
}

// largeLog fills the log: each list is far larger than the memory that all callers together may hold.
func largeLog(t *testing.T, b *seb.Broker) (ops, none string) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const wide = 1000
	create := func(name string) {
		_, _, err := b.CreateTopic(ctx, name, seb.TopicOptions{Partitions: wide})
		must(err)
	}
	for i := range 200 {
		create(fmt.Sprintf("t%03d", i))
	}
	create("orders")
	for i := range 200 {
		_, _, err := b.Consumer("orders", fmt.Sprintf("c%03d", i)).Create(ctx)
		must(err)
	}
	_, _, err := b.Consumer("orders", "billing").Create(ctx)
	must(err)
	large := strings.Repeat("x", 10_000)
	var records []seb.Record
	for range 300 {
		records = append(records, seb.Record{Value: []byte(large)})
	}
	for range 4 {
		_, err = b.Append(ctx, "orders", records, seb.ToPartition(0))
		must(err)
	}
	for i := range 300 {
		_, _, err := b.Queue("orders", fmt.Sprintf("q%03d", i)).Set(ctx, seb.QueueUpdate{}, seb.Earliest)
		must(err)
	}
	mail := b.Queue("orders", "mail")
	_, _, err = mail.Set(ctx, seb.QueueUpdate{MaxAttempts: new(1)}, seb.Earliest)
	must(err)
	for range 6 {
		got, err := mail.Receive(ctx, seb.ReceiveOptions{Max: 100, MaxBytes: 4 << 20})
		must(err)
		for _, m := range got {
			must(mail.Nack(ctx, seb.NackOptions{Reason: strings.Repeat("why ", 200)}, m.Token))
		}
	}
	patterns := make([]string, 300)
	for i := range patterns {
		patterns[i] = fmt.Sprintf("%s%d.*", strings.Repeat("p", 100), i)
	}
	_, ops, err = b.CreateKey(ctx, seb.KeyOptions{Name: "ops", Scopes: seb.ScopeAdmin})
	must(err)
	for i := range 200 {
		_, none, err = b.CreateKey(ctx, seb.KeyOptions{Name: fmt.Sprint("k", i), Scopes: seb.ScopeRead, Topics: patterns})
		must(err)
	}
	return ops, none
}

func heapHeld() int64 {
	runtime.GC()
	runtime.GC() // frees what pools no longer hold
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Whatever the log has and callers request, callers that don't read their answers make the broker hold no more
// memory than its budget and a constant.
func TestAnswersAreBoundedWhateverTheLogHolds(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures memory, and other tests call the same routes")
	}
	registry := prometheus.NewRegistry()
	opts := seb.Options{Memory: boundsMemory}
	bubbleOn(t, objstore.NewMemory(), opts, Options{Registerer: registry, Gatherer: registry}, 0, func(t *testing.T, s *server) {
		registry.MustRegister(sebprom.NewCollector(s.broker.Metrics))
		ops, none := largeLog(t, s.broker)
		for _, pattern := range slices.Sorted(maps.Keys(s.handler.declared)) {
			for _, method := range slices.Sorted(maps.Keys(s.handler.declared[pattern])) {
				if method == "DELETE" {
					continue
				}
				for _, key := range []string{ops, none} {
					s.wantBounded(method, pattern, key)
				}
			}
		}
	})
}

// A response about one record or one partition of a topic takes no memory for the topic's other partitions, outside
// of the budget.
func TestAnswersAboutOnePartitionAreBoundedWhateverTheTopicHas(t *testing.T) {
	opts := seb.Options{Memory: boundsMemory, Limits: seb.Limits{Partitions: 100_000}}
	bubbleOn(t, objstore.NewMemory(), opts, Options{}, 0, func(t *testing.T, s *server) {
		if _, _, err := s.broker.CreateTopic(t.Context(), "orders", seb.TopicOptions{Partitions: 100_000}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.broker.Append(t.Context(), "orders", []seb.Record{{Value: make([]byte, 1<<20)}}, seb.ToPartition(0)); err != nil {
			t.Fatal(err)
		}
		_, ops, err := s.broker.CreateKey(t.Context(), seb.KeyOptions{Name: "ops", Scopes: seb.ScopeAdmin})
		if err != nil {
			t.Fatal(err)
		}
		for _, pattern := range []string{"/v1/topics/{topic}/records/{offset}", "/v1/topics/{topic}/records", "/topic", "/record", "/records"} {
			s.wantBounded("GET", pattern, ops)
		}
	})
}

// wantBounded has callers send a request and not read the answer, and checks the memory that this takes.
func (s *server) wantBounded(method, pattern, key string) {
	s.t.Helper()
	path := example(pattern)
	if pattern == "/v1/topics/{topic}/queues/{queue}/dead" {
		path += "?limit=1000"
	}
	if pattern == "/v1/cut" {
		for i := range 200 {
			path += fmt.Sprintf("&topic=t%03d", i)
		}
	}
	body := largeBodies[method+" "+pattern]
	request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, path, key, len(body), body)
	before := heapHeld()
	var conns []net.Conn
	for range boundsCallers {
		conn, err := s.connect()
		if err != nil {
			s.t.Fatal(err)
		}
		conns = append(conns, conn)
		go func() { _, _ = io.WriteString(conn, request) }() // fails when the connection is closed
	}
	synctest.Wait()
	if held := heapHeld() - before; held > boundsMemory+boundsRest {
		s.t.Errorf("%s %s: %d callers hold %d MiB, with a budget of %d", method, path, boundsCallers, held>>20, boundsMemory>>20)
	} else if testing.Verbose() {
		s.t.Logf("%s %s: %.1f MiB", method, path, float64(held)/(1<<20))
	}
	for _, conn := range conns {
		_ = conn.Close() // the request may have been refused already
	}
	synctest.Wait()
}
