package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// answer is the result of a request.
type answer struct {
	status int
	body   string
	err    error
}

// begin sends a request and returns a channel for its answer.
func begin(t testing.TB, method, url, body string) <-chan answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan answer, 1)
	go func() {
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			answers <- answer{err: err}
			return
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		answers <- answer{res.StatusCode, string(b), err}
	}()
	return answers
}

// underWay returns once the broker has n requests under way.
func underWay(t *testing.T, broker *process, n int) {
	t.Helper()
	saysInMetrics(t, broker, fmt.Sprintf("seb_http_requests_in_flight %d", n+1)) // the request for metrics counts too
}

// saysInMetrics returns once the broker's metrics have a line.
func saysInMetrics(t *testing.T, broker *process, line string) {
	t.Helper()
	want := "\n" + line + "\n"
	deadline := time.After(startTimeout)
	for ticker := time.NewTicker(5 * time.Millisecond); ; {
		if a := <-begin(t, http.MethodGet, broker.url+"/metrics", ""); a.err != nil {
			t.Fatal(a.err)
		} else if strings.Contains(a.body, want) {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("the metrics never say %q", want)
		}
	}
}

// After SIGTERM the broker acknowledges an append under way, answers waiting reads, writes a checkpoint,
// and ends in time.
func TestTermCommitsWhatIsHeld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broker := serve(t, nil, "--store", dir, "--linger", "1s")
	runSeb(t, strings.NewReader("first"), "produce", "events", "--server", broker.url).want(t, exitOK)

	reading := begin(t, http.MethodGet, broker.url+"/v1/topics/events/records?offset=latest&wait=2m", "")
	appending := begin(t, http.MethodPost, broker.url+"/v1/topics/events/records", "second")
	underWay(t, broker, 2)
	signalled := time.Now()
	broker.stopped(t)
	t.Logf("it took %v", time.Since(signalled).Round(time.Millisecond))

	if a := <-appending; a.err != nil || a.status != http.StatusCreated {
		t.Errorf("the append under way was answered %+v", a)
	}
	if a := <-reading; a.err != nil || a.status != http.StatusOK {
		t.Errorf("the waiting read was answered %+v", a)
	}
	checkpoints, err := filepath.Glob(filepath.Join(dir, "checkpoint", "*"))
	if err != nil || len(checkpoints) == 0 {
		t.Errorf("no checkpoint was written: %v", err)
	}

	again := serve(t, nil, "--store", dir)
	r := runSeb(t, nil, "consume", "events", "--server", again.url)
	r.want(t, exitOK)
	if r.out != "first\nsecond\n" {
		t.Errorf("the log holds %q", r.out)
	}
}

// An append whose linger is not over is committed before the process ends.
func TestTermDoesNotWaitForTheLinger(t *testing.T) {
	t.Parallel()
	broker := serve(t, nil, "--store", t.TempDir(), "--linger", "1h", "--append-timeout", "2h")
	appending := begin(t, http.MethodPost, broker.url+"/v1/topics/events/records", "held")
	underWay(t, broker, 1)
	broker.stopped(t)
	if a := <-appending; a.err != nil || a.status != http.StatusCreated {
		t.Errorf("the append under way was answered %+v", a)
	}
}

// A second signal ends the process at once.
func TestSecondSignalEndsTheProcessAtOnce(t *testing.T) {
	t.Parallel()
	broker := serve(t, nil, "--store", t.TempDir(), "--linger", "1h", "--append-timeout", "2h")
	begin(t, http.MethodPost, broker.url+"/v1/topics/events/records", "held")
	underWay(t, broker, 1)
	if err := broker.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, ok := broker.stderr.lineAfter("shutting down", broker.done); !ok {
		t.Fatalf("the first signal did nothing:\n%s", broker.stderr)
	}
	second := time.Now()
	if err := broker.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-broker.done
	if took := time.Since(second); took > drainTimeout/2 {
		t.Errorf("it took %v", took)
	}
	if code := broker.cmd.ProcessState.ExitCode(); code == exitOK {
		t.Error("it ended as if all were well")
	}
}

