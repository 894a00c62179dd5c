package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

// lossyRelay passes requests on to a broker, and loses the first answer to each
// append.
type lossyRelay struct {
	broker string

	mu   sync.Mutex
	keys []string // of the appends, in the order in which they came
}

func (f *lossyRelay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, f.broker+r.URL.String(), r.Body)
	if err != nil {
		panic(err)
	}
	req.Header, req.ContentLength = r.Header.Clone(), r.ContentLength
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		panic(err)
	}
	defer res.Body.Close()
	key := r.Header.Get("Idempotency-Key")
	f.mu.Lock()
	first := len(f.keys) == 0 || f.keys[len(f.keys)-1] != key
	f.keys = append(f.keys, key)
	f.mu.Unlock()
	if first {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(res.StatusCode)
	_, _ = io.Copy(w, res.Body)
}

// tries answers the nth append with its nth error; nil means that the broker has the records.
type tries []error

func (r *tries) AppendEncoded(context.Context, string, client.Encoding, []byte, ...seb.AppendOption) (seb.Appended, error) {
	err := (*r)[0]
	*r = (*r)[1:]
	return seb.Appended{Count: 1}, err
}

// A broker dies during the first request, which it may have carried out, and is restarted. produce does not
// give up while connections are refused.
func TestProduceIdempotentOutlivesABrokerThatNeverAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cutOff := &seb.Error{Code: client.CodeUnreachable, Outcome: seb.Unknown, RetryAfter: backoffMin}
		refused := &seb.Error{Code: client.CodeUnreachable, Outcome: seb.NotCommitted, RetryAfter: backoffMin}
		answers := &tries{cutOff, refused, refused, nil}
		p := &producer{
			cmd: &produceCmd{Topic: "orders", RetryFor: time.Minute}, broker: answers,
			partitions: map[int32]*appendedPartition{},
		}
		p.waits = newWaitNotes(io.Discard, newProgress(io.Discard, 0), "produce orders", time.Minute)
		if outcome, err := p.sendBatch(t.Context(), &recordBatch{n: 1}); err != nil || len(*answers) > 0 {
			t.Errorf("it gives up with %v, outcome %q, before %d more answers", err, outcome, len(*answers))
		}
	})
}

// Every answer is lost once, and every record is in the log once.
func TestProduceIdempotentAppendsOnce(t *testing.T) {
	b := serve(t, nil, "--store", "memory:", "--linger", "1ms")
	f := &lossyRelay{broker: b.url}
	server := httptest.NewServer(asBroker(f.ServeHTTP))
	defer server.Close()
	var want strings.Builder
	for _, format := range []string{"line", "json"} {
		in := "a\n\nc\nd\ne\n"
		want.WriteString(in)
		if format == "json" {
			in = `{"value":"a"}` + "\n" + `{"value":""}` + "\n" + `{"value":"c"}` + "\n" + `{"value":"d"}` + "\n" + `{"value":"e"}`
		}
		r := runSeb(t, strings.NewReader(in), "produce", "orders", "--server", server.URL, "--batch-records", "2",
			"--format", format, "--output", "json")
		r.want(t, exitOK)
		if !strings.Contains(r.out, `"records": 5`) {
			t.Errorf("it tells %s", r.out)
		}
	}
	if r := runSeb(t, nil, "consume", "orders", "--server", b.url); r.out != want.String() {
		t.Errorf("the topic has %q, not %q", r.out, want.String())
	}
	if n := len(f.keys); n != 12 || f.keys[0] == "" || f.keys[0] == f.keys[6] {
		t.Errorf("%d requests with keys %q", n, f.keys)
	}

	// With --no-idempotent, the user has to find out the outcome.
	runSeb(t, strings.NewReader("f"), "produce", "orders", "--no-idempotent", "--server", server.URL).
		want(t, exitUnknown, "lines 1 to 1", "without --no-idempotent seb retries such requests")
	if r := runSeb(t, nil, "consume", "orders", "--from", "-1", "--server", b.url); r.out != "f\n" {
		t.Errorf("the topic ends with %q", r.out)
	}
}

