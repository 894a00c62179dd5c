package httpapi

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/httpconn"
)

// shortLines returns n lines of a header, each with another name.
func shortLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%03x:\r\n", i)
	}
	return b.String()
}

// largeHeader is a header with nearly as many lines and bytes as one may have, without the request line and the
// line that ends it.
var largeHeader = "Host: x\r\n" + shortLines(headerLinesMin) + "Long: " + strings.Repeat("x", headerBytesMax-headerLinesMin*6-1000) + "\r\n"

// Headers of requests take a bounded amount of memory, whether they are complete or not, and other clients are served
// meanwhile.
func TestHeadersTakeBoundedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector takes memory of its own")
	}
	const (
		connections   = 300
		bytesEach     = httpconn.SmallHeaderBytes + 20<<10 // and what a connection takes without a header
		bytesTogether = httpconn.LargeHeadersBytes
	)
	before := heapBytes()
	const read = "GET /v1/topics/quiet/records?offset=latest&wait=1m HTTP/1.1\r\n"
	for name, header := range map[string]string{
		"short lines, never complete": read + "Host: x\r\n" + shortLines(4000),
		"short lines, complete":       read + "Host: x\r\n" + shortLines(4000) + "\r\n",
		"large, never complete":       read + largeHeader,
		"large, complete":             read + largeHeader + "\r\n",
		"pipelined":                   "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" + read + largeHeader,
		"pipelined behind a body":     "POST " + ordersPath + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx" + read + "Host: x\r\n" + shortLines(4000),
		"names of trailers": "POST /v1/topics/quiet/records HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" +
			"Trailer: " + strings.ReplaceAll(shortLines(12000), ":\r\n", ",") + "\r\n\r\n",
		"trailers": "POST /v1/topics/quiet/queues/work/receive HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"d\r\n{\"wait\":\"1m\"}\r\n0\r\n" + shortLines(650) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, seb.Options{}, Options{})
			s.append("quiet", "first")
			s.do(http.MethodPut, "/v1/topics/quiet/queues/work", nil).want(t, http.StatusCreated)
			var conns [connections]net.Conn
			for i := range conns {
				conn, err := s.connect()
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				conns[i] = conn
			}
			var writers sync.WaitGroup
			for _, conn := range conns {
				writers.Go(func() {
					_ = conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
					_, _ = io.WriteString(conn, header) // fails if the server has refused the request
				})
			}
			for range 20 {
				if got := s.do(http.MethodPost, ordersPath, strings.NewReader("x"), "Content-Type", "text/plain"); got.StatusCode/100 != 2 {
					t.Fatalf("another client got %d", got.StatusCode)
				}
			}
			writers.Wait()
			held := heapBytes()
			for range 10 { // what the server needs only for a moment is in some of these figures
				held = min(held, heapBytes())
			}
			took := int64(held) - int64(before)
			t.Logf("%d KiB for %d connections", took>>10, connections)
			if limit := int64(connections*bytesEach + bytesTogether); took > limit {
				t.Errorf("%d connections take %d bytes, more than %d", connections, took, limit)
			}
		})
	}
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC() // frees what pools keep for one more collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// exchange sends a request and returns the status of the answer. It leaves the connection open.
func exchange(t *testing.T, conn net.Conn, request string) (status int, err error) {
	t.Helper()
	go func() { _, _ = io.WriteString(conn, request) }() // fails if the server has refused the request
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
	if resp.StatusCode != http.StatusBadRequest && resp.Header.Get("X-Content-Type-Options") != "nosniff" { // net/http itself answers 400
		t.Errorf("status %d: a browser may take the answer for another type: %v", resp.StatusCode, resp.Header)
	}
	return resp.StatusCode, resp.Body.Close()
}

// A header with too many lines is refused.
func TestHeaderLinesAreLimited(t *testing.T) {
	bubble(t, seb.Options{Limits: seb.Limits{RecordHeaders: 3}}, func(t *testing.T, s *server) {
		for lines, want := range map[int]int{headerLinesMin: http.StatusOK, headerLinesMin + 1: http.StatusRequestHeaderFieldsTooLarge} {
			request := "GET /livez HTTP/1.1\r\nHost: x\r\n" + shortLines(lines) + "\r\n" // three lines more
			if status, err := exchange(t, s.dial(""), request); status != want || err != nil {
				t.Errorf("%d lines got %d, %v; want %d", lines, status, err, want)
			}
		}
	})
}

// Large headers that clients do not complete give way to others after a second.
func TestUnfinishedLargeHeadersGiveWay(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		var waiting sync.WaitGroup
		for range 200 { // about three times as many as there is memory for
			conn := s.dial("")
			waiting.Go(func() {
				_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\n"+largeHeader) // fails if the server closes the connection
				_, _ = io.Copy(io.Discard, conn)
			})
		}
		synctest.Wait()
		start := time.Now()
		if status, err := exchange(t, s.dial(""), "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"); status != http.StatusOK || time.Since(start) != 0 {
			t.Errorf("a small request got %d after %v: %v", status, time.Since(start), err)
		}
		if status, err := exchange(t, s.dial(""), "GET /livez HTTP/1.1\r\n"+largeHeader+"\r\n"); status != http.StatusOK || time.Since(start) > 4*time.Second {
			t.Errorf("a large request got %d after %v: %v", status, time.Since(start), err)
		}
		waiting.Wait()
	})
}

