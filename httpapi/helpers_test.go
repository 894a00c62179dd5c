package httpapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/loglines"
	"github.com/simple-event-broker/seb/objstore"
)

// server is a broker, with a store in memory, and its HTTP API.
type server struct {
	t       testing.TB
	broker  *seb.Broker
	handler *Handler
	url     string
	client  *http.Client
	connect func() (net.Conn, error)
	stop    func() // returns when all requests have ended
}

func newServer(t testing.TB, opts seb.Options, apiOpts Options) *server {
	t.Helper()
	return newServerOn(t, objstore.NewMemory(), opts, apiOpts)
}

// newServerOn returns a server whose broker uses the store.
func newServerOn(t testing.TB, store objstore.Store, opts seb.Options, apiOpts Options) *server {
	t.Helper()
	return serve(t, openBroker(t, store, opts), apiOpts)
}

func openBroker(t testing.TB, store objstore.Store, opts seb.Options) *seb.Broker {
	t.Helper()
	if opts.Batching == nil {
		opts.Batching = seb.Immediate()
	}
	if _, test := t.(*testing.T); test && opts.Logger == nil {
		opts.Logger = loglines.Logger(t)
	}
	b, err := seb.Open(t.Context(), store, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close broker: %v", err)
		}
	})
	return b
}

// serve serves b's API on a loopback port.
func serve(t testing.TB, b *seb.Broker, apiOpts Options) *server {
	if _, test := t.(*testing.T); test && apiOpts.Logger == nil {
		apiOpts.Logger = loglines.Logger(t)
	}
	h := New(b, apiOpts)
	ts := httptest.NewUnstartedServer(nil)
	ts.Config = NewServer(h, nil)
	ts.Listener = h.LimitHeaders(ts.Config, ts.Listener)
	ts.Start()
	t.Cleanup(ts.Close)
	return &server{
		t: t, broker: b, handler: h, url: ts.URL, client: ts.Client(), stop: ts.Close,
		connect: func() (net.Conn, error) {
			return new(net.Dialer).DialContext(t.Context(), "tcp", ts.Listener.Addr().String())
		},
	}
}

// bubble runs f in a synctest bubble, with a server whose connections are pipes: time is
// fake, and synctest.Wait returns when all requests wait.
func bubble(t *testing.T, opts seb.Options, f func(t *testing.T, s *server)) {
	t.Helper()
	bubbleOf(t, opts, 0, f)
}

// bubbleOf is bubble with a server that accepts so many connections at a time; 0 means no limit.
func bubbleOf(t *testing.T, opts seb.Options, connections int, f func(t *testing.T, s *server)) {
	t.Helper()
	bubbleOn(t, objstore.NewMemory(), opts, Options{}, connections, f)
}

// bubbleOn is bubbleOf with the test's own store and options.
func bubbleOn(t *testing.T, store objstore.Store, opts seb.Options, apiOpts Options, connections int, f func(t *testing.T, s *server)) {
	t.Helper()
	bubbleAround(t, func(t *testing.T) *server { return newServerOn(t, store, opts, apiOpts) }, connections, f)
}

// bubbleAround is bubbleOf with the server that open returns; it calls open within the bubble.
func bubbleAround(t *testing.T, open func(t *testing.T) *server, connections int, f func(t *testing.T, s *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		l := newPipeListener()
		srv := NewServer(s.handler, nil)
		limited := s.handler.LimitHeaders(srv, LimitConnections(srv, l, connections))
		served := make(chan struct{})
		go func() {
			defer close(served)
			if err := srv.Serve(limited); !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("serve: %v", err)
			}
		}()
		transport := &http.Transport{
			DialContext:     func(context.Context, string, string) (net.Conn, error) { return l.dial() },
			IdleConnTimeout: idleTimeout - time.Millisecond, // else a request could come just when the server closes the connection
		}
		t.Cleanup(func() {
			transport.CloseIdleConnections()
			if err := errors.Join(srv.Close(), s.handler.Close()); err != nil {
				t.Errorf("close server: %v", err)
			}
			<-served
		})
		s.stop() // stops the server on a port: bubbles can't wait for sockets
		s.url, s.client, s.connect = "http://pipe", &http.Client{Transport: transport}, l.dial
		s.stop = func() {
			if err := errors.Join(srv.Shutdown(context.Background()), s.handler.Shutdown(context.Background())); err != nil {
				t.Errorf("shut down server: %v", err)
			}
		}
		f(t, s)
	})
}

