package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/simple-event-broker/seb"
)

// snapshotAt makes a snapshot of metrics in the text format and of topics in JSON.
func snapshotAt(t *testing.T, at time.Time, metrics, topics string) *snapshot {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(metrics))
	if err != nil {
		t.Fatal(err)
	}
	var described []struct {
		Name       string
		Partitions []struct {
			Start         seb.Offset `json:"start_offset"`
			End           seb.Offset `json:"end_offset"`
			Bytes         int64
			LastTimestamp time.Time `json:"last_timestamp"`
		}
	}
	if err := json.Unmarshal([]byte(topics), &described); err != nil {
		t.Fatal(err)
	}
	l := &snapshot{at: at, metrics: families}
	for _, d := range described {
		topic := seb.Topic{Name: d.Name}
		for _, p := range d.Partitions {
			topic.Partitions = append(topic.Partitions, seb.Partition{Start: p.Start, End: p.End, Bytes: p.Bytes, LastTimestamp: p.LastTimestamp})
		}
		l.topics = append(l.topics, topic)
	}
	return l
}

var topBegan = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// twoSnapshots are two seconds apart.
func twoSnapshots(t *testing.T) (before, now *snapshot) {
	before = snapshotAt(t, topBegan, `
seb_applied_slot 40
seb_records_committed_total 1000
seb_commits_total 40
seb_http_requests_total{code="201",route="/a"} 10
seb_http_requests_total{code="429",route="/a"} 5
seb_store_requests_total{outcome="ok",verb="create"} 40
seb_store_requests_total{outcome="error",verb="get"} 3
`, `[{"name":"orders","partitions":[{"end_offset":900},{"end_offset":100}]},
	{"name":"again","partitions":[{"end_offset":500}]}, {"name":"gone","partitions":[{"end_offset":1}]}]`)
	now = snapshotAt(t, topBegan.Add(2*time.Second), `
# TYPE seb_store_request_duration_seconds histogram
seb_store_request_duration_seconds_bucket{verb="create",le="+Inf"} 8
seb_store_request_duration_seconds_sum{verb="create"} 0.2
seb_store_request_duration_seconds_count{verb="create"} 8
seb_applied_slot 48
seb_follow_lag_slots 2
seb_records_committed_total 3000
seb_commits_total 48
seb_http_requests_total{code="201",route="/a"} 20
seb_http_requests_total{code="429",route="/a"} 6
seb_http_requests_in_flight 3
seb_http_request_bytes_total{route="/a"} 4096
seb_http_response_bytes_total{route="/a"} 2.097152e+06
seb_memory_used_bytes 1.048576e+06
seb_memory_limit_bytes 1.34217728e+08
seb_state_bytes 2048
seb_state_limit_bytes 2.68435456e+08
seb_data_lost_reads_total 1
seb_store_requests_total{outcome="ok",verb="create"} 48
seb_store_requests_total{outcome="ok",verb="list"} 2
seb_store_requests_total{outcome="error",verb="get"} 7
`, `[{"name":"orders","partitions":[{"start_offset":400,"end_offset":1900,"bytes":4096,"last_timestamp":"2026-01-31T12:00:01.5Z"},
		{"end_offset":1100,"bytes":1024,"last_timestamp":"2026-01-31T12:00:00Z"}]},
	{"name":"again","partitions":[{"end_offset":20,"bytes":10,"last_timestamp":"2026-01-31T12:00:01Z"}]},
	{"name":"new","partitions":[{"end_offset":0,"last_timestamp":null}]}]`)
	return before, now
}

const topShown = `http://b:1  12:00:02Z  slot 48, 2 behind
ready
http    5.5 requests/s, 3 under way, 2 KiB/s in, 1 MiB/s out
log     1000.0 records/s in 4.0 commits/s
store   create 4.0/s, get 2.0/s, list 1.0/s, 25.0 ms each
memory  1 MiB of 128 MiB, state 2 KiB of 256 MiB
1 reads met a missing or damaged object: run seb fsck
2.0 store requests/s fail
0.5 requests/s are refused because the broker or its store is busy or down (429, 503)

TOPIC   PARTITIONS  RECORDS  RECORDS/S  STORED  STORED/S  LAST RECORD
orders  2           2600     1000.0     5 KiB   2.5 KiB   2026-01-31T12:00:01Z
again   1           20       0.0        10 B    0 B       2026-01-31T12:00:01Z
new     1           0        0.0        0 B     0 B       -
`

func text(lines []topLine) string {
	var s strings.Builder
	for _, line := range lines {
		s.WriteString(line.text + "\n")
	}
	return s.String()
}

