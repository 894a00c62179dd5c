package httpapi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/simple-event-broker/seb"
)

// dial opens a connection to s and sends text.
func (s *server) dial(text string) net.Conn {
	s.t.Helper()
	c, err := s.connect()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			s.t.Errorf("close: %v", err)
		}
	})
	if _, err := io.WriteString(c, text); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// rawRequest stands for a request that a test has sent as text.
func rawRequest(t *testing.T) *http.Request {
	return httptest.NewRequestWithContext(t.Context(), "POST", "/raw", nil)
}

// answerOn reads one answer from c. closed tells whether the connection ends after the answer.
func answerOn(t *testing.T, c net.Conn) (a answer, closed bool) {
	t.Helper()
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, rawRequest(t))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !resp.Close {
		return answer{resp, string(body)}, false
	}
	_, err = r.ReadByte()
	return answer{resp, string(body)}, err != nil
}

const postHead = "POST " + ordersPath + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"

func TestBodyCutOffCommitsNothing(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.do("PUT", "/v1/topics/orders", nil).want(t, http.StatusCreated)
	for name, c := range map[string]struct{ sent, detail string }{
		"short body":               {"Content-Length: 10\r\n\r\na\nb\n", "4 of 10"},
		"no body":                  {"Content-Length: 10\r\n\r\n", "0 of 10"},
		"chunks without their end": {"Transfer-Encoding: chunked\r\n\r\n4\r\na\nb\n\r\n", "4 bytes"},
		"chunk cut off":            {"Transfer-Encoding: chunked\r\n\r\n9\r\na\nb\n", "4 bytes"},
		"invalid chunk size":       {"Transfer-Encoding: chunked\r\n\r\n4\r\na\nb\n\r\nzz\r\n", "4 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := s.dial(postHead + c.sent)
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			a, closed := answerOn(t, conn)
			p := a.wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
			if !closed || !strings.Contains(p.Detail, c.detail) || p.Outcome != string(seb.NotCommitted) {
				t.Errorf("closed: %v, problem %+v", closed, p)
			}
		})
	}
	if got := s.stored("orders", 0); len(got) != 0 {
		t.Errorf("%d records came out of broken requests", len(got))
	}
}

// A request that is refused before its body is read gets its answer at once, even
// if the body never comes.
func TestRefusalDoesNotWaitForTheBody(t *testing.T) {
	for _, head := range []string{
		"POST " + ordersPath + "?nope=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n",
		"PUT /nowhere HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
		"DELETE /v1/topics/none HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n",
	} {
		bubble(t, seb.Options{}, func(t *testing.T, s *server) {
			start := time.Now()
			r := bufio.NewReader(s.dial(head))
			resp, err := http.ReadResponse(r, rawRequest(t))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if took := time.Since(start); resp.StatusCode < 400 || took != 0 {
				t.Errorf("%q: status %d after %v", head, resp.StatusCode, took)
			}
			if _, err := io.Copy(io.Discard, r); err != nil { // to the end of the connection
				t.Fatal(err)
			}
			if took := time.Since(start); took > 15*time.Second {
				t.Errorf("%q: the connection was open for %v", head, took)
			}
		})
	}
}

// A body that is refused for its length is not read. The client, which is
// still sending, gets the answer nevertheless.
func TestBodyTooLargeIsNotRead(t *testing.T) {
	s := newServer(t, seb.Options{Limits: seb.Limits{RecordBytes: 1000, RequestBytes: 1000}}, Options{})
	s.handler.slowLimit.stallMax = 100 * time.Millisecond // how long the server waits for the rest of the body
	conn := s.dial(postHead + "Content-Length: 1000000000000\r\n\r\n" + strings.Repeat("x", 100_000))
	a, closed := answerOn(t, conn)
	if p := a.wantProblem(t, http.StatusRequestEntityTooLarge, seb.CodeRequestTooLarge); p.Limit != 1000 || !closed {
		t.Errorf("limit %d, closed: %v", p.Limit, closed)
	}

	conn = s.dial(postHead + "Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n")
	a, _ = answerOn(t, conn)
	a.wantProblem(t, http.StatusRequestEntityTooLarge, seb.CodeRequestTooLarge)

	conn = s.dial(postHead + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("400\r\n"+strings.Repeat("x", 1024)+"\r\n", 100))
	a, closed = answerOn(t, conn)
	a.wantProblem(t, http.StatusRequestEntityTooLarge, seb.CodeRequestTooLarge)
	if !closed {
		t.Error("the connection goes on in the middle of a body")
	}
}

// The deadline of one answer must not apply to the next request's 100 Continue.
func TestExpectContinueOnAnOldConnection(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		conn := s.dial("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, rawRequest(t))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second) // fake time; the deadline of that answer has passed
		if _, err := io.WriteString(conn, postHead+"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
			t.Fatalf("got %q, %v", line, err)
		}
		if _, err := r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "x\n"); err != nil {
			t.Fatal(err)
		}
		next, err := http.ReadResponse(r, rawRequest(t))
		if err != nil {
			t.Fatal(err)
		}
		defer next.Body.Close()
		if next.StatusCode != http.StatusCreated {
			t.Fatalf("status %d", next.StatusCode)
		}
	})
}

