package httpapi

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
)

// The server sends no interim response before the caller is authenticated.
func TestNoInterimAnswerBeforeAuthentication(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("orders", "x")
	s.setQueue("mail", "", http.StatusCreated)
	newKey(t, s.broker, "ops", seb.ScopeAdmin)
	_, reader := newKey(t, s.broker, "reader", seb.ScopeRead, "orders")
	for name, c := range map[string]struct {
		header, first string
	}{
		"passed on without a key":       {"Seb-Forwarded: x-1\r\n", "401"},
		"passed on with a wrong key":    {"Seb-Forwarded: x-1\r\nAuthorization: Bearer nonsense\r\n", "401"},
		"passed on with a good key":     {"Seb-Forwarded: x-1\r\nAuthorization: Bearer " + reader + "\r\n", "102"},
		"body announced, without a key": {"Expect: 100-continue\r\n", "401"},
		"body announced, with a key":    {"Expect: 100-continue\r\nAuthorization: Bearer " + reader + "\r\n", "100"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := s.dial("POST " + queuesPath + "/mail/receive HTTP/1.1\r\nHost: x\r\n" + c.header + "Content-Length: 2\r\n\r\n")
			if !strings.Contains(c.header, "Expect") {
				if _, err := io.WriteString(conn, "{}"); err != nil {
					t.Fatal(err)
				}
			}
			got := make([]byte, len("HTTP/1.1 nnn"))
			if _, err := io.ReadFull(conn, got); err != nil {
				t.Fatal(err)
			}
			if status := string(got[len(got)-3:]); status != c.first {
				t.Errorf("the first status is %s, want %s", status, c.first)
			}
		})
	}
}

// No broker forwards a request that needs no key, so such a request gets no interim response.
func TestNoInterimAnswerWhereNoKeyIsNeeded(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	newKey(t, s.broker, "ops", seb.ScopeAdmin)
	for _, path := range []string{"/livez", "/readyz", "/v1/version", "/openapi.yaml"} {
		conn := s.dial("GET " + path + " HTTP/1.1\r\nHost: x\r\nSeb-Forwarded: x-1\r\n\r\n")
		got := make([]byte, len("HTTP/1.1 nnn"))
		if _, err := io.ReadFull(conn, got); err != nil {
			t.Fatal(err)
		}
		if status := string(got[len(got)-3:]); status != "200" && status != "400" {
			t.Errorf("%s: the first status is %s", path, status)
		}
	}
}
