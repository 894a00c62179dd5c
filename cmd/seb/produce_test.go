package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

// fakeBroker answers the n-th append by answers[n], or accepts it if there is no such answer.
type fakeBroker struct {
	t       *testing.T
	answers []http.HandlerFunc

	mu       sync.Mutex
	requests int
	keyed    []bool // whether each request had an idempotency key
	queries  []string
	lines    []string // of the appends accepted
}

func newFakeBroker(t *testing.T, answers ...http.HandlerFunc) (*fakeBroker, string) {
	f := &fakeBroker{t: t, answers: answers}
	server := httptest.NewServer(asBroker(f.ServeHTTP))
	t.Cleanup(server.Close)
	return f, server.URL
}

func (f *fakeBroker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	f.queries = append(f.queries, r.URL.RawQuery)
	f.keyed = append(f.keyed, r.Header.Get("Idempotency-Key") != "")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		f.t.Error(err)
	}
	if r.Method != http.MethodPost || r.URL.Path != "/v1/topics/orders/records" || r.Header.Get("Content-Type") != string(client.Values) {
		f.t.Errorf("unexpected request %s %s of %s", r.Method, r.URL, r.Header.Get("Content-Type"))
	}
	lines, ok := decodeLines(body)
	if !ok || int64(len(body)) != r.ContentLength {
		f.t.Errorf("no batch: %q", body)
	}
	if f.requests <= len(f.answers) && f.answers[f.requests-1] != nil {
		f.answers[f.requests-1](w, r)
		return
	}
	f.lines = append(f.lines, lines...)
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprint(w, appended(len(lines)))
}

// accepted returns the lines of the appends accepted so far.
func (f *fakeBroker) accepted() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lines
}

// asked returns how many requests came.
func (f *fakeBroker) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

// problem answers as a broker refuses.
func problem(status int, code, outcome string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(status)
		p := map[string]any{"status": status, "code": code, "detail": "because of a test", "hint": "none"}
		if outcome != "" {
			p["outcome"] = outcome
		}
		_ = json.NewEncoder(w).Encode(p)
	}
}

// hangUp ends the connection without an answer.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

const fiveLines = "one\ntwo\n\nfour\r\nfive"

var fiveRecords = []string{"one", "two", "", "four\r", "five"}

func TestProduceSendsLinesInOrder(t *testing.T) {
	f, url := newFakeBroker(t)
	r := runSeb(t, strings.NewReader(fiveLines), "produce", "orders", "--server", url, "--batch-records", "2", "--partition", "3")
	r.want(t, exitOK, "5 records")
	if diff := cmp.Diff(fiveRecords, f.accepted()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"partition=3", "partition=3", "partition=3"}, f.queries); diff != "" {
		t.Error(diff)
	}
}

func TestProduceRetriesWhatIsCertainlyNotInTheLog(t *testing.T) {
	f, url := newFakeBroker(t, nil,
		problem(http.StatusServiceUnavailable, "store_unavailable", "not_committed"),
		problem(http.StatusTooManyRequests, "over_memory_budget", ""))
	r := runSeb(t, strings.NewReader(fiveLines), "produce", "orders", "--server", url, "--batch-records", "2")
	r.want(t, exitOK, "5 records")
	if diff := cmp.Diff(fiveRecords, f.accepted()); diff != "" {
		t.Error(diff)
	}
	if n := f.asked(); n != 5 {
		t.Errorf("%d requests", n)
	}
}

func TestProduceStopsAtAnUnknownOutcome(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"said so":          problem(http.StatusServiceUnavailable, "store_unavailable", "unknown"),
		"no answer":        hangUp,
		"a proxy's answer": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) },
		"no broker": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, "It works!")
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, url := newFakeBroker(t, nil, answer)
			r := runSeb(t, strings.NewReader(fiveLines), "produce", "orders", "--server", url, "--batch-records", "2", "--no-idempotent")
			r.want(t, exitUnknown, "lines 3 to 4", "2 lines are acknowledged", "--skip 2", "--skip 4")
			if n := f.asked(); n != 2 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestProduceRetriesUnknownOutcomes(t *testing.T) {
	f, url := newFakeBroker(t, nil, hangUp, problem(http.StatusServiceUnavailable, "store_unavailable", "unknown"))
	r := runSeb(t, strings.NewReader(fiveLines), "produce", "orders", "--server", url, "--batch-records", "2")
	r.want(t, exitOK, "5 records", "seb: produce orders: ", "; trying again for up to 2m0s")
	if diff := cmp.Diff(fiveRecords, f.accepted()); diff != "" {
		t.Error(diff)
	}
}

// An unknown outcome stays unknown, whatever the answers to later attempts.
func TestProduceRemembersThatAnOutcomeIsUnknown(t *testing.T) {
	_, url := newFakeBroker(t, nil, hangUp, problem(http.StatusRequestEntityTooLarge, "record_too_large", "not_committed"))
	r := runSeb(t, strings.NewReader(fiveLines), "produce", "orders", "--server", url, "--batch-records", "2")
	r.want(t, exitUnknown, "lines 3 to 4", "may or may not be in the log")
}

