package push

import (
	"bufio"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"
)

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMDEyMzQ1Njc="

// loopback lets a pusher reach the servers of tests.
var loopback = Networks{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("::1/128")}}

// received is a request that the target received, and its body.
type received struct {
	*http.Request
	body string
}

// target is a server that messages are pushed to.
type target struct {
	url  string
	came chan received
	ca   *x509.CertPool // nil for plain HTTP
}

// serve starts a server that answers over HTTP/1.1 or, with TLS, over HTTP/2.
func serve(t *testing.T, version string, answer http.HandlerFunc) *target {
	t.Helper()
	to := &target{came: make(chan received, 4096)}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		to.came <- received{r, string(body)}
		answer(w, r)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0) // connections end at any time here
	switch version {
	case "HTTP/1.1":
		server.Start()
	case "HTTP/2.0":
		server.EnableHTTP2 = true
		fallthrough
	case "HTTP/1.1 over TLS":
		server.StartTLS()
		to.ca = x509.NewCertPool()
		to.ca.AddCert(server.Certificate())
	default:
		t.Fatalf("no version %q", version)
	}
	t.Cleanup(server.Close)
	to.url = server.URL + "/hook"
	return to
}

// raw starts a server that calls each with every connection.
func raw(t *testing.T, each func(net.Conn)) *target {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close() //nolint:errcheck // the other end may have closed the connection
				each(c)
			}()
		}
	}()
	return &target{url: "http://" + l.Addr().String() + "/hook"}
}

// afterRequest reads a request, and then writes text as the answer.
func afterRequest(text string) func(net.Conn) {
	return func(c net.Conn) {
		if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(c, text)
		}
	}
}

// next waits for a request.
func (to *target) next(t *testing.T) received {
	t.Helper()
	select {
	case r := <-to.came:
		return r
	case <-time.After(20 * time.Second):
		t.Fatal("no request came")
		return received{}
	}
}

// pusher returns a pusher from q to the target, with the settings that change makes.
func (to *target) pusher(t *testing.T, q Queue, change func(*Target, *Options)) *Pusher {
	t.Helper()
	tg := Target{URL: to.url, Secret: testSecret}
	o := Options{Topic: "orders", TopicID: "1f0c6a3e.7", Queue: "mail", Networks: loopback, RootCAs: to.ca}
	if change != nil {
		change(&tg, &o)
	}
	p, err := New(tg, q, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func answerStatus(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}
