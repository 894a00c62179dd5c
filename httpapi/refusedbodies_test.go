package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
)

// refusable returns a commit of size bytes or more. It is malformed at its end.
func refusable(size int) string {
	record := `{"value":"` + strings.Repeat("x", 100) + `"},`
	return `{"appends":[{"topic":"orders","records":[` + strings.Repeat(record, size/len(record)+1)
}

// A key whose large requests are refused again and again may send no large bodies for a while. Its small
// requests, and large requests of other keys, are not affected.
func TestRefusedBodiesAreLimitedByKey(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "x")
		_, one := newKey(t, s.broker, "one", seb.ScopeAdmin)
		_, other := newKey(t, s.broker, "other", seb.ScopeAdmin)
		_, _ = newKey(t, s.broker, "ops", seb.ScopeAdmin)
		large := strings.Repeat("x", 1<<20)
		for range refusedBurst/(1<<20) - 1 {
			s.post(commitsPath, refusable(1<<20), bearer(one)...).wantProblem(t, 400, seb.CodeInvalidRequest)
		}
		s.post(commitsPath, refusable(5<<20), bearer(one)...).wantProblem(t, 400, seb.CodeInvalidRequest)
		p := s.post(commitsPath, refusable(1<<20), bearer(one)...).wantProblem(t, 429, codeTooMuchRefused)
		if !strings.Contains(p.Detail, "from this API key with 12 MiB of bodies") || p.Outcome != "not_committed" {
			t.Errorf("the problem is %+v", p)
		}
		a := s.post(ordersPath, large, bearer(one)...)
		a.wantProblem(t, 429, codeTooMuchRefused)
		s.post(ordersPath, string(gzipped(t, []byte(large))), append(bearer(one), "Content-Encoding", "gzip")...).wantProblem(t, 429, codeTooMuchRefused)
		s.post(ordersPath, strings.Repeat("x", smallBytes), bearer(one)...).want(t, http.StatusCreated)
		s.post(ordersPath, large, bearer(other)...).want(t, http.StatusCreated)
		s.post(commitsPath, refusable(1<<20), bearer(other)...).wantProblem(t, 400, seb.CodeInvalidRequest)

		wait, err := strconv.Atoi(a.Header.Get("Retry-After"))
		if err != nil || wait < 10 || wait > 16 {
			t.Fatalf("Retry-After is %q", a.Header.Get("Retry-After"))
		}
		time.Sleep(time.Duration(wait) * time.Second) // fake time
		s.post(ordersPath, large, bearer(one)...).want(t, http.StatusCreated)
		s.post(commitsPath, refusable(2<<20), bearer(one)...).wantProblem(t, 400, seb.CodeInvalidRequest)
		s.post(ordersPath, large, bearer(one)...).wantProblem(t, 429, codeTooMuchRefused)
		s.wantNothingReserved()
		time.Sleep(time.Second) // fake time; net/http waits before it closes a connection
	})
}

// Conflicts count only if the body was encoded.
func TestRefusedConditionsCountIfTheBodyIsEncoded(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "x")
		_, key := newKey(t, s.broker, "one", seb.ScopeAdmin)
		_, _ = newKey(t, s.broker, "ops", seb.ScopeAdmin)
		large, encoding := strings.Repeat("x", 1<<20), append(bearer(key), "Content-Encoding", "gzip")
		const past = ordersPath + "?partition=0&if_offset=0"
		for range 2 * refusedBurst / len(large) {
			s.post(past, large, bearer(key)...).wantProblem(t, 412, seb.CodeOffsetConflict)
		}
		for range refusedBurst / len(large) {
			s.post(past, string(gzipped(t, []byte(large))), encoding...).wantProblem(t, 412, seb.CodeOffsetConflict)
		}
		s.post(past, string(gzipped(t, []byte(large))), encoding...).wantProblem(t, 429, codeTooMuchRefused)
	})
}

// The broker answers before the client has sent the body.
func TestLargeBodyOfALimitedCallerIsNotRead(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "x")
		s.handler.refused.add(seb.Holder{}, 2*refusedBurst) // the connections of a bubble have no address
		for name, head := range map[string]string{
			"size is known": fmt.Sprintf("Content-Length: %d\r\n\r\n", smallBytes+1),
			"chunked":       "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("8000\r\n"+strings.Repeat("x", 0x8000)+"\r\n", 2) + "1\r\nx",
		} {
			conn := s.dial(postHead)
			began := time.Now()
			go func() { _, _ = io.WriteString(conn, head) }() // fails if the broker has closed the connection already
			a, closed := answerOn(t, conn)
			if took := time.Since(began); took < refusedDelay {
				t.Errorf("%s: the answer took %v of fake time", name, took)
			}
			p := a.wantProblem(t, 429, codeTooMuchRefused)
			if !closed || !strings.Contains(p.Detail, "from this address") {
				t.Errorf("%s: closed: %v, %s", name, closed, p.Detail)
			}
		}
		conn := s.dial(postHead + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", smallBytes, strings.Repeat("x", smallBytes)))
		a, _ := answerOn(t, conn)
		a.want(t, http.StatusCreated)
		time.Sleep(time.Second) // fake time; net/http waits before it closes a connection
	})
}