func TestTopShowsRatesBetweenTwoSnapshots(t *testing.T) {
	before, now := twoSnapshots(t)
	v := viewOf(before, now, "http://b:1", "rate")
	if diff := cmp.Diff(topShown, text(v.lines(0))); diff != "" {
		t.Error(diff)
	}
	full := *now
	full.metrics = maps.Clone(now.metrics)
	full.metrics["seb_state_limit_bytes"] = now.metrics["seb_state_bytes"]
	if got := text(viewOf(before, &full, "http://b:1", "rate").lines(0)); !strings.Contains(got, "\nthe state takes 100% of --state-memory\n") {
		t.Errorf("of a state that is full it shows\n%s", got)
	}
	full.metrics["seb_state_left_seconds"] = snapshotAt(t, topBegan, "seb_state_left_seconds 259200\n", "[]").metrics["seb_state_left_seconds"]
	v = viewOf(before, &full, "http://b:1", "rate")
	if got := text(v.lines(0)); !strings.Contains(got, "; at the present rate, appends are refused in 3 days\n") || v.StateLeft != 259200 {
		t.Errorf("of a state that is full in %v s it shows\n%s", v.StateLeft, got)
	}
	now.notReady = "store_unavailable: the last request to the store failed"
	if got := viewOf(before, now, "http://b:1", "rate").lines(0)[1]; got.text != "NOT ready: "+now.notReady || got.color != red {
		t.Errorf("a broker that is not ready is shown as %q", got)
	}
	// A restarted broker counts from 0.
	now.at, before.at = before.at, now.at
	v = viewOf(now, before, "http://b:1", "rate")
	if v.Records < 0 || v.Requests < 0 || slices.ContainsFunc(v.Topics, func(row topTopic) bool { return row.Rate < 0 }) {
		t.Errorf("rates below 0: %+v", v)
	}
}

// Consumers and queues have their tables, those with the most work first.
func TestTopShowsConsumersAndQueues(t *testing.T) {
	before, now := twoSnapshots(t)
	more := snapshotAt(t, now.at, `
# TYPE seb_consumer_lag_records gauge
seb_consumer_lag_records{consumer="billing",topic="orders"} 3
seb_consumer_lag_records{consumer="search",topic="orders"} 40
seb_consumer_missed_records{consumer="search",topic="orders"} 2
seb_queue_left_records{queue="mail",topic="orders"} 0
seb_queue_left_records{queue="ship",topic="orders"} 12
seb_queue_dead_records{queue="mail",topic="orders"} 1
seb_queue_delayed_records{queue="ship",topic="orders"} 5
seb_queue_oldest_timestamp_seconds{queue="ship",topic="orders"} 1769860712
seb_queue_left_records{queue="hook",topic="orders"} 2
seb_queue_left_records{queue="gone",topic="orders"} 1
seb_queue_push_stopped{queue="hook",topic="orders"} 0
seb_queue_push_stopped{queue="gone",topic="orders"} 1
seb_queue_push_stopped{queue="ship",topic="orders"} 0
seb_push_failing_since_timestamp_seconds{queue="hook",topic="orders"} 1769860712
`, "[]")
	maps.Copy(now.metrics, more.metrics)
	v := viewOf(before, now, "http://b:1", "rate")
	want := topShown + `
CONSUMER  TOPIC   LAG  MISSED
search    orders  40   2
billing   orders  3    0

QUEUE  TOPIC   LEFT  DELAYED  DEAD  OLDEST  PUSH
ship   orders  12    5        0     1m30s   on
hook   orders  2     0        0     -       failing
gone   orders  1     0        0     -       stopped
mail   orders  0     0        1     -       -
`
	if diff := cmp.Diff(want, text(v.lines(0))); diff != "" {
		t.Error(diff)
	}
	got := text(v.lines(20))
	if strings.Count(got, "\n") > 20 || !strings.HasSuffix(got, "and 2 more rows\n\nCONSUMER  TOPIC   LAG  MISSED\nsearch    orders  40   2\nbilling   orders  3    0\n\nQUEUE  TOPIC   LEFT  DELAYED  DEAD  OLDEST  PUSH\nand 4 more rows\n") {
		t.Errorf("in twenty rows:\n%s", got)
	}
	if got := text(v.lines(14)); strings.Count(got, "\n") > 14 || strings.Contains(got, "QUEUE") {
		t.Errorf("in fourteen rows:\n%s", got)
	}
}