// While requests with large headers hold all the memory, further ones are refused, and small ones are not. Once the
// requests are answered, the memory is free.
func TestCompleteLargeHeadersKeepTheirMemory(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "first")
		var held sync.WaitGroup
		status := map[int]int{}
		var mu sync.Mutex
		for range 200 {
			conn := s.dial("")
			held.Go(func() {
				got, err := exchange(t, conn, "GET "+ordersPath+"?offset=latest&wait=20s HTTP/1.1\r\n"+largeHeader+"\r\n")
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				status[got]++
			})
		}
		synctest.Wait()
		start := time.Now()
		if got, err := exchange(t, s.dial(""), "GET /livez HTTP/1.1\r\n"+largeHeader+"\r\n"); got != http.StatusServiceUnavailable || err != nil || time.Since(start).Truncate(time.Second) != 5*time.Second {
			t.Errorf("a large request got %d after %v: %v", got, time.Since(start), err)
		}
		if got, err := exchange(t, s.dial(""), "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"); got != http.StatusOK || err != nil {
			t.Errorf("a small request got %d: %v", got, err)
		}
		held.Wait()
		if status[http.StatusOK] < 50 || status[http.StatusOK]+status[http.StatusServiceUnavailable] != 200 {
			t.Errorf("the reads got %v", status)
		}
		if got, err := exchange(t, s.dial(""), "GET /livez HTTP/1.1\r\n"+largeHeader+"\r\n"); got != http.StatusOK || err != nil {
			t.Errorf("after the reads, a large request got %d: %v", got, err)
		}
	})
}

// Many appends at a time with as many headers of a record as are allowed wait for each other if they must.
func TestAppendsWithManyRecordHeaders(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		header := []string{"Content-Type", "text/plain"} // a record header as well

		for i := range 99 {
			header = append(header, fmt.Sprintf("Seb-Header-%d", i), strings.Repeat("v", 500))
		}
		var appends sync.WaitGroup
		for range 300 {
			appends.Go(func() {
				if got := s.do(http.MethodPost, ordersPath, strings.NewReader("x"), header...); got.StatusCode/100 != 2 {
					t.Errorf("status %d: %s", got.StatusCode, got.body)
				}
			})
		}
		appends.Wait()
	})
}

// Requests that arrive together are answered in order, however the network cuts them, and whether or not they
// have bodies.
func TestPipelinedBodies(t *testing.T) {
	const record = "POST " + ordersPath + " HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
	lines := strings.Repeat("\n", 3000)
	requests := strings.Join([]string{
		"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
		record + "Content-Length: 1\r\n\r\nx",
		"GET /nowhere HTTP/1.1\nHost: x\n\n",
		record + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(lines)) + lines,
		"\r\nGET /livez HTTP/1.1\r\nHost: x\r\n" + shortLines(headerLinesMin) + "\r\n", // behind a POST, an empty line is allowed
		record + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(lines), lines),
		"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
	}, "")
	want := []int{200, 201, 404, 201, 200, 201, 200}
	for _, piece := range []int{1, 2, 7, 511, 512, 4095, 4096, 4097, len(requests)} {
		bubble(t, seb.Options{}, func(t *testing.T, s *server) {
			conn := s.dial("")
			in := bufio.NewReader(conn)
			go func() {
				for left := requests; left != ""; left = left[min(piece, len(left)):] {
					if _, err := io.WriteString(conn, left[:min(piece, len(left))]); err != nil {
						t.Errorf("pieces of %d: %v", piece, err)
						return
					}
				}
			}()
			for i, status := range want {
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatalf("pieces of %d: answer %d: %v", piece, i, err)
				}
				body, err := io.ReadAll(resp.Body)
				if resp.StatusCode != status || err != nil {
					t.Errorf("pieces of %d: answer %d has status %d, want %d: %s, %v", piece, i, resp.StatusCode, status, body, err)
				}
				if err := resp.Body.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Under TLS, the limits are those of plain HTTP.
func TestHeadersUnderTLS(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv, served := NewServer(s.handler, nil), make(chan struct{})
	limited := s.handler.LimitHeaders(srv, tls.NewListener(LimitConnections(srv, listener, 10), certified.TLS))
	go func() { defer close(served); _ = srv.Serve(limited) }()
	defer func() { _ = srv.Close(); <-served }()
	dialer := &tls.Dialer{Config: certified.Client().Transport.(*http.Transport).TLSClientConfig}
	connect := func() net.Conn {
		conn, err := dialer.DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for request, want := range map[string]int{
		"Host: x\r\n":                    http.StatusOK,
		largeHeader:                      http.StatusOK,
		"Host: x\r\n" + shortLines(4000): http.StatusRequestHeaderFieldsTooLarge,
	} {
		conn := connect()
		if status, err := exchange(t, conn, "GET /livez HTTP/1.1\r\n"+request+"\r\n"); status != want || err != nil {
			t.Errorf("%.40q got %d, %v; want %d", request, status, err, want)
		}
		_ = conn.Close()
	}
	plain, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	if status, err := exchange(t, plain, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"); status != http.StatusBadRequest {
		t.Errorf("a request without TLS got %d, %v", status, err)
	}
}
