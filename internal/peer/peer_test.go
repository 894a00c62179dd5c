package peer

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func newIdentity(t *testing.T) (*Identity, Key) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i, err := NewIdentity(private)
	if err != nil {
		t.Fatal(err)
	}
	return i, Key(public)
}

// accepting starts a server for session i and returns its address. It answers each line with the key of the session
// that asks.
func accepting(t *testing.T, i *Identity) string {
	t.Helper()
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != Path || !Asks(r) {
			http.NotFound(w, r)
			return
		}
		conn, err := i.Accept(r.Context(), w)
		if err != nil {
			return // the other side reports the error
		}
		defer func() { _ = conn.Close() }()
		asks := conn.Session()
		_, _ = conn.Write(asks[:])
	}))
	t.Cleanup(ts.Close)
	return ts.Listener.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestBothSidesKnowEachOther(t *testing.T) {
	one, oneKey := newIdentity(t)
	two, twoKey := newIdentity(t)
	address := accepting(t, two)
	conn, err := one.Ask(t.Context(), dial(t, address), address, twoKey.Is)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || Key(got) != oneKey {
		t.Errorf("it was asked by %x, not %x: %v", got, oneKey, err)
	}
	if _, err := one.Ask(t.Context(), dial(t, address), address, oneKey.Is); !errors.Is(err, ErrOtherSession) {
		t.Errorf("another session than was asked for: %v", err)
	}
}

func TestWhatIsNoSessionIsRefused(t *testing.T) {
	i, key := newIdentity(t)
	address := accepting(t, i)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := NewIdentity(other)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ec.Ask(t.Context(), dial(t, address), address, key.Is)
	if err == nil { // the client's handshake ends before the server refuses the client
		_, err = io.ReadAll(conn)
	}
	if err == nil {
		t.Error("a key of another kind is taken for a session's")
	}
	if _, err := i.Ask(t.Context(), dial(t, accepting(t, ec)), address, key.Is); err == nil {
		t.Error("a key of another kind answers as a session")
	}
	if _, err := keyOf(tls.ConnectionState{}); err == nil {
		t.Error("no certificate is a session's")
	}
}

// If another server answers, Ask returns an error soon.
func TestAnswersOfOthersAreErrors(t *testing.T) {
	i, key := newIdentity(t)
	for name, answer := range map[string]string{
		"nothing":         "",
		"no HTTP":         "220 mail.example.com ESMTP\r\n",
		"no upgrade":      "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"another upgrade": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"no TLS":          "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: seb-peer/1\r\n\r\n",
		"a long header":   "HTTP/1.1 101 Switching Protocols\r\nX: " + strings.Repeat("x", 2*answerBytesMax),
	} {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			served := make(chan struct{})
			go func() {
				defer close(served)
				defer func() { _ = server.Close() }()
				buf := make([]byte, 4096)
				if _, err := server.Read(buf); err != nil {
					t.Error(err)
				}
				_, _ = io.WriteString(server, answer) // the other side may have stopped reading
				if name == "no TLS" {
					_, _ = server.Read(buf)
					_, _ = io.WriteString(server, "HTTP/1.1 400 Bad Request\r\n\r\n")
				}
			}()
			if conn, err := i.Ask(t.Context(), client, "broker", key.Is); err == nil {
				t.Errorf("it is %v", conn)
			}
			<-served
			if _, err := client.Write([]byte("x")); err == nil {
				t.Error("the connection is still open")
			}
		})
	}
}

func TestAskingEndsWithItsContext(t *testing.T) {
	i, key := newIdentity(t)
	client, server := net.Pipe()
	defer func() { _ = server.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		buf := make([]byte, 4096)
		if _, err := server.Read(buf); err != nil {
			t.Error(err)
		}
		cancel() // Ask has sent its request, and waits for the answer
	}()
	if _, err := i.Ask(ctx, client, "broker", key.Is); err == nil {
		t.Error("there was an answer")
	}
}

// Without a limit, a stranger could make a broker hold a certificate of 256 KiB for each connection.
func TestLargeCertificatesAreRefused(t *testing.T) {
	i, key := newIdentity(t)
	for _, size := range []int{2 << 10, 200_000} {
		large, largeKey := newIdentity(t)
		signer := large.certificate.PrivateKey.(crypto.Signer)
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<32, 0),
			ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3}, Value: make([]byte, size)}},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		large.certificate.Certificate = [][]byte{der}
		address := accepting(t, i)
		conn, err := large.Ask(t.Context(), dial(t, address), address, key.Is)
		if err == nil { // the client's handshake ends before the server refuses the client
			_, err = io.ReadFull(conn, make([]byte, 1))
		}
		if err == nil {
			t.Errorf("a session with a certificate of %d bytes may ask", len(der))
		}
		if _, err := i.Ask(t.Context(), dial(t, accepting(t, large)), address, largeKey.Is); err == nil {
			t.Errorf("a session with a certificate of %d bytes is believed", len(der))
		}
	}
}

// A session of the log may send any number of bytes; a stranger only the header of a request.
func TestStrangersSendLittle(t *testing.T) {
	i, key := newIdentity(t)
	asks, _ := newIdentity(t)
	for name, c := range map[string]struct {
		size  int
		trust bool
		whole bool
	}{"a header": {64 << 10, false, true}, "more": {256 << 10, false, false}, "more of a broker": {256 << 10, true, true}} {
		t.Run(name, func(t *testing.T) {
			read := make(chan error, 1)
			ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conn, err := i.Accept(r.Context(), w)
				if err != nil {
					read <- err
					return
				}
				defer func() { _ = conn.Close() }()
				if c.trust {
					conn.Trust()
				}
				_, err = io.CopyN(io.Discard, conn, int64(c.size))
				read <- err
			}))
			defer ts.Close()
			address := ts.Listener.Addr().String()
			conn, err := asks.Ask(t.Context(), dial(t, address), address, key.Is)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = conn.Write(make([]byte, c.size)) // the other side may have stopped reading
			if err := <-read; (err == nil) != c.whole {
				t.Errorf("reading %d bytes: %v", c.size, err)
			}
		})
	}
}