func TestTopSorts(t *testing.T) {
	before, now := twoSnapshots(t)
	for order, want := range map[string]string{
		"rate": "orders again new", "records": "orders again new", "stored": "orders again new", "name": "again new orders",
	} {
		var names []string
		for _, row := range viewOf(before, now, "", order).Topics {
			names = append(names, row.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("by %s: %s", order, got)
		}
	}
	now.topics[2].Partitions[0].End = 5000
	if got := viewOf(before, now, "", "records").Topics[0].Name; got != "new" {
		t.Errorf("most records has %s", got)
	}
}

func TestTopFitsTheTerminal(t *testing.T) {
	before, now := twoSnapshots(t)
	lines := viewOf(before, now, "http://b:1", "rate").lines(12)
	if len(lines) != 12 || lines[10].text[:5] != "TOPIC" || lines[11].text != "and 3 more rows" {
		t.Errorf("in twelve rows:\n%s", text(lines))
	}
	lines = viewOf(before, now, "http://b:1", "rate").lines(13)
	if len(lines) != 13 || !strings.HasPrefix(lines[11].text, "orders") || lines[12].text != "and 2 more rows" {
		t.Errorf("in thirteen rows:\n%s", text(lines))
	}
	var out strings.Builder
	p := newPrinter(&out)
	p.draw([]topLine{{"0123456789", ""}}, 4)
	p.draw([]topLine{{"wörter", ""}}, 4)
	if want := "\x1b[2J\x1b[H0123\x1b[K\r\n\x1b[J\x1b[Hwört\x1b[K\r\n\x1b[J"; strings.ReplaceAll(out.String(), ownMark, "") != want {
		t.Errorf("%q, not %q", &out, want)
	}
}

func TestTopShowsTheOtherBrokers(t *testing.T) {
	before, now := twoSnapshots(t)
	seen := time.Date(2026, 1, 31, 12, 0, 1, 0, time.UTC)
	now.peers = []seb.PeerInfo{
		{Session: seb.SessionID{1}, Address: "http://a:1", Committed: seen, Connected: true, HandsOver: true, RoundTrip: 1234567, Version: "v2", Zone: "east"},
		{Session: seb.SessionID{2}, Connected: true, Version: "v1"},
		{Session: seb.SessionID{3}, Address: "http://c:1", Committed: seen, Err: errors.New("no route")},
	}
	v := viewOf(before, now, "http://b:1", "rate")
	want := topShown + `
BROKER      STATE          ROUND TRIP  ZONE  VERSION  LAST COMMIT
http://a:1  connected      1.23ms      east  v2       2026-01-31T12:00:01Z
-           commits only   -           -     v1       -
http://c:1  not connected  -           -     -        2026-01-31T12:00:01Z
`
	if diff := cmp.Diff(want, text(v.lines(0))); diff != "" {
		t.Error(diff)
	}
	if v.Peers[2].Error != "no route" || v.Peers[0].Session != "01"+strings.Repeat("0", 30) {
		t.Errorf("%+v", v.Peers)
	}
}

func TestTopOfABroker(t *testing.T) {
	b := serve(t, nil, "--store", "memory:", "--linger", "1ms")
	runSeb(t, strings.NewReader("a\nb\nc\n"), "produce", "orders", "--server", b.url).want(t, exitOK)
	runSeb(t, nil, "consumer", "reset", "orders", "billing", "--partition", "0", "--from", "1", "--server", b.url).want(t, exitOK)
	runSeb(t, nil, "queue", "create", "orders", "mail", "--server", b.url).want(t, exitOK)
	r := runSeb(t, nil, "top", "--server", b.url, "--interval", "100ms")
	r.want(t, exitOK)
	for _, want := range []string{b.url, "\nready\n", "\nTOPIC ", "\norders  1           3 "} {
		if !strings.Contains(r.out, want) {
			t.Errorf("it does not show %q:\n%s", want, r.out)
		}
	}
	r = runSeb(t, nil, "top", "--server", b.url, "--interval", "100ms", "--once", "--output", "json")
	r.want(t, exitOK)
	var v topView
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || strings.Count(r.out, "\n") != 1 {
		t.Fatalf("%v: %s", err, r.out)
	}
	if len(v.Consumers) != 1 || v.Consumers[0] != (topConsumer{Topic: "orders", Name: "billing", Lag: 2}) ||
		len(v.Queues) != 1 || v.Queues[0].Name != "mail" || v.Queues[0].Left != 3 || v.Queues[0].Oldest == nil {
		t.Errorf("it tells of consumers %+v and queues %+v", v.Consumers, v.Queues)
	}
	if !v.Ready || v.Slot == 0 || v.Requests <= 0 || v.MemoryLimit != 128<<20 || len(v.Topics) != 1 || v.Topics[0].Records != 3 {
		t.Errorf("it tells %+v", v)
	}
}

func TestTopRefusesWhatIsNoBroker(t *testing.T) {
	server := httptest.NewServer(asBroker(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			_, _ = fmt.Fprintln(w, `{"status":"ready"}`)
			return
		}
		_, _ = fmt.Fprintln(w, "up 1")
	}))
	defer server.Close()
	runSeb(t, nil, "top", "--once", "--server", server.URL).want(t, exitFailure, "/metrics is not what a broker sends")
	runSeb(t, nil, "top", "--once", "--server", "http://127.0.0.1:1").want(t, exitUnreachable, "no broker answers")
	runSeb(t, nil, "top", "--interval", "1ms").want(t, exitUsage, "--interval")
	runSeb(t, nil, "top", "--sort", "size").want(t, exitUsage, "--sort")
}

// A broker that does not answer is unreachable: nobody canceled the request.
func TestTopSaysThatTheServerDidNotAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	broker, err := serverFlag{Server: server.URL}.client()
	if err != nil {
		t.Fatal(err)
	}
	_, err = takeSnapshot(t.Context(), broker, 50*time.Millisecond)
	if message, _ := said(err); message != "the server did not answer within 50ms" || exitCode(t.Context(), err) != exitUnreachable {
		t.Errorf("exit code %d: %s", exitCode(t.Context(), err), message)
	}
	if err := broker.Close(); err != nil {
		t.Fatal(err)
	}
}
