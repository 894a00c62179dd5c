package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

// fakeLog serves records as a broker does. before, if set, may answer the n-th
// request (from 1) in its place by returning true.
type fakeLog struct {
	before func(n int, w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	requests int
	offsets  []string // where the requests begin
	records  []string
	perFetch int
}

func newFakeLog(t *testing.T, f *fakeLog) string {
	server := httptest.NewServer(asBroker(f.ServeHTTP))
	t.Cleanup(server.Close)
	return server.URL
}

func (f *fakeLog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.URL.Path == "/v1/topics/orders" {
		w.Header().Set("Seb-Topic-Id", "00000000.1")
		_, _ = fmt.Fprintf(w, `{"name":"orders","partitions":[{"partition":0,"end_offset":%d}]}`, len(f.records))
		return
	}
	f.requests++
	q := r.URL.Query()
	f.offsets = append(f.offsets, q.Get("offset"))
	if f.before != nil && f.before(f.requests, w, r) {
		return
	}
	first := f.resolve(q.Get("offset"))
	next := len(f.records)
	if limit, err := strconv.Atoi(q.Get("limit")); err == nil {
		next = min(next, first+limit)
	}
	if f.perFetch > 0 {
		next = min(next, first+f.perFetch)
	}
	writeFetched(w, first, next, len(f.records), f.records[first:next])
}

func (f *fakeLog) resolve(offset string) int {
	n, err := strconv.Atoi(offset)
	switch {
	case offset == "latest":
		return len(f.records)
	case err != nil:
		return 0
	case n < 0:
		return max(0, len(f.records)+n)
	}
	return n
}

func writeFetched(w http.ResponseWriter, first, next, end int, records []string) {
	b := &recordBatch{}
	b.reset()
	for _, r := range records {
		b.add([]byte(r))
	}
	w.Header().Set("Content-Type", string(client.Values))
	if len(records) > 0 {
		w.Header().Set("Seb-Offset", strconv.Itoa(first))
	}
	w.Header().Set("Seb-Start-Offset", "0")
	w.Header().Set("Seb-Next-Offset", strconv.Itoa(next))
	w.Header().Set("Seb-End-Offset", strconv.Itoa(end))
	_, _ = w.Write(b.body())
}

func TestConsumeWritesARecordALine(t *testing.T) {
	for _, test := range []struct {
		args string
		want string
	}{
		{"", "a\n\nc\r\nd\ne\n"},
		{"--from 3", "d\ne\n"},
		{"--from -2", "d\ne\n"},
		{"--from -9", "a\n\nc\r\nd\ne\n"},
		{"--from latest", ""},
		{"--from 5", ""},
		{"--limit 3", "a\n\nc\r\n"},
		{"--from 1 --limit 1", "\n"},
		{"--limit 9", "a\n\nc\r\nd\ne\n"},
		{"--limit 4 --follow", "a\n\nc\r\nd\n"},
	} {
		for perFetch := range 4 {
			url := newFakeLog(t, &fakeLog{records: []string{"a", "", "c\r", "d", "e"}, perFetch: perFetch})
			r := runSeb(t, nil, append([]string{"consume", "orders", "--server", url}, strings.Fields(test.args)...)...)
			r.want(t, exitOK)
			if r.out != test.want {
				t.Errorf("consume %s, %d records a fetch: %q, not %q", test.args, perFetch, r.out, test.want)
			}
		}
	}
}

// consume does not wait for records that come while it reads: in a busy topic it would never end.
func TestConsumeStopsAtTheEndSeenAtStart(t *testing.T) {
	f := &fakeLog{records: []string{"a", "b", "c"}, perFetch: 2}
	f.before = func(int, http.ResponseWriter, *http.Request) bool {
		f.records = append(f.records, "late")
		return false
	}
	url := newFakeLog(t, f)
	r := runSeb(t, nil, "consume", "orders", "--server", url)
	r.want(t, exitOK)
	if want := "a\nb\nc\n"; r.out != want {
		t.Errorf("%q, not %q", r.out, want)
	}
}

func TestConsumeFollowReconnects(t *testing.T) {
	f := &fakeLog{records: []string{"a", "b", "c", "d"}, perFetch: 1}
	f.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		switch n {
		case 2:
			panic(http.ErrAbortHandler)
		case 3:
			problem(http.StatusServiceUnavailable, "broker_closed", "")(w, r)
			return true
		case 5: // an answer that is cut off
			w.Header().Set("Content-Length", "1000")
			writeFetched(w, 2, 3, 4, []string{"c"})
			panic(http.ErrAbortHandler)
		}
		return false
	}
	url := newFakeLog(t, f)
	r := runSeb(t, nil, "consume", "orders", "--server", url, "--follow", "--limit", "4")
	r.want(t, exitOK, "trying again")
	if r.out != "a\nb\nc\nd\n" {
		t.Errorf("records: %q", r.out)
	}
}

