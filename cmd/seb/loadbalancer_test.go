package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// haproxy returns the path of HAProxy. If HAProxy is not installed, haproxy skips the test, or fails it if SEB_TEST_REQUIRE is 1.
func haproxy(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("SEB_TEST_HAPROXY"), "haproxy", "/usr/sbin/haproxy"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "needs HAProxy: install it (Debian: apt-get install haproxy), or set SEB_TEST_HAPROXY to its binary"
	if os.Getenv("SEB_TEST_REQUIRE") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// freeAddress returns an address at which nobody listens now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return address
}

// documentedBalancer returns the configuration of HAProxy in docs/several-brokers.md, with these addresses.
func documentedBalancer(t *testing.T, front string, brokers []string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "several-brokers.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, config, found := strings.Cut(string(page), "```haproxy\n")
	config, _, ends := strings.Cut(config, "```")
	if !found || !ends {
		t.Fatal("the page has no configuration of HAProxy")
	}
	config = strings.Replace(config, "0.0.0.0:8080", front, 1)
	n := 0
	config = regexp.MustCompile(`10\.0\.0\.\d:51313`).ReplaceAllStringFunc(config, func(string) string { n++; return brokers[n-1] })
	if n != len(brokers) {
		t.Fatalf("the configuration has %d brokers, want %d", n, len(brokers))
	}
	return config
}

// Three brokers behind HAProxy are restarted, one after the other, while clients append. No append fails.
func TestRollingRestartBehindHAProxy(t *testing.T) {
	t.Parallel()
	binary, dir := haproxy(t), t.TempDir()
	addresses := []string{freeAddress(t), freeAddress(t), freeAddress(t)}
	start := func(i int) *process {
		p, err := startServe(t.Context(), t.TempDir(), nil, "--store", dir, "--http", addresses[i], "--advertise", "http://"+addresses[i], "--shutdown-delay", "3s")
		if err != nil {
			t.Fatal(err)
		}
		ownedBy(t, p)
		return p
	}
	brokers := []*process{start(0), start(1), start(2)}
	front, config := freeAddress(t), filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(config, []byte(documentedBalancer(t, front, addresses)), 0o600); err != nil {
		t.Fatal(err)
	}
	balancer := exec.CommandContext(t.Context(), binary, "-db", "-f", config)
	balancer.Stderr = newOutput()
	if err := balancer.Start(); err != nil {
		t.Fatal(err)
	}
	var (
		stop    = make(chan struct{})
		clients sync.WaitGroup
		done    atomic.Int64
		first   = make(chan answer, 1)
		records = "http://" + front + "/v1/topics/events/records"
	)
	until(t, "HAProxy serves", func() bool { a := <-begin(t, http.MethodPost, records, "first"); return a.status == http.StatusCreated })
	done.Add(1)
	for range 8 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				a := <-begin(t, http.MethodPost, records, "x")
				if a.err == nil && a.status == http.StatusCreated {
					done.Add(1)
					continue
				}
				select {
				case first <- a:
				default:
				}
				return
			}
		})
	}
	for i := range brokers {
		before := done.Load()
		until(t, "clients append", func() bool { return done.Load() > before+50 }, brokers...)
		brokers[i].stopped(t)
		brokers[i] = start(i)
		until(t, "HAProxy uses the broker again", func() bool {
			a := <-begin(t, http.MethodGet, brokers[i].url+"/metrics", "")
			return strings.Contains(a.body, `seb_http_requests_total{code="201"`)
		}, brokers...)
	}
	close(stop)
	clients.Wait()
	select {
	case a := <-first:
		t.Errorf("an append failed: %+v", a)
	default:
	}
	// The broker may answer from what it knew a second ago (--stale-max).
	until(t, fmt.Sprintf("the topic has the %d records that were acknowledged", done.Load()), func() bool {
		r := runSeb(t, nil, "topic", "show", "events", "--server", brokers[0].url, "--output", "json")
		r.want(t, exitOK, "")
		return strings.Contains(r.out, fmt.Sprintf(`"end_offset": %d,`, done.Load()))
	}, brokers...)
}
