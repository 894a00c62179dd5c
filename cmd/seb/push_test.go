package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

// TestServeDeliversPushedRecords runs seb serve with --push-allow, --no-push and the defaults.
func TestServeDeliversPushedRecords(t *testing.T) {
	came := make(chan string, 100)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			came <- string(body)
		}
	}))
	defer target.Close()
	dir := t.TempDir()
	ask := func(broker *process, method, path, body string, want int) string {
		t.Helper()
		a := <-begin(t, method, broker.url+"/v1/topics/orders"+path, body)
		if a.err != nil || a.status != want {
			t.Fatalf("%s %s: %d %s, %v", method, path, a.status, a.body, a.err)
		}
		return a.body
	}
	strict := serve(t, nil, "--store", dir)
	ask(strict, "POST", "/records", "one", 201)
	ask(strict, "PUT", "/queues/mail", "", 201)
	if body := ask(strict, "PUT", "/queues/mail/push", `{"url":"`+target.URL+`"}`, 400); !strings.Contains(body, "--push-allow") {
		t.Errorf("refused with %s", body)
	}
	silent := serve(t, nil, "--store", dir, "--no-push", "--push-allow", "127.0.0.0/8")
	ask(silent, "PUT", "/queues/mail/push", `{"url":"`+target.URL+`"}`, 201)
	ask(silent, "DELETE", "/queues/mail/push", "", 204)
	strict.stopped(t)
	allowing := serve(t, nil, "--store", dir, "--push-allow", "10.0.0.0/8,127.0.0.0/8")
	ask(allowing, "PUT", "/queues/mail/push", `{"url":"`+target.URL+`"}`, 201)
	select {
	case body := <-came:
		if body != "one" {
			t.Errorf("%q came", body)
		}
	case <-time.After(startTimeout):
		t.Fatal("nothing came")
	}
	saysInMetrics(t, allowing, `seb_push_deliveries_total{outcome="delivered",queue="mail",topic="orders"} 1`)
}

func TestPushAllowRefusesWhatIsNoNetwork(t *testing.T) {
	for _, network := range []string{"10.0.0", "10.0.0.0/33", "10.0.0.1/8", "::ffff:10.0.0.0/104", "::ffff:10.0.0.1", "fe80::1%eth0", "home"} {
		for _, flag := range []string{"--push-allow", "--push-deny"} {
			runSeb(t, nil, "serve", "--store", "memory:", flag, network).want(t, exitUsage, flag)
		}
	}
}

func TestPushAllowTakesAnAddressForItself(t *testing.T) {
	command, err := newParser(t.Context(), streams{nil, io.Discard, io.Discard}, func(int) {}).
		Parse([]string{"serve", "--push-allow", "127.0.0.1,10.0.0.0/8", "--push-allow", "fd00::1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range command.Flags() {
		if flag.Name == "push-allow" {
			if got := fmt.Sprint(flag.Target.Interface()); got != "[127.0.0.1/32 10.0.0.0/8 fd00::1/128]" {
				t.Errorf("--push-allow is %s", got)
			}
			return
		}
	}
	t.Fatal("serve has no --push-allow")
}

// A table of queues says at a glance which push delivers nothing.
func TestStateOfAPushedQueue(t *testing.T) {
	failing := seb.PushInfo{Failing: "HTTP 500", FailingSince: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)}
	for want, p := range map[string]*seb.PushInfo{
		"open": nil, "pushed": {}, "push stopped": {Stopped: "HTTP 410"}, "push blocked": {Blocked: "private", Failing: "private"}, "push failing": &failing,
	} {
		if got := stateText(seb.QueueInfo{}, p); got != want {
			t.Errorf("%+v: %q, not %q", p, got, want)
		}
	}
	if got := pushTroubles(failing); len(got) != 1 || got[0] != "failing since 2026-01-31T12:00:00Z: HTTP 500" {
		t.Errorf("it says %q", got)
	}
}