func TestConsumeFollowEndsQuietlyWhenInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	f := &fakeLog{records: []string{"a"}}
	f.before = func(n int, _ http.ResponseWriter, r *http.Request) bool {
		if n < 2 {
			return false
		}
		interrupt()
		<-r.Context().Done()
		return true
	}
	url := newFakeLog(t, f)
	r := runSebContext(ctx, t, nil, "consume", "orders", "--server", url, "--follow")
	r.want(t, 130)
	if r.out != "a\n" || r.err != "" {
		t.Errorf("%q, %q", r.out, r.err)
	}
}

func TestConsumeReportsRefusals(t *testing.T) {
	f := &fakeLog{records: []string{"a", "b"}, perFetch: 1}
	f.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 2 {
			problem(http.StatusNotFound, "topic_not_found", "")(w, r)
		}
		return n == 2
	}
	url := newFakeLog(t, f)
	r := runSeb(t, nil, "consume", "orders", "--server", url)
	r.want(t, exitRefused, "topic_not_found", "1 record was written; the topic was deleted meanwhile")
	if strings.Contains(r.err, "go on with") { // the new topic has other records at those offsets
		t.Error(r.err)
	}
}

// A command learns that nobody reads its output only when a write fails.
func TestConsumeEndsQuietlyWhenNobodyReads(t *testing.T) {
	url := newFakeLog(t, &fakeLog{records: []string{"a", "b"}})
	var stderr bytes.Buffer
	code := run(t.Context(), []string{"consume", "orders", "--server", url}, streams{nil, brokenPipe{}, &stderr})
	if code != exitOK || stderr.Len() > 0 {
		t.Errorf("exit code %d, %s", code, &stderr)
	}
}

func TestHelpEndsQuietlyWhenNobodyReads(t *testing.T) {
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"--help"}, streams{nil, brokenPipe{}, &stderr}); code != exitOK || stderr.Len() > 0 {
		t.Errorf("exit code %d, %s", code, &stderr)
	}
}

func TestCommandsThatPrintEndQuietlyWhenNobodyReads(t *testing.T) {
	server := httptest.NewServer(asBroker(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			_, _ = io.WriteString(w, "seb_applied_slot 1\n")
			return
		}
		_, _ = io.WriteString(w, `{"status":"ready","url":"https://example.com/hooks","topics":[{"name":"a"}],"queues":[{"name":"a","config":{"backoff":"1s..1h"}}],"keys":[],"session":"00112233445566778899aabbccddeeff","peers":[],"next":null}`)
	}))
	defer server.Close()
	for _, args := range []string{"topic list", "topic list -o json", "queue list a", "key list", "top --once --interval 100ms", "top --output json --interval 100ms"} {
		var stderr bytes.Buffer
		code := run(t.Context(), append(strings.Fields(args), "--server", server.URL), streams{nil, brokenPipe{}, &stderr})
		if code != exitOK || stderr.Len() > 0 {
			t.Errorf("%s: exit code %d, %s", args, code, &stderr)
		}
	}
}

func TestReadersAreCommands(t *testing.T) {
	names := map[string]bool{}
	for _, node := range newParser(t.Context(), streams{out: io.Discard, err: io.Discard}, func(int) {}).Model.Leaves(false) {
		names[nameOf(node)] = true
	}
	for _, name := range readers {
		if !names[name] {
			t.Errorf("%q is no command", name)
		}
	}
}

// The exit code says what a check found, also if nobody reads all of its output.
func TestChecksFailWhenNobodyReads(t *testing.T) {
	b := copyOf(t, goodBucket)
	b.edit(slot(9), func(x []byte) []byte { x[4] = 3; return reseal(x) })
	newer := b.inDirectory(t)
	b.delete(t, slot(5))
	damaged := b.inDirectory(t)
	for _, test := range []struct {
		args string
		code int
	}{
		{"fsck --store " + damaged, exitDamage},
		{"fsck --store " + newer, exitFailure},
		{"dump --store " + newer + " " + slot(9), exitFailure},
	} {
		for _, form := range []string{"text", "json"} {
			var stderr bytes.Buffer
			code := run(t.Context(), append(strings.Fields(test.args), "--output", form), streams{nil, brokenPipe{}, &stderr})
			if code != test.code || !strings.Contains(stderr.String(), "seb: ") {
				t.Errorf("%s as %s: exit code %d, %s", test.args, form, code, &stderr)
			}
		}
	}
}