// pipeListener accepts connections that dial makes: each is a pipe.
type pipeListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// answer is a response whose body has been read.
type answer struct {
	*http.Response
	body string
}

// do sends a request; header holds names and values in turn.
func (s *server) do(method, path string, body io.Reader, header ...string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, s.url+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header[http.CanonicalHeaderKey(header[i])] = append(req.Header[http.CanonicalHeaderKey(header[i])], header[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s %s: read answer: %v", method, path, err)
	}
	if resp.Header.Get(requestIDHeader) == "" {
		s.t.Errorf("%s %s: the answer has no %s", method, path, requestIDHeader)
	}
	if resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		s.t.Errorf("%s %s: a browser may take the answer for another type: %v", method, path, resp.Header)
	}
	a := answer{resp, string(b)}
	s.wantDescribed(a)
	return a
}

func (s *server) get(path string, header ...string) answer {
	s.t.Helper()
	return s.do("GET", path, nil, header...)
}

func (s *server) post(path, body string, header ...string) answer {
	s.t.Helper()
	return s.do("POST", path, strings.NewReader(body), header...)
}

// append appends to a topic, which must succeed.
func (s *server) append(topic, body string, header ...string) answer {
	s.t.Helper()
	a := s.post("/v1/topics/"+topic+"/records", body, header...)
	a.want(s.t, http.StatusCreated)
	return a
}

func (a answer) want(t testing.TB, status int) {
	t.Helper()
	if a.StatusCode != status {
		t.Fatalf("%s %s: status %d, want %d: %s", a.Request.Method, a.Request.URL, a.StatusCode, status, a.body)
	}
}

func (a answer) wantHeader(t testing.TB, name, want string) {
	t.Helper()
	if got := a.Header.Get(name); got != want {
		t.Errorf("%s %s: header %s is %q, want %q", a.Request.Method, a.Request.URL, name, got, want)
	}
}

// wireProblem is an error as a client sees it.
type wireProblem struct {
	Part                                     string
	Type, Title, Detail, Code, Hint, Outcome string
	Status                                   int
	Limit                                    int64
	StartOffset                              *int64 `json:"start_offset"`
	EndOffset                                *int64 `json:"end_offset"`
}

// wantProblem checks an error's status and code, and all properties that every error must have.
func (a answer) wantProblem(t testing.TB, status int, code seb.Code) wireProblem {
	t.Helper()
	a.want(t, status)
	a.wantHeader(t, "Content-Type", "application/problem+json")
	var p wireProblem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("the problem is no JSON: %v: %s", err, a.body)
	}
	if p.Status != status || p.Code != string(code) || p.Type != "about:blank" || p.Title != http.StatusText(status) || p.Detail == "" {
		t.Errorf("%s %s: problem is %s, want status %d and code %s", a.Request.Method, a.Request.URL, a.body, status, code)
	}
	if retry := a.Header.Get("Retry-After") != ""; retry != (status == 429 || status == 503) {
		t.Errorf("%s %s: status %d with Retry-After %q", a.Request.Method, a.Request.URL, status, a.Header.Get("Retry-After"))
	}
	return p
}

func (a answer) json(t testing.TB, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		t.Fatalf("%s %s: %v: %s", a.Request.Method, a.Request.URL, err, a.body)
	}
}

// batchBody returns values in the compact form.
func batchBody(values ...string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(values)))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
	}
	return append(b, strings.Join(values, "")...)
}

// parseBatchBody is the inverse of batchBody.
func parseBatchBody(t testing.TB, body string) []string {
	t.Helper()
	b := []byte(body)
	count := binary.LittleEndian.Uint32(b)
	values := b[4+4*count:]
	out := make([]string, count)
	for i := range out {
		size := binary.LittleEndian.Uint32(b[4+4*i:])
		out[i], values = string(values[:size]), values[size:]
	}
	if len(values) != 0 {
		t.Fatalf("%d bytes after the last value", len(values))
	}
	return out
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstandard(t testing.TB, b []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	out := z.EncodeAll(b, nil)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}
