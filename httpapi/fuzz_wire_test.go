package httpapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

// wire is a connection whose client has sent everything at once, and has shut down
// its sending side. It ends when the server closes it.
type wire struct {
	net.Conn // nil: the server calls only the methods below
	in       *bytes.Reader
	out      bytes.Buffer
	ended    sync.Once
	done     chan struct{}
}

func (w *wire) Read(p []byte) (int, error)  { return w.in.Read(p) }
func (w *wire) Write(p []byte) (int, error) { return w.out.Write(p) }

func (w *wire) Close() error      { w.ended.Do(func() { close(w.done) }); return nil }
func (w *wire) CloseWrite() error { return w.Close() }

func (w *wire) LocalAddr() net.Addr              { return &net.UnixAddr{Name: "wire", Net: "unix"} }
func (w *wire) RemoteAddr() net.Addr             { return w.LocalAddr() }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// FuzzWire sends any bytes over a connection. The answers must be well-formed, one for each
// request in order, and follow the API's conventions; afterwards no memory may be reserved.
func FuzzWire(f *testing.F) {
	f.Add([]byte(get("/v1/topics") + get("/v1/topics/t/records?offset=-1&wait=1m")))
	f.Add([]byte(request("POST", "/v1/topics/t/records?key=k", string(batchBody("a", "b")), "Content-Type: "+typeBatch)))
	f.Add([]byte(request("POST", "/v1/topics/t/records", `{"records":[{"value":"a"}]}`, "Content-Type: "+typeRecords) + get("/v1/topics/t/records/0")))
	f.Add([]byte("PUT /v1/topics/t HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\ne\r\n{\"partitions\":1\r\n1\r\n}\r\n0\r\nX: y\r\n\r\n"))
	f.Add([]byte("HEAD /v1/topics/t/records/0 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + request("DELETE", "/v1/topics/other", "")))
	f.Add([]byte(request("POST", "/v1/topics/t/consumers/c/commit", `{"offsets":{"0":1}}`) + get("/v1/topics/t/consumers/c/records?wait=1m")))
	s := newServer(f, seb.Options{Memory: 16 << 20, Limits: seb.Limits{Topics: 10, Partitions: 10, Consumers: 10}}, Options{})
	s.append("t", "x")
	f.Fuzz(func(t *testing.T, sent []byte) {
		w := &wire{in: bytes.NewReader(sent), done: make(chan struct{})}
		requests := s.serveWire(t, w)
		answers := 0
		for in := bufio.NewReader(bytes.NewReader(w.out.Bytes())); ; answers++ {
			var r *http.Request // nil: net/http answers bytes that are not a request
			if answers < len(requests) {
				r = requests[answers]
			}
			if !nextAnswer(t, in, r) {
				break
			}
		}
		// A read that waits is cut off when its client seems to have left.
		if answers > len(requests)+1 || answers < len(requests)-1 {
			t.Fatalf("%d answers to %d requests: %q", answers, len(requests), w.out.Bytes())
		}
		release, err := s.broker.Reserve(t.Context(), s.adapterBytes())
		if err != nil {
			t.Fatalf("memory is still reserved: %v", err)
		}
		release()
	})
}

// serveWire serves w to its end, and returns the requests that reached the handler.
func (s *server) serveWire(t *testing.T, w *wire) (requests []*http.Request) {
	srv := NewServer(s.handler, nil)
	srv.DisableGeneralOptionsHandler = true // else the server would answer before the handler
	srv.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		requests = append(requests, r)
		s.handler.ServeHTTP(rw, r)
	})
	l := &pipeListener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conns <- w
	served := make(chan error)
	go func() { served <- srv.Serve(l) }()
	<-w.done
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Fatal(err)
	}
	return requests
}

// nextAnswer checks one answer, to r. It returns false at the end.
func nextAnswer(t *testing.T, in *bufio.Reader, r *http.Request) bool {
	for {
		if _, err := in.Peek(1); errors.Is(err, io.EOF) {
			return false
		}
		resp, err := http.ReadResponse(in, r)
		if err != nil {
			t.Fatalf("the answer is malformed: %v", err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		switch {
		case err != nil:
			t.Fatalf("the answer's body: %v", err)
		case resp.StatusCode == http.StatusContinue:
			continue
		case r == nil && resp.StatusCode >= 400 && resp.Close:
		case r == nil:
			t.Fatalf("status %d to no request", resp.StatusCode)
		case resp.Header.Get(requestIDHeader) == "":
			t.Fatalf("%s %s: no request id", r.Method, r.URL)
		case resp.StatusCode >= 500 && resp.StatusCode != http.StatusNotImplemented && resp.StatusCode != http.StatusServiceUnavailable:
			t.Fatalf("%s %s: status %d: %s", r.Method, r.URL, resp.StatusCode, body)
		case resp.StatusCode >= 400 && slices.Contains(originalPaths, r.URL.Path):
			if got := resp.Header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
				t.Fatalf("%s %s: status %d as %s: %s", r.Method, r.URL, resp.StatusCode, got, body)
			}
		case resp.StatusCode >= 400 && r.Method != http.MethodHead:
			var p wireProblem
			if err := json.Unmarshal(body, &p); err != nil || p.Status != resp.StatusCode || p.Code == "" {
				t.Fatalf("%s %s: status %d, %v: %s", r.Method, r.URL, resp.StatusCode, err, body)
			}
		}
		return true
	}
}