// The output of a command that changes something can't be asked for again, and may hold a secret.
func TestCommandsThatChangeFailWhenNobodyReads(t *testing.T) {
	server := httptest.NewServer(asBroker(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete && strings.HasPrefix(r.URL.Path, "/v1/keys/") {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		name := map[string]string{"/v1/keys": "ops", "/v1/topics/a": "a"}[r.URL.Path]
		if name == "" {
			name = "b" // a queue or a consumer
		}
		_, _ = fmt.Fprintf(w, `{"topic":"a","id":7,"name":%q,"url":"http://localhost/","scopes":["admin"],"key":"seb_1","secret":"whsec_1",
			"count":1,"ranges":[{"count":1}],"partition":0,"start_offset":1,"end_offset":1,"partitions":[{"partition":0}],
			"config":{"lease":"30s","backoff":"1s..1h"},"keys":[{"id":7,"name":"ops","scopes":["admin"]}]}`, name)
	}))
	defer server.Close()
	t.Setenv("SEB_KEY", "seb_1_"+strings.Repeat("a", 64))
	for _, args := range []string{
		"key create ops --scope admin", "key revoke 7", "queue push set a b http://localhost/", "url --topic a",
		"topic create a", "topic trim a --partition 0 --before 1", "queue create a b --if-not-exists", "consumer reset a b --from earliest",
	} {
		for _, form := range []string{"text", "json"} {
			var stderr bytes.Buffer
			code := run(t.Context(), append(strings.Fields(args), "--output", form, "--server", server.URL), streams{nil, brokenPipe{}, &stderr})
			if code != exitFailure || !strings.Contains(stderr.String(), "write the output: broken pipe") {
				t.Errorf("%s as %s: exit code %d, %s", args, form, code, &stderr)
			}
		}
	}
	var stderr bytes.Buffer
	code := run(t.Context(), []string{"produce", "a", "--output", "json", "--server", server.URL}, streams{strings.NewReader("x"), brokenPipe{}, &stderr})
	if code != exitFailure || !strings.Contains(stderr.String(), "write the output: broken pipe") {
		t.Errorf("produce: exit code %d, %s", code, &stderr)
	}
}

// A broken connection to the broker is not taken for a closed output, although the error is the same.
func TestConsumeTakesABrokenConnectionForNoEnd(t *testing.T) {
	write := &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}
	if nobodyReads(&seb.Error{Code: client.CodeUnreachable, Err: write}) {
		t.Error("a broken connection is taken for an output that nobody reads")
	}
	if !nobodyReads(fmt.Errorf("partition 0: %w", outputError{syscall.EPIPE})) {
		t.Error("an output that nobody reads is not")
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// Records in a buffer do not count as written: a user who continues at the offset that consume names loses
// no record.
func TestConsumeCountsWhatTheOutputTook(t *testing.T) {
	records := make([]string, 30000)
	for i := range records {
		records[i] = strconv.Itoa(i)
	}
	for name, test := range map[string]struct {
		room int
		want string
	}{
		"nothing":   {0, "0 records were written completely; more records may follow in the output, the last of them cut off; to continue after the first 0, use --from 0\n"},
		"a buffer":  {64 << 10, "0 records were written completely; more records may follow in the output, the last of them cut off; to continue after the first 0, use --from 0\n"},
		"an answer": {150000, "20000 records were written completely; more records may follow in the output, the last of them cut off; to continue after the first 20000, use --from 20000\n"},
	} {
		t.Run(name, func(t *testing.T) {
			url := newFakeLog(t, &fakeLog{records: records, perFetch: 20000})
			var stderr bytes.Buffer
			out := &fullDisk{room: test.room}
			code := run(t.Context(), []string{"consume", "orders", "--server", url}, streams{nil, out, &stderr})
			if code != exitFailure || !strings.Contains(stderr.String(), test.want) {
				t.Errorf("exit code %d, %s", code, &stderr)
			}
		})
	}
}

// fullDisk takes room bytes, then fails.
type fullDisk struct{ room int }

func (f *fullDisk) Write(p []byte) (int, error) {
	n := min(len(p), f.room)
	f.room -= n
	if n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func TestConsumeRefusesAnswersThatMakeNoSense(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"no headers": func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "\x00\x00\x00\x00") },
		"empty":      func(w http.ResponseWriter, _ *http.Request) { offsets(w, "", "0", "0") },
		"count too large": func(w http.ResponseWriter, _ *http.Request) {
			offsets(w, "0", "1", "1")
			_, _ = fmt.Fprint(w, "\xff\xff\xff\xff")
		},
		"sizes too large": func(w http.ResponseWriter, _ *http.Request) {
			offsets(w, "0", "1", "1")
			_, _ = fmt.Fprint(w, "\x01\x00\x00\x00\x02\x00\x00\x00x")
		},
		"bytes left over": func(w http.ResponseWriter, _ *http.Request) {
			offsets(w, "0", "1", "1")
			_, _ = fmt.Fprint(w, "\x01\x00\x00\x00\x01\x00\x00\x00xy")
		},
		"a gap":    func(w http.ResponseWriter, _ *http.Request) { writeFetched(w, 0, 2, 2, []string{"x"}) },
		"no bytes": func(w http.ResponseWriter, _ *http.Request) { writeFetched(w, 0, 0, 2, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeLog{records: []string{"a"}}
			f.before = func(_ int, w http.ResponseWriter, r *http.Request) bool {
				answer(w, r)
				return true
			}
			url := newFakeLog(t, f)
			r := runSeb(t, nil, "consume", "orders", "--server", url)
			r.want(t, exitFailure, "consume orders")
			if r.out != "" {
				t.Errorf("it wrote %q", r.out)
			}
		})
	}
}

