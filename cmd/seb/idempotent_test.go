package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
			cmd: &produceCmd{Topic: "orders", Idempotent: true, RetryFor: time.Minute}, broker: answers,
			partitions: map[int32]*appendedPartition{},
		}
		if outcome, err := p.sendBatch(t.Context(), &recordBatch{n: 1}); err != nil || len(*answers) > 0 {
			t.Errorf("it gives up with %v, outcome %q, before %d more answers", err, outcome, len(*answers))
		}
	})
}

// Every answer is lost once, and every record is in the log once.
func TestProduceIdempotentAppendsOnce(t *testing.T) {
	b := serve(t, nil, "--store", "memory:", "--linger", "1ms")
	f := &lossyRelay{broker: b.url}
	server := httptest.NewServer(f)
	defer server.Close()
	var want strings.Builder
	for _, format := range []string{"line", "json"} {
		in := "a\n\nc\nd\ne\n"
		want.WriteString(in)
		if format == "json" {
			in = `{"value":"a"}` + "\n" + `{"value":""}` + "\n" + `{"value":"c"}` + "\n" + `{"value":"d"}` + "\n" + `{"value":"e"}`
		}
		r := runSeb(t, strings.NewReader(in), "produce", "orders", "--server", server.URL, "--batch-records", "2",
			"--format", format, "--idempotent", "--output", "json")
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

	// Without --idempotent, the user has to find out the outcome.
	runSeb(t, strings.NewReader("f"), "produce", "orders", "--server", server.URL).want(t, exitUnknown, "lines 1 to 1", "--idempotent")
	if r := runSeb(t, nil, "consume", "orders", "--from", "-1", "--server", b.url); r.out != "f\n" {
		t.Errorf("the topic ends with %q", r.out)
	}
}