// The process of a broker whose log is damaged while it runs ends.
func TestServeEndsWhenTheBrokerStopsItself(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broker := serve(t, nil, "--store", dir)
	runSeb(t, strings.NewReader("first"), "produce", "events", "--server", broker.url).want(t, exitOK)
	// Put something that no broker would write at the next slot.
	slots, err := filepath.Glob(filepath.Join(dir, "log", "*"))
	if err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(dir, "log", fmt.Sprintf("%020d", len(slots)+1))
	if err := os.WriteFile(next, []byte("not a commit"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := runSeb(t, strings.NewReader("second"), "produce", "events", "--server", broker.url, "--retry-for", "1ms"); r.code == exitOK {
		t.Error("a record was acknowledged over a foreign object")
	}
	select {
	case <-broker.done:
	case <-time.After(leaveTimeout):
		t.Fatal("it goes on")
	}
	if code := broker.cmd.ProcessState.ExitCode(); code != exitDamage {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(broker.stderr.String(), "the broker stopped itself") {
		t.Errorf("it does not say why:\n%s", broker.stderr)
	}
}

func TestServeTakesNoAddressThatIsTaken(t *testing.T) {
	t.Parallel()
	broker := serve(t, nil, "--store", "memory:")
	dir := filepath.Join(t.TempDir(), "untouched")
	runSeb(t, nil, "serve", "--store", dir, "--http", strings.TrimPrefix(broker.url, "http://")).
		want(t, exitFailure, "listen for HTTP", "--http")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the store was touched: %v", err)
	}
}

func TestServeShowsProfilesOnlyIfAsked(t *testing.T) {
	t.Parallel()
	quiet := serve(t, nil, "--store", "memory:")
	if a := <-begin(t, http.MethodGet, quiet.url+"/debug/pprof/", ""); a.status != http.StatusNotFound {
		t.Errorf("profiles on the API's address: %+v", a)
	}
	quiet.stopped(t)
	if said := quiet.stderr.String(); strings.Contains(said, "serving profiles") {
		t.Errorf("it serves profiles that nobody asked for:\n%s", said)
	}
	loud := serve(t, nil, "--store", "memory:", "--debug-addr", "127.0.0.1:0")
	url, ok := loud.stderr.lineAfter(`msg="serving profiles" url=`, loud.done)
	if !ok {
		t.Fatalf("it does not say where:\n%s", loud.stderr)
	}
	if a := <-begin(t, http.MethodGet, url, ""); a.status != http.StatusOK || !strings.Contains(a.body, "goroutine") {
		t.Errorf("no profiles at %q: %d, %v", url, a.status, a.err)
	}
	if a := <-begin(t, http.MethodGet, loud.url+"/debug/pprof/", ""); a.status != http.StatusNotFound {
		t.Errorf("profiles on the API's address too: %+v", a)
	}
	for host, want := range map[string]int{"evil.example": http.StatusForbidden, "localhost": http.StatusOK} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("profiles for %s: %d, want %d; %v", host, resp.StatusCode, want, resp.Header)
		}
	}
	for header, want := range map[[2]string]int{
		{"Origin", "https://evil.example"}:                   http.StatusForbidden,
		{"Origin", "null"}:                                   http.StatusForbidden,
		{"Sec-Fetch-Site", "cross-site"}:                     http.StatusForbidden,
		{"Sec-Fetch-Site", "same-site"}:                      http.StatusForbidden,
		{"Sec-Fetch-Site", "none"}:                           http.StatusOK, // a URL typed by a user
		{"Sec-Fetch-Site", "same-origin"}:                    http.StatusOK,
		{"Origin", strings.TrimSuffix(url, "/debug/pprof/")}: http.StatusOK,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(header[0], header[1])
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want {
			t.Errorf("profiles for %v: %d, want %d", header, resp.StatusCode, want)
		}
	}
	loud.stopped(t)
}
