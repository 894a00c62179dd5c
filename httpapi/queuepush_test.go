package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
)

const pushPath = mailPath + "/push"

// loopback are the networks of this machine, to which brokers of tests may push.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func (s *server) setPush(body string, status int, header ...string) (p pushJSON) {
	s.t.Helper()
	a := s.do("PUT", pushPath, strings.NewReader(body), header...)
	a.want(s.t, status)
	a.json(s.t, &p)
	return p
}

func (s *server) push(header ...string) (p pushJSON) {
	s.t.Helper()
	a := s.get(pushPath, header...)
	a.want(s.t, http.StatusOK)
	a.json(s.t, &p)
	return p
}

// newGone starts a target that answers 410, and returns its URL. It must be started outside a
// bubble. Bubbles can use it, since it keeps no connections.
func newGone(t testing.TB) string {
	t.Helper()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusGone)
	}))
	t.Cleanup(target.Close)
	return target.URL
}

// stopPush sets a push of queue mail, which has a record, to a target that is gone, and waits until the
// push has stopped.
func (s *server) stopPush(gone string, header ...string) {
	s.t.Helper()
	s.setPush(fmt.Sprintf(`{"url":%q}`, gone), http.StatusCreated, header...)
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error)
	go func() { ended <- s.broker.DeliverPushed(ctx, seb.PushOptions{}) }()
	for s.push(header...).Stopped == nil { // no request waits until the push has stopped
	}
	cancel()
	if err := <-ended; err != nil {
		s.t.Error(err)
	}
}

func TestPushIsSetChangedAndRemovedFieldByField(t *testing.T) {
	s := newServerWithQueue(t, 1, "")
	s.get(pushPath).wantProblem(t, http.StatusNotFound, seb.CodePushNotFound)
	s.do("DELETE", pushPath, nil).wantProblem(t, http.StatusNotFound, seb.CodePushNotFound)
	s.post(pushPath+"/resume", "").wantProblem(t, http.StatusNotFound, seb.CodePushNotFound)
	s.do("PUT", queuesPath+"/none/push", strings.NewReader(`{"url":"https://example.com/"}`)).wantProblem(t, http.StatusNotFound, seb.CodeQueueNotFound)
	s.get("/v1/topics/none/queues/none/push").wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)

	p := s.setPush(`{"url":"https://example.com/a?b=c"}`, http.StatusCreated)
	if !strings.HasPrefix(p.Secret, "whsec_") || p.URL != "https://example.com/a?b=c" || p.MaxInFlight != 64 || p.Timeout != "30s" || p.Secrets != 1 || p.Stopped != nil || len(p.Headers) != 0 {
		t.Errorf("a new push is %+v", p)
	}
	if again := s.push(); again.Secret != "" || again.Secrets != 1 {
		t.Errorf("asked for later it is %+v", again)
	}
	p = s.setPush(`{"headers":{"X-Key":"hidden","Authorization":"Bearer hidden"},"timeout":"5s","max_in_flight":2,"url":null}`, http.StatusOK)
	if p.Secret != "" || p.URL != "https://example.com/a?b=c" || p.MaxInFlight != 2 || p.Timeout != "5s" || fmt.Sprint(p.Headers) != "[Authorization X-Key]" {
		t.Errorf("a changed push is %+v", p)
	}
	p = s.setPush(fmt.Sprintf(`{"secret":"whsec_%s whsec_%[1]s"}`, strings.Repeat("A", 32)), http.StatusOK)
	if p.Secrets != 2 || p.Secret != "" || len(p.Headers) != 2 {
		t.Errorf("with two secrets it is %+v", p)
	}
	if body := s.get(pushPath).body; strings.Contains(body, "hidden") || strings.Contains(body, "whsec_") {
		t.Errorf("secrets are shown: %s", body)
	}
	s.setPush(`{"headers":{}}`, http.StatusOK)
	if p := s.push(); len(p.Headers) != 0 {
		t.Errorf("headers that were taken away are %v", p.Headers)
	}
	applied := s.broker.Status().Applied
	s.setPush(`{}`, http.StatusOK)
	if now := s.broker.Status().Applied; now != applied {
		t.Errorf("a change of nothing made %d commits", now-applied)
	}
	s.do("DELETE", pushPath, nil).want(t, http.StatusNoContent)
	s.get(pushPath).wantProblem(t, http.StatusNotFound, seb.CodePushNotFound)
}

func TestPushRefusals(t *testing.T) {
	s := newServerWithQueue(t, 1, "")
	for _, c := range []struct{ body, detail string }{
		{`{}`, "url"},
		{`{"url":"ftp://example.com"}`, "url"},
		{`{"url":"https://u:p@example.com/"}`, "url"},
		{`{"url":"http://127.0.0.1:1/"}`, "not public"},
		{`{"url":"http://[::1]/"}`, "not public"},
		{`{"url":"http://169.254.169.254/latest"}`, "not public"},
		{`{"url":7}`, "string"},
		{`{"url":"https://example.com/","to":"x"}`, "to"},
		{`{"url":"https://example.com/","secret":"abc"}`, "secret"},
		{`{"url":"https://example.com/","secret":""}`, "secret"},
		{`{"url":"https://example.com/","headers":{"Host":"x"}}`, "Host"},
		{`{"url":"https://example.com/","headers":{"Webhook-Id":"x"}}`, "Webhook-Id"},
		{`{"url":"https://example.com/","headers":{"A":null}}`, "A of headers"},
		{`{"url":"https://example.com/","headers":["A"]}`, "headers"},
		{`{"url":"https://example.com/","headers":{"A":"1","A":"2"}}`, "twice"},
		{`{"url":"https://example.com/","headers":{"A":"` + strings.Repeat("x", 9000) + `"}}`, "headers"},
		{`{"url":"https://example.com/","max_in_flight":0}`, "max_in_flight"},
		{`{"url":"https://example.com/","max_in_flight":1025}`, "max_in_flight must be an integer from 1 to 1024"},
		{`{"url":"https://example.com/","timeout":"0s"}`, "timeout"},
		{`{"url":"https://example.com/","timeout":"6m"}`, "timeout"},
		{`{"url":"https://example.com/","timeout":"1"}`, "timeout"},
	} {
		a := s.do("PUT", pushPath, strings.NewReader(c.body))
		if a.StatusCode < 300 {
			t.Fatalf("%.80s was taken: %s", c.body, a.body)
		}
		p := a.wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
		if !strings.Contains(p.Detail, c.detail) || p.Hint == "" {
			t.Errorf("%.80s: %q, hint %q, want %q", c.body, p.Detail, p.Hint, c.detail)
		}
		if strings.Contains(p.Detail+p.Hint, "u:p") {
			t.Errorf("a password is shown: %q", p.Detail)
		}
	}
	s.get(pushPath).wantProblem(t, http.StatusNotFound, seb.CodePushNotFound)
}

func TestStoppedPushIsShownAndResumed(t *testing.T) {
	s := newServer(t, seb.Options{PushNetworks: loopback}, Options{})
	s.append("orders", "x")
	s.setQueue("mail", "", http.StatusCreated)
	s.stopPush(newGone(t))
	if p := s.push(); !strings.Contains(*p.Stopped, "410 Gone") {
		t.Errorf("it stopped because of %s", *p.Stopped)
	}
	var p pushJSON
	a := s.post(pushPath+"/resume", "")
	a.want(t, http.StatusOK)
	a.json(t, &p)
	if p.Stopped != nil || s.push().Stopped != nil {
		t.Errorf("resumed it is %+v", p)
	}
}
