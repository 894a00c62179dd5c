package push

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func TestDeliverySaysWhatTheRecordIs(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/1.1 over TLS", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) {
			q, to := newQueue(), serve(t, version, answerStatus(http.StatusNoContent))
			run(t, to.pusher(t, q, func(tg *Target, _ *Options) {
				tg.MaxInFlight = 1 // so that messages come in order
				tg.Headers = map[string]string{"authorization": "Bearer x", "Content-Type": "text/plain"}
			}))
			q.addMessage(Message{Attempt: 3, Partition: 2, Value: []byte(`{"a":1}`), Key: []byte("k 1"), Headers: []Header{
				{"Content-Type", []byte("application/json")}, {"source", []byte("shop")}, {"source", []byte("web")}, {"b d", nil},
			}})
			q.addMessage(Message{Attempt: 1, Key: []byte{0xff}})

			r := to.next(t)
			if r.Method != http.MethodPost || r.URL.Path != "/hook" || r.Proto != strings.TrimSuffix(version, " over TLS") || r.body != `{"a":1}` {
				t.Errorf("%s %s %s %q", r.Method, r.URL, r.Proto, r.body)
			}
			for name, want := range map[string][]string{
				"Content-Type": {"application/json"}, "User-Agent": {"seb"}, "Authorization": {"Bearer x"},
				"Seb-Key": {"k 1"}, "Seb-Timestamp": {"2023-11-14T22:13:20.250Z"}, "Seb-Header-Source": {"shop", "web"},
				"Seb-Header-Content-Type": {"application/json"}, "Seb-Omitted-Headers": {"1"},
				"Seb-Topic": {"orders"}, "Seb-Topic-Id": {"1f0c6a3e.7"}, "Seb-Queue": {"mail"},
				"Seb-Partition": {"2"}, "Seb-Offset": {"0"}, "Seb-Attempt": {"3"}, "Webhook-Id": {"1f0c6a3e-7-2-0"},
				"Accept-Encoding": nil, "Content-Length": {"7"},
			} {
				if got := r.Header.Values(name); !slices.Equal(got, want) {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			r = to.next(t)
			if r.body != "" || r.ContentLength != 0 || r.Header.Get("Content-Type") != "text/plain" || r.Header.Get("Seb-Key-Base64") != "/w==" {
				t.Errorf("the second message came as %v %q", r.Header, r.body)
			}
			for range 2 {
				if o := q.next(t); !o.acked {
					t.Errorf("the queue was told %+v", o)
				}
			}
		})
	}
}

func TestDeliveryWithoutContentTypeIsBytes(t *testing.T) {
	q, to := newQueue(), serve(t, "HTTP/1.1", answerStatus(http.StatusOK))
	run(t, to.pusher(t, q, nil))
	q.add("v")
	if r := to.next(t); r.Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("came with %q", r.Header)
	}
}

// Receivers check signatures with the library of the standard's authors.
func TestDeliveryIsSignedWithEachSecret(t *testing.T) {
	old, renewed := NewSecret(), NewSecret()
	q, to := newQueue(), serve(t, "HTTP/1.1", answerStatus(http.StatusOK))
	run(t, to.pusher(t, q, func(tg *Target, _ *Options) { tg.Secret = renewed + " " + old }))
	values := []string{`{"type":"order.paid"}`, "", "\x00\xff.1.", strings.Repeat("x", 1<<20)}
	q.add(values...)
	for range values {
		r := to.next(t)
		for _, secret := range []string{old, renewed} {
			if err := verifier(t, secret).Verify([]byte(r.body), r.Header); err != nil {
				t.Errorf("%.20q: %v", r.body, err)
			}
		}
		if err := verifier(t, NewSecret()).Verify([]byte(r.body), r.Header); err == nil {
			t.Error("another secret verifies too")
		}
		if err := verifier(t, old).Verify([]byte(r.body+"x"), r.Header); err == nil {
			t.Error("another body verifies too")
		}
	}
}

func verifier(t *testing.T, secret string) *webhooks.Webhook {
	t.Helper()
	v, err := webhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A retry has the id of the first attempt, but its own time and signature.
func TestRetryKeepsItsID(t *testing.T) {
	c, err := newClient(Target{URL: "http://localhost/", Secret: testSecret}, Options{Topic: "t", TopicID: "1f0c6a3e.7", Queue: "q"})
	if err != nil {
		t.Fatal(err)
	}
	request := func(m Message, at int64) http.Header {
		r, err := c.request(t.Context(), &m, time.Unix(at, 0))
		if err != nil {
			t.Fatal(err)
		}
		if err := verifier(t, testSecret).VerifyIgnoringTimestamp(m.Value, r.Header); err != nil {
			t.Error(err)
		}
		return r.Header
	}
	first, second := request(Message{Offset: 12, Attempt: 1}, 1_700_000_000), request(Message{Offset: 12, Attempt: 2}, 1_700_000_060)
	if first.Get("webhook-id") != second.Get("webhook-id") || second.Get("webhook-timestamp") != "1700000060" ||
		first.Get("webhook-signature") == second.Get("webhook-signature") {
		t.Errorf("first %v, then %v", first, second)
	}
	others := map[string]bool{first.Get("webhook-id"): true}
	for _, m := range []Message{{Offset: 2, Partition: 1}, {Offset: 1, Partition: 2}, {Offset: 12, Partition: 12}} {
		id := request(m, 1_700_000_000).Get("webhook-id")
		if others[id] || strings.Contains(id, ".") {
			t.Errorf("id %q", id)
		}
		others[id] = true
	}
}
