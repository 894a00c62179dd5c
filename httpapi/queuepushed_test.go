package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/simple-event-broker/seb"
)

// pushed is a request that a target has received.
type pushed struct {
	http.Header
	body string
}

// newTarget starts a server that receives pushed records.
func newTarget(t *testing.T, answer http.HandlerFunc) (url string, came chan pushed) {
	t.Helper()
	came = make(chan pushed, 100)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		came <- pushed{r.Header, string(body)}
		answer(w, r)
	}))
	t.Cleanup(target.Close)
	return target.URL, came
}

// newPushing returns a server whose broker may push to this machine, with queue mail.
func newPushing(t *testing.T, queue string) *server {
	t.Helper()
	s := newServer(t, seb.Options{PushNetworks: loopback}, Options{})
	s.createOrders(1)
	s.setQueue("mail", queue, http.StatusCreated)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error)
	go func() { ended <- s.broker.DeliverPushed(ctx, seb.PushOptions{Grace: time.Second}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// untilCounts waits until queue mail has so many unfinished records, and so many dead letters.
func (s *server) untilCounts(left, dead int64) {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		q := s.describeQueue("mail")
		if q.Leased != nil && q.Ready+*q.Leased+*q.Held+q.Delayed == left && q.Dead == dead {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("the queue is %+v, want %d left and %d dead", q, left, dead)
		}
	}
}

func (s *server) wantPushed(came chan pushed) pushed {
	s.t.Helper()
	select {
	case p := <-came:
		return p
	case <-time.After(20 * time.Second):
		s.t.Fatal("nothing came")
		return pushed{}
	}
}

func TestPushedRecordComesSignedAndIsDoneOnceItWasTaken(t *testing.T) {
	s := newPushing(t, "")
	url, came := newTarget(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	push := s.setPush(fmt.Sprintf(`{"url":"%s/hook","headers":{"Authorization":"Bearer x"},"max_in_flight":1}`, url), http.StatusCreated)
	verifier, err := webhooks.NewWebhook(push.Secret)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, body := range []string{`{"order":1}`, "\xff", ""} {
		s.append("orders", body, "Content-Type", "application/json", "Seb-Key", "k", "Seb-Header-App", "shop")
		p := s.wantPushed(came)
		if err := verifier.Verify([]byte(p.body), p.Header); err != nil || p.body != body {
			t.Errorf("%q came: %v", p.body, err)
		}
		for name, want := range map[string]string{
			"Authorization": "Bearer x", "Seb-Topic": "orders", "Seb-Queue": "mail", "Seb-Partition": "0", "Seb-Offset": fmt.Sprint(i),
			"Seb-Attempt": "1", "Seb-Key": "k", "Seb-Header-App": "shop", "Content-Type": "application/json",
		} {
			if got := p.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		seen[p.Get("Webhook-Id")] = true
	}
	if len(seen) != 3 {
		t.Errorf("the ids are %v", seen)
	}
	s.untilCounts(0, 0)
	if len(came) > 0 {
		t.Error("a record came twice")
	}
}

// A target that fails is tried as often as the queue's attempts allow. Redirects are not followed.
func TestPushedDeadLetterHasTheTargetsLastAnswer(t *testing.T) {
	elsewhere, strayed := newTarget(t, func(http.ResponseWriter, *http.Request) {})
	s := newPushing(t, `{"max_attempts":2,"backoff":"0s"}`)
	url, came := newTarget(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Seb-Attempt") == "1" {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
	})
	s.setPush(fmt.Sprintf(`{"url":%q}`, url), http.StatusCreated)
	s.append("orders", "x")
	first, second := s.wantPushed(came), s.wantPushed(came)
	if first.Get("Webhook-Id") != second.Get("Webhook-Id") || first.Get("Seb-Attempt")+second.Get("Seb-Attempt") != "12" {
		t.Errorf("came %v, then %v", first.Header, second.Header)
	}
	s.untilCounts(0, 1)
	var dead struct{ Messages []struct{ Reason string } }
	s.get(mailPath+"/dead").json(t, &dead)
	if len(dead.Messages) != 1 || !strings.Contains(dead.Messages[0].Reason, "307 Temporary Redirect, which is not followed") {
		t.Errorf("parked are %+v", dead)
	}
	if len(strayed) > 0 {
		t.Error("the redirect was followed")
	}
}

// While a target's Retry-After lasts, nothing is sent to it.
func TestPushSlowsDownAsTheTargetAsks(t *testing.T) {
	s := newPushing(t, `{"backoff":"0s"}`)
	url, came := newTarget(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Seb-Attempt") == "1" && r.Header.Get("Seb-Offset") == "0" {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	s.setPush(fmt.Sprintf(`{"url":%q}`, url), http.StatusCreated)
	s.append("orders", "x")
	s.wantPushed(came)
	began := time.Now()
	s.append("orders", "y")
	s.wantPushed(came)
	s.wantPushed(came)
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("it was asked again after %v", took)
	}
	s.untilCounts(0, 0)
}

// A push that does not deliver says so in GET .../push and in the metrics, while it fails and once it has stopped.
func TestPushThatDoesNotDeliverIsSeen(t *testing.T) {
	s := newPushing(t, `{"backoff":"0s"}`)
	status := make(chan int)
	url, came := newTarget(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(<-status) })
	s.setPush(fmt.Sprintf(`{"url":%q,"max_in_flight":1}`, url), http.StatusCreated)
	s.append("orders", "x")
	for _, step := range []struct {
		answer  int
		failing string
		stopped float64
	}{
		{http.StatusInternalServerError, "HTTP 500", 0}, {http.StatusForbidden, "HTTP 403", 0}, {http.StatusOK, "", 0}, {http.StatusGone, "", 1},
	} {
		if step.answer == http.StatusGone {
			s.append("orders", "y")
		}
		began := s.wantPushed(came)
		status <- step.answer
		for end := time.Now().Add(20 * time.Second); ; {
			p := s.push()
			failing, since := s.metricOfMail("seb_push_failing_since_timestamp_seconds")
			stopped, shown := s.metricOfMail("seb_queue_push_stopped")
			if step.failing == "" && p.Failing == nil && p.FailingSince == nil && !since && stopped == step.stopped && shown {
				break
			}
			if step.failing != "" && p.Failing != nil && strings.HasPrefix(*p.Failing, step.failing) && p.FailingSince != nil && failing > 1e9 && stopped == 0 && shown {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("after %d to %v: %+v, failing since %v (%v), stopped %v (%v)", step.answer, began.Header, p, failing, since, stopped, shown)
			}
		}
	}
	s.do("DELETE", pushPath, nil).want(t, http.StatusNoContent)
	if _, shown := s.metricOfMail("seb_queue_push_stopped"); shown {
		t.Error("a queue without a push has the series of pushed queues")
	}
}

// metricOfMail returns the value of a gauge for queue mail; ok is false if the queue has no such series.
func (s *server) metricOfMail(name string) (value float64, ok bool) {
	s.t.Helper()
	for _, f := range s.broker.Metrics() {
		for _, x := range f.Series {
			if f.Name == name && slices.Equal(x.Labels, []string{"orders", "mail"}) {
				return x.Value, true
			}
		}
	}
	return 0, false
}