// If the log has no room for further keys, a request without a key is sent, but none whose earlier attempt may
// have been carried out.
func TestProduceGoesOnWithoutKeysWhenTheLogIsFullOfThem(t *testing.T) {
	full := problem(http.StatusTooManyRequests, "idempotency_keys_full", "not_committed")
	f, url := newFakeBroker(t, full, nil, full, hangUp)
	r := runSeb(t, strings.NewReader(fiveLines), "produce", "orders", "--server", url, "--batch-records", "2")
	r.want(t, exitUnknown, "seb: produce orders: idempotency_keys_full: because of a test; going on without idempotency keys",
		"lines 3 to 4", "when the log has room for idempotency keys")
	if strings.Count(r.err, "going on") != 1 || len(f.accepted()) != 2 {
		t.Errorf("accepted are %q, and it said\n%s", f.accepted(), r.err)
	}
	if diff := cmp.Diff([]bool{true, false, true, false}, f.keyed); diff != "" {
		t.Error(diff)
	}
	f, url = newFakeBroker(t, hangUp, full, full, nil)
	runSeb(t, strings.NewReader("one"), "produce", "orders", "--server", url).want(t, exitOK)
	if diff := cmp.Diff([]bool{true, true, true, true}, f.keyed); diff != "" {
		t.Error(diff)
	}
	f, url = newFakeBroker(t, full, nil)
	runSeb(t, strings.NewReader("one"), "produce", "orders", "--idempotent", "--server", url).want(t, exitOK)
	if diff := cmp.Diff([]bool{true, true}, f.keyed); diff != "" {
		t.Error(diff)
	}
	runSeb(t, strings.NewReader("one"), "produce", "orders", "--idempotent", "--no-idempotent", "--server", url).want(t, exitUsage, "exclude each other")
}

// countingBroker accepts every append.
type countingBroker struct{ requests, records int }

func (b *countingBroker) AppendEncoded(_ context.Context, _ string, _ client.Encoding, body []byte, _ ...seb.AppendOption) (seb.Appended, error) {
	lines, _ := decodeLines(body)
	b.requests++
	b.records += len(lines)
	time.Sleep(10 * time.Millisecond)
	return seb.Appended{Count: len(lines)}, nil
}

// Input that comes record by record for a day leaves nine tenths of the keys to others, and no record waits for
// more than a second. Fast input, and input without keys, waits for nothing.
func TestProduceUsesFewKeys(t *testing.T) {
	for _, test := range []struct {
		name           string
		cmd            produceCmd
		records        int
		every          time.Duration
		requests, most int // at least and at most
		seconds        float64
	}{
		{"a day", produceCmd{}, 24 * 3600 * 5, 200 * time.Millisecond, 86_000, 90_000, 24*3600 + 1},
		{"a short while", produceCmd{}, 1000, 20 * time.Millisecond, 1000, 1000, 20.1},
		{"full batches", produceCmd{}, 2_000_000, 0, 1900, 2100, 25},
		{"keys as before", produceCmd{Idempotent: true}, 3000, 20 * time.Millisecond, 3000, 3000, 60.1},
		{"no keys", produceCmd{NoIdempotent: true}, 3000, 20 * time.Millisecond, 3000, 3000, 60.1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.cmd.Topic, test.cmd.RetryFor = "orders", time.Minute
				broker := &countingBroker{}
				p := &producer{cmd: &test.cmd, broker: broker, began: time.Now(), partitions: map[int32]*appendedPartition{}, progress: newProgress(io.Discard, 0)}
				g := newBatcher((&formatFlags{Format: formatLine}).input(false), 8<<20, 1000)
				in, out := io.Pipe()
				go func() {
					line := []byte("x\n")
					if test.every == 0 {
						line = bytes.Repeat(line, 1000)
					}
					for range test.records * 2 / len(line) {
						_, _ = out.Write(line)
						time.Sleep(test.every)
					}
					_ = out.Close()
				}()
				go g.read(t.Context(), in, 0)
				err := p.sendAll(t.Context(), g)
				took := time.Since(p.began).Seconds()
				if err != nil || broker.records != test.records || broker.requests < test.requests || broker.requests > test.most || took > test.seconds {
					t.Errorf("%d records in %d requests and %.1f s, %v", broker.records, broker.requests, took, err)
				}
			})
		})
	}
}
