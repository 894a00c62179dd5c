package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

func TestDurationsHaveDaysAndWeeks(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"30d": 30 * day, "2w": 14 * day, "1d12h": 36 * time.Hour, "1w2d3h4m5s6ms": 9*day + 3*time.Hour + 4*time.Minute + 5006*time.Millisecond,
		"1.5d": 36 * time.Hour, "0.1d": 144 * time.Minute, ".5w": 84 * time.Hour, "-1d": -day, "106751d": 106751 * day,
		"90m": 90 * time.Minute, "1h30m": 90 * time.Minute, "0": 0, "0d": 0, "-10s": -10 * time.Second, "1us": time.Microsecond,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q is %v, not %v: %v", text, got, want, err)
		}
	}
	for _, text := range []string{"", "d", "1", "1D", "1y", "1 d", "1d2", "1e2d", "106752d", "99999999999999999999w", "15251w", "0x1d", "1md"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// A request may have days in each field, parameter and header that has a duration.
func TestRequestsTakeDurationsInDays(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	a := s.do("PUT", "/v1/topics/orders", strings.NewReader(`{"config":{"retention":"4w2d"}}`))
	a.want(t, http.StatusCreated)
	if !strings.Contains(a.body, `"retention":"720h0m0s"`) {
		t.Errorf("the topic is %s", a.body)
	}
	s.setQueue("mail", `{"lease":"0.5d","backoff":"0.1d..1d"}`, http.StatusCreated)
	if a := s.get("/v1/topics/orders/queues/mail"); !strings.Contains(a.body, `"lease":"12h0m0s"`) || !strings.Contains(a.body, `"backoff":"2h24m0s..24h0m0s"`) {
		t.Errorf("the queue is %s", a.body)
	}
	s.append("orders", "later", delayHeader, "30d")
	s.do("POST", "/v1/topics/orders/queues/mail/receive", strings.NewReader(`{"wait":"0d","lease":"0.1d"}`)).want(t, http.StatusOK)
	s.get(ordersPath+"?offset=latest&wait=0d").want(t, http.StatusOK)
	a = s.do("POST", "/v1/topics/orders/queues/mail/receive", strings.NewReader(`{"lease":"1d"}`))
	a.wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
}
