package remote_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/internal/test/kit"
)

// If TLS does not fit, nothing is done, no retry helps, and the error says what to change.
func TestTLSThatDoesNotFitIsAnErrorOfTheSetup(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	trust := secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	certs := secure.TLS.Certificates
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	at := func(l net.Listener) string { return l.Addr().String() }
	demanding := talk(t, &tls.Config{Certificates: certs, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12})
	for _, test := range []struct {
		name, url string
		tls       *tls.Config
		hint      string
	}{
		{"http to https", "http://" + strings.TrimPrefix(secure.URL, "https://"), nil, "write https://"},
		{"http to TLS that is no Go server's", "http://" + at(talk(t, &tls.Config{Certificates: certs, MinVersion: tls.VersionTLS12})), nil, "write https://"},
		{"https to http", "https://" + strings.TrimPrefix(plain.URL, "http://"), nil, "write http://"},
		{"https to something else", "https://" + at(talk(t, nil)), nil, "write http://"},
		{"unknown authority", secure.URL, nil, "name the authority"},
		{"another name", secure.URL, &tls.Config{RootCAs: trust, ServerName: "elsewhere"}, "write a name that the certificate has"},
		{"no client certificate", "https://" + at(demanding), &tls.Config{RootCAs: trust, ServerName: "example.com"}, "give the client a certificate"},
	} {
		c := newClient(t, client.Options{Servers: []string{test.url}, TLS: test.tls, RetryFor: -1})
		_, err := c.Append(t.Context(), "orders", kit.Values("v"))
		setup, ok := errors.AsType[client.SetupError](err)
		e, isSeb := errors.AsType[*seb.Error](err)
		if !ok || setup.Err == nil || !isSeb || e.Code != client.CodeUnreachable || e.Outcome != seb.NotCommitted || e.RetryAfter != 0 || !strings.Contains(e.Hint, test.hint) {
			t.Errorf("%s: %v", test.name, err)
		}
		if errors.As(err, new(x509.HostnameError)) && strings.Contains(e.Hint, "authority") {
			t.Errorf("%s: the hint is %q", test.name, e.Hint)
		}
	}
	c := newClient(t, client.Options{Servers: []string{closedURL(t)}, RetryFor: -1})
	if err := c.Ready(t.Context()); err == nil || errors.As(err, new(client.SetupError)) {
		t.Errorf("nobody answers: %v", err)
	}
}

// talk listens on a port. A server there speaks TLS, or, without config, says hello at once, and closes connections after
// that.
func talk(t *testing.T, config *tls.Config) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if config == nil {
				_, _ = io.WriteString(conn, "220 hello\r\n")
				_, _ = io.Copy(io.Discard, conn)
			} else if err := tls.Server(conn, config).HandshakeContext(t.Context()); errors.As(err, new(tls.RecordHeaderError)) {
				_, _ = io.WriteString(conn, "\x15\x03\x01\x00\x02\x02\x0a") // the alert unexpected_message; Go's servers send none
			}
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	}()
	return l
}