// A large body whose read began before other requests of the caller were refused is refused when it is complete.
func TestLargeBodyThatArrivesAfterRefusalsIsNotParsed(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "x")
		conn := s.dial(postHead + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", smallBytes+1, strings.Repeat("x", smallBytes)))
		synctest.Wait()
		s.handler.refused.add(seb.Holder{}, 2*refusedBurst)
		if _, err := io.WriteString(conn, "x"); err != nil {
			t.Fatal(err)
		}
		a, _ := answerOn(t, conn)
		a.wantProblem(t, 429, codeTooMuchRefused)
		s.wantNothingReserved()
	})
}

// Refusals of small bodies, refusals that belong to normal work, and bodies that were cut off don't count.
func TestOrdinaryRefusalsDontLimitBodies(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "x")
		large := strings.Repeat("x", 2<<20)
		for range 2 * refusedBurst / len(large) {
			s.post(ordersPath+"?if_offset=0", large).want(t, http.StatusPreconditionFailed)
			conn := s.dial(postHead + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(large), large[1:]))
			_ = conn.Close()
		}
		for range 2 * refusedBurst / smallBytes {
			s.handler.countRefused(&response{bodyRead: true, bytesIn: smallBytes}, problem{Status: http.StatusBadRequest})
		}
		synctest.Wait()
		if n := len(s.handler.refused.of); n > 0 {
			t.Errorf("%d holders have counts", n)
		}
		s.post(ordersPath, large).want(t, http.StatusCreated)
	})
}

// A compressed body counts with the bytes to which it was decoded. It is large if it is decoded to a large body.
func TestRefusedCompressedBodyCountsDecodedBytes(t *testing.T) {
	for encoding, encode := range map[string]func(testing.TB, []byte) []byte{"gzip": gzipped, "zstd": zstandard} {
		t.Run(encoding, func(t *testing.T) { // not in a bubble: all bubbles would share the decoder for zstd
			t.Parallel()
			s := newServer(t, seb.Options{}, Options{})
			s.append("orders", "x")
			body, header := string(encode(t, []byte(refusable(4<<20)))), []string{"Content-Encoding", encoding}
			s.handler.refused.add(seb.Holder{Address: netip.MustParsePrefix("127.0.0.1/32")}, 7<<20)
			s.post(commitsPath, body, header...).wantProblem(t, 400, seb.CodeInvalidRequest) // 4 MiB more
			s.post(commitsPath, body, header...).wantProblem(t, 429, codeTooMuchRefused)
			s.post(ordersPath, string(encode(t, []byte(strings.Repeat("x", smallBytes)))), header...).want(t, http.StatusCreated)
			s.wantNothingReserved()
		})
	}
}

// The table of holders is bounded, and nobody waits longer than a minute.
func TestCountsOfRefusedBodiesAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("many counts, one at a time")
	}
	synctest.Test(t, func(t *testing.T) {
		b := newRefusedBodies()
		holder := func(i int) seb.Holder {
			return seb.Holder{Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)}
		}
		for i := range 2 * refusedHoldersMax {
			b.add(holder(i), 1<<40)
		}
		if len(b.of) != refusedHoldersMax {
			t.Errorf("%d holders have counts", len(b.of))
		}
		if b.check(holder(0)) == nil || b.check(holder(2*refusedHoldersMax-1)) != nil {
			t.Error("the first holder is not limited, or the last one is")
		}
		time.Sleep(refusedWaitMax + time.Nanosecond) // fake time
		if err := b.check(holder(0)); err != nil {
			t.Errorf("after %v: %v", refusedWaitMax, err)
		}
		time.Sleep(durationOf(refusedBurst))
		b.add(holder(2*refusedHoldersMax-1), 1<<40)
		if len(b.of) != 1 || b.check(holder(2*refusedHoldersMax-1)) == nil {
			t.Errorf("%d holders have counts; the last one must", len(b.of))
		}
	})
}
