package httpapi

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// kafkaHello is the ApiVersions request with which Kafka clients begin.
const kafkaHello = "\x00\x00\x00\x23\x00\x12\x00\x03\x00\x00\x00\x01\x00\x07rdkafka\x00\x0blibrdkafka\x062.3.0\x00"

// live asks the server at url whether it is alive.
func live(t *testing.T, ts *httptest.Server, url string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/livez", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := ts.Client().Do(req)
	if err != nil {
		return err
	}
	return a.Body.Close()
}

// The log names clients that speak another protocol, and what to do, but not each of them.
func TestClientsOfOtherProtocolsAreNamed(t *testing.T) {
	var log logLines
	h := New(openBroker(t, objstore.NewMemory(), seb.Options{}), Options{Logger: log.logger()})
	ts := httptest.NewUnstartedServer(nil)
	ts.Config = NewServer(h, log.logger())
	ts.Listener = LimitConnections(ts.Config, ts.Listener, 10)
	ts.Start()
	address := ts.Listener.Addr().String()
	for range 3 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(kafkaHello)); err != nil {
			t.Fatal(err)
		}
		// The connection ends at once, rather than after the time for the headers of a request. Clients with TLS
		// know by the answer what is wrong.
		if a, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(a), "HTTP/1.1 400 ") {
			t.Fatalf("the server answers %q, %v", a, err)
		}
		_ = conn.Close()
		if err := live(t, ts, "https://"+address); !errors.Is(err, http.ErrSchemeMismatch) {
			t.Fatalf("with TLS: %v", err)
		}
	}
	if err := live(t, ts, ts.URL); err != nil {
		t.Fatal(err)
	}
	ts.Close()
	for _, want := range []string{"a client speaks Kafka to a port that serves HTTP", "a client speaks TLS to a port that serves HTTP"} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("the log does not say once %q:\n%s", want, log.String())
		}
	}
	if !strings.Contains(log.String(), "--tls-cert") || !strings.Contains(log.String(), `"remote":"127.0.0.1:`) || strings.Count(log.String(), `"WARN"`) != 2 {
		t.Errorf("the log is\n%s", log.String())
	}
}

func TestTLSIsNoStrangerToAServerWithTLS(t *testing.T) {
	var log logLines
	h := New(openBroker(t, objstore.NewMemory(), seb.Options{}), Options{Logger: log.logger()})
	ts := httptest.NewUnstartedServer(nil)
	ts.Config = NewServer(h, log.logger())
	ts.Listener = LimitConnections(ts.Config, ts.Listener, 10)
	ts.StartTLS()
	if err := live(t, ts, ts.URL); err != nil {
		t.Fatal(err)
	}
	ts.Close()
	if strings.Contains(log.String(), "a client speaks") {
		t.Errorf("the log is\n%s", log.String())
	}
}