// A topic that was created under the name of a deleted one is another topic. If consume went on there, it
// would skip records unnoticed.
func TestConsumeEndsWhenItsTopicIsRecreated(t *testing.T) {
	for _, test := range []struct{ name, flags, news string }{
		{"shorter", "", "1"},
		{"as long", "--follow", "2"},
		{"longer", "--follow --format json", "1\n2\n3\n4\n5"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := serve(t, nil, "--store", "memory:", "--linger", "1ms")
			runSeb(t, strings.NewReader("a\nb\nc\nd"), "produce", "orders", "--server", b.url).want(t, exitOK)
			reads := 0
			server := beforeReads(t, b.url, func() {
				if reads++; reads == 2 {
					runSeb(t, nil, "topic", "delete", "orders", "--server", b.url).want(t, exitOK)
					runSeb(t, strings.NewReader(test.news), "produce", "orders", "--server", b.url).want(t, exitOK)
				}
			})
			cmd := append([]string{"consume", "orders", "--server", server, "--limit", "4"}, strings.Fields(test.flags)...)
			r := runSeb(t, nil, cmd...)
			r.want(t, exitRefused, "topic_recreated", "2 records were written, all of the deleted topic", "start again")
			if strings.Count(r.out, "\n") != 2 || strings.Contains(r.err, "go on with") {
				t.Errorf("%q, %q", r.out, r.err)
			}
		})
	}
}

// beforeReads passes requests on to a broker. It calls before ahead of each read, and limits each read to
// two records.
func beforeReads(t *testing.T, broker string, before func()) string {
	to, err := url.Parse(broker)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		if strings.HasSuffix(r.In.URL.Path, "/records") {
			before()
			q := r.Out.URL.Query()
			q.Set("limit", "2")
			r.Out.URL.RawQuery = q.Encode()
		}
	}})
	t.Cleanup(server.Close)
	return server.URL
}

func TestConsumeRefusesATopicWithoutAnID(t *testing.T) {
	server := httptest.NewServer(asBroker(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"name":"orders","partitions":[{"partition":0,"end_offset":1}]}`)
	}))
	defer server.Close()
	runSeb(t, nil, "consume", "orders", "--server", server.URL).want(t, exitFailure, "not what a broker sends", "Seb-Topic-Id")
}

func offsets(w http.ResponseWriter, first, next, end string) {
	w.Header().Set("Seb-Offset", first)
	w.Header().Set("Seb-Start-Offset", "0")
	w.Header().Set("Seb-Next-Offset", next)
	w.Header().Set("Seb-End-Offset", end)
}

// If a broker refuses a read with a hint, consume shows the hint and also where to continue.
func TestConsumeThatIsRefusedInBetweenSaysWhereToGoOn(t *testing.T) {
	url := newFakeLog(t, &fakeLog{records: []string{"a", "b", "c"}, perFetch: 1, before: func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n < 3 {
			return false
		}
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"status":500,"code":"data_lost","detail":"an object is missing","hint":"restore it"}`)
		return true
	}})
	r := runSeb(t, nil, "consume", "orders", "--server", url)
	if r.out != "a\nb\n" || !strings.Contains(r.err, "restore it; 2 records were written; go on with --from 2") {
		t.Errorf("it wrote %q, and said\n%s", r.out, r.err)
	}
}

// A proxy that loses a part of a body keeps the headers. In JSON, a line less is still well-formed.
func TestConsumeInJSONNoticesThatABodyWasCut(t *testing.T) {
	for name, body := range map[string]string{
		"empty": "", "without the first": `{"partition":0,"offset":1,"value":"b"}` + "\n", "without the last": `{"partition":0,"offset":0,"value":"a"}` + "\n",
	} {
		url := newFakeLog(t, &fakeLog{records: []string{"a", "b"}, before: func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			offsets(w, "", "2", "2")
			_, _ = io.WriteString(w, body)
			return true
		}})
		r := runSeb(t, nil, "consume", "orders", "--format", "json", "--server", url)
		if r.want(t, exitFailure, "is not what a broker sends"); r.out != "" {
			t.Errorf("%s: it wrote %q", name, r.out)
		}
	}
}