func TestSlowSenderIsCutOff(t *testing.T) {
	for name, head := range map[string]string{
		"sized":   "Content-Length: 100\r\n\r\nabc",
		"chunked": "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, seb.Options{}, func(t *testing.T, s *server) {
				start := time.Now()
				a, closed := answerOn(t, s.dial(postHead+head))
				p := a.wantProblem(t, http.StatusRequestTimeout, codeRequestTimeout)
				if !closed || !strings.Contains(p.Detail, ": 3 bytes") || p.Outcome != string(seb.NotCommitted) {
					t.Errorf("closed: %v, problem %+v", closed, p)
				}
				if took := time.Since(start); took < 10*time.Second || took > 15*time.Second {
					t.Errorf("it took %v", took)
				}
				s.wantNothingReserved()
			})
		})
	}
}

// A client that sends a byte now and then, so that the broker holds a large buffer, is also cut off.
func TestTricklingSenderIsCutOff(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		conn := s.dial(postHead + "Content-Length: 1000000\r\n\r\n")
		sent := make(chan int)
		go func() {
			n := 0
			for {
				time.Sleep(time.Second) // fake time
				if _, err := io.WriteString(conn, "x"); err != nil {
					sent <- n
					return
				}
				n++
			}
		}()
		a, _ := answerOn(t, conn)
		a.wantProblem(t, http.StatusRequestTimeout, codeRequestTimeout)
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if n := <-sent; n > 12 {
			t.Errorf("it could send %d bytes, one a second", n)
		}
		s.wantNothingReserved()
	})
}

func TestSlowReaderIsCutOff(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		for range 4 {
			s.append("orders", strings.Repeat("x", 1<<20))
		}
		start := time.Now()
		for range 4 {
			s.dial("GET " + ordersPath + "?max_bytes=8388608 HTTP/1.1\r\nHost: x\r\n\r\n")
		}
		synctest.Wait()
		if got := testutil.ToFloat64(s.handler.metrics.inFlight); got != 4 {
			t.Fatalf("%v answers wait to be taken", got)
		}
		time.Sleep(11 * time.Second) // fake time
		synctest.Wait()
		if got := testutil.ToFloat64(s.handler.metrics.inFlight); got != 0 {
			t.Errorf("%v answers still wait after %v", got, time.Since(start))
		}
		s.wantNothingReserved()
	})
}

// A client that steadily reads a long answer may take longer than any single deadline.
func TestSteadyReaderIsServed(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		value := strings.Repeat("x", 8<<20)
		s.append("orders", value)
		start := time.Now()
		conn := s.dial("GET " + ordersPath + "/0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		var got int
		for buf := make([]byte, 128<<10); ; {
			n, err := io.ReadFull(conn, buf)
			if got += n; err != nil {
				break
			}
			time.Sleep(900 * time.Millisecond) // fake time
		}
		if took := time.Since(start); got < len(value) || took < 50*time.Second {
			t.Errorf("%d bytes came in %v", got, took)
		}
	})
}

// Buffers that are handed from request to request must never show one caller's
// bytes to another.
func TestBuffersUnderLoad(t *testing.T) {
	s := newServer(t, seb.Options{Memory: 16 << 20}, Options{})
	const callers, rounds = 8, 20
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			topic := fmt.Sprintf("t%d", c)
			for round := range rounds {
				values := make([]string, 1+(c*7+round*13)%50)
				for i := range values {
					values[i] = strings.Repeat(fmt.Sprintf("%d/%d/%d;", c, round, i), 1+(i*31+round*17)%400)
				}
				body, header := batchBody(values...), []string{"Content-Type", typeBatch}
				switch round % 4 {
				case 1:
					body, header = gzipped(t, body), append(header, "Content-Encoding", "gzip")
				case 2:
					body, header = []byte(strings.Join(values, "\n")), []string{"Content-Type", typeNDJSON}
				}
				var src io.Reader = bytes.NewReader(body)
				if round%3 == 0 {
					src = struct{ io.Reader }{src} // the length is unknown, so the body is chunked
				}
				var where struct{ Offset int }
				a := s.do("POST", "/v1/topics/"+topic+"/records", src, header...)
				if a.StatusCode != http.StatusCreated {
					t.Errorf("status %d: %s", a.StatusCode, a.body)
					return
				}
				a.json(t, &where)
				back := s.get(fmt.Sprintf("/v1/topics/%s/records?offset=%d&limit=%d", topic, where.Offset, len(values)), "Accept", typeBatch)
				for i, got := range parseBatchBody(t, back.body) {
					if got != values[i] {
						t.Errorf("%s, round %d: value %d is %.40q, want %.40q", topic, round, i, got, values[i])
						return
					}
				}
			}
		})
	}
	wg.Wait()
	s.wantNothingReserved()
}

func TestBufferClasses(t *testing.T) {
	last := 0
	for class := range classCount {
		size := classBytes(class)
		if size <= last || class > 0 && float64(size) > 1.26*float64(last) {
			t.Errorf("class %d has %d bytes after %d", class, size, last)
		}
		if classOf(size) != class || classOf(last+1) != class {
			t.Errorf("class %d is not that of %d to %d bytes", class, last+1, size)
		}
		last = size
	}
	if last != 64<<20 || classOf(last+1) != classCount || classOf(0) != 0 {
		t.Errorf("the last class has %d bytes, and one more is in class %d", last, classOf(last+1))
	}
}