func TestProduceSaysHowToGoOn(t *testing.T) {
	f, url := newFakeBroker(t, nil, problem(http.StatusRequestEntityTooLarge, "record_too_large", "not_committed"))
	r := runSeb(t, strings.NewReader(fiveLines), "produce", "orders", "--server", url, "--batch-records", "2")
	r.want(t, exitRefused, "produce orders: lines 3 to 4: record_too_large", "2 lines are acknowledged, and none after these is in the log", "--skip 2")

	r = runSeb(t, strings.NewReader(fiveLines), "produce", "orders", "--server", url, "--skip", "2")
	r.want(t, exitOK, "3 records")
	if diff := cmp.Diff(fiveRecords, f.accepted()); diff != "" {
		t.Error(diff)
	}
}

// If the state of the log is full, the broker asks produce to wait a minute: produce says once why it
// waits.
func TestProduceSaysOnceWhatItWaitsFor(t *testing.T) {
	full := func(w http.ResponseWriter, r *http.Request) {
		problem(http.StatusTooManyRequests, "over_memory_budget", "not_committed")(&laterResponse{w}, r)
	}
	_, url := newFakeBroker(t, full, full, full, full)
	r := runSeb(t, strings.NewReader("a"), "produce", "orders", "--server", url, "--retry-for", "100ms")
	r.want(t, exitUnreachable, "seb: produce orders: over_memory_budget: because of a test; trying again for up to 100ms\n     none\n")
	var said strings.Builder
	waits := newWaitNotes(&said, newProgress(io.Discard, 0), "produce orders", time.Minute)
	for range 3 {
		waits.tell(&seb.Error{Code: seb.CodeOverMemoryBudget, RetryAfter: time.Minute})
		waits.tell(&seb.Error{Code: seb.CodeStoreUnavailable, RetryAfter: time.Second})
	}
	if strings.Count(said.String(), "trying again") != 2 { // once for each code
		t.Error(said.String())
	}
}

// laterResponse adds a Retry-After of a minute.
type laterResponse struct{ http.ResponseWriter }

func (w *laterResponse) WriteHeader(status int) {
	w.Header().Set("Retry-After", "60")
	w.ResponseWriter.WriteHeader(status)
}

func TestProduceGivesUpRetrying(t *testing.T) {
	busy := problem(http.StatusTooManyRequests, "over_memory_budget", "not_committed")
	_, url := newFakeBroker(t, busy, busy, busy, busy, busy, busy)
	r := runSeb(t, strings.NewReader("a"), "produce", "orders", "--server", url, "--retry-for", "150ms")
	r.want(t, exitUnreachable, "over_memory_budget")
}

func TestProduceReportsInputThatBreaksOff(t *testing.T) {
	f, url := newFakeBroker(t)
	in := io.MultiReader(strings.NewReader("one\ntwo\nhal"), iotest.ErrReader(errors.New("cable cut")))
	r := runSeb(t, in, "produce", "orders", "--server", url)
	r.want(t, exitFailure, "cable cut", "--skip 2")
	if diff := cmp.Diff([]string{"one", "two"}, f.accepted()); diff != "" {
		t.Error(diff)
	}
}

// After an interrupt produce waits for the request under way, to know its outcome.
func TestProduceInterruptedKnowsWhatIsAcknowledged(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	f, url := newFakeBroker(t)
	f.answers = []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
		interrupt()
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, appended(2))
	}}
	r := runSebContext(ctx, t, strings.NewReader(fiveLines), "produce", "orders", "--server", url, "--batch-records", "2")
	r.want(t, 130, "interrupted", "2 lines are acknowledged", "--skip 2")
}

// A signal ends the wait for the next try. That is no failure of the broker.
func TestProduceInterruptedBetweenTwoTriesWasInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	_, url := newFakeBroker(t, func(w http.ResponseWriter, r *http.Request) {
		interrupt()
		problem(http.StatusServiceUnavailable, "store_unavailable", "not_committed")(w, r)
	})
	runSebContext(ctx, t, strings.NewReader("a"), "produce", "orders", "--server", url).want(t, 130, "interrupted")
}

func TestProduceDoesNotFollowRedirects(t *testing.T) {
	f, url := newFakeBroker(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	})
	runSeb(t, strings.NewReader("a"), "produce", "orders", "--server", url).want(t, exitFailure, "redirects to /elsewhere")
	if n := f.asked(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// newBrokerThatAnswers answers the nth request by answers[n], and fails the test if more requests come.
func newBrokerThatAnswers(t *testing.T, answers []http.HandlerFunc) string {
	var mu sync.Mutex
	server := httptest.NewServer(asBroker(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if len(answers) == 0 {
			t.Error("a request too many")
			return
		}
		answers[0](w, r)
		answers = answers[1:]
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// While a request hangs, the first signal says what seb produce waits for. The second ends it, and says what is in the log.
func TestProduceSaysWhatItWaitsForWhenInterrupted(t *testing.T) {
	asked := make(chan struct{}, 8)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	stderr := newOutput()
	cmd := exec.CommandContext(t.Context(), "seb", "produce", "orders", "--server", server.URL)
	cmd.Stdin, cmd.Stderr = strings.NewReader("one\ntwo\n"), stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-asked
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	until(t, "its word that it waits", func() bool { return strings.Contains(stderr.String(), "waiting for the request under way") })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // ProcessState has the result
	want := "0 lines are acknowledged; lines 1 to 2 may or may not be in the log"
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(stderr.String(), want) {
		t.Errorf("exit code %d:\n%s", code, stderr)
	}
}
