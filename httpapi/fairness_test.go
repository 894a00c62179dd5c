package httpapi

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// upload sends a body of size bytes at a rate, with header (an address or a key), until the
// whole body is sent or the connection is cut. It returns the status of the answer, 0 for none.
func (s *server) upload(size, bytesPerSecond int, header string) (status int) {
	conn := s.dial(postHead + header + fmt.Sprintf("Content-Length: %d\r\n\r\n", size))
	sent := make(chan struct{})
	defer func() { _ = conn.Close(); <-sent }()
	go func() {
		defer close(sent)
		piece := strings.Repeat("x", bytesPerSecond/4)
		for n := 0; n < size; n += len(piece) {
			if _, err := io.WriteString(conn, piece[:min(len(piece), size-n)]); err != nil {
				return
			}
			time.Sleep(time.Second / 4) // fake time
		}
	}()
	return statusOn(conn)
}

func statusOn(conn net.Conn) (status int) {
	line := make([]byte, len("HTTP/1.1 nnn"))
	if _, err := io.ReadFull(conn, line); err != nil {
		return 0
	}
	_, _ = fmt.Sscan(string(line[9:]), &status) // 0 if line is not a status line
	_, _ = io.Copy(io.Discard, conn)            // else the server would wait until the client reads it
	return status
}

// Uploads as slow as a phone's succeed, and do not delay small appends.
func TestSlowUploadsKeepNoSmallRequestWaiting(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "x")
		const uploads = 64
		ended := make(chan int, uploads)
		for range uploads {
			go func() { ended <- s.upload(8<<20, 320_000, "Connection: close\r\n") }()
		}
		began := time.Now()
		statuses := map[int]int{}
		for done := 0; done < uploads; {
			start := time.Now()
			s.append("orders", "small")
			s.get(ordersPath+"?offset=-1").want(t, http.StatusOK)
			if took := time.Since(start); took > 100*time.Millisecond {
				t.Errorf("a small append and read took %v, %v after the uploads began", took, start.Sub(began))
			}
			time.Sleep(100 * time.Millisecond) // fake time
			for len(ended) > 0 {
				statuses[<-ended]++
				done++
			}
		}
		// There is memory for some uploads; the others get 429.
		if statuses[http.StatusCreated] < 5 || statuses[http.StatusCreated]+statuses[http.StatusTooManyRequests] != uploads {
			t.Errorf("the uploads ended with %v", statuses)
		}
		s.wantNothingReserved()
	})
}

// Of one holder's waiting requests the oldest is served first, even if the others need
// less: else new requests would take the memory that old ones need to end.
func TestSmallNewRequestsDontOvertakeALargeOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBroker(t, objstore.NewMemory(), seb.Options{})
		_, limit := b.ShareBytes(seb.ShareBodies)
		first := b.NewReservation(seb.ShareBodies, seb.Holder{}, nil)
		if err := first.Grow(t.Context(), limit); err != nil {
			t.Fatal(err)
		}
		served := make(chan int64, 3)
		wait := func(n int64) {
			time.Sleep(time.Millisecond) // fake time
			r := b.NewReservation(seb.ShareBodies, seb.Holder{}, func() {})
			go func() {
				if err := r.Grow(t.Context(), n); err != nil {
					t.Errorf("the request for %d bytes got %v", n, err)
				}
				served <- n
				r.Shrink(n)
			}()
			synctest.Wait()
		}
		wait(limit / 2)
		wait(limit / 8)
		first.Shrink(limit / 4)
		synctest.Wait()
		if len(served) > 0 {
			t.Errorf("a request for %d bytes overtook an older one", <-served)
		}
		first.Shrink(limit / 4)
		synctest.Wait()
		if len(served) != 2 {
			t.Errorf("%d requests were served once there was room for the oldest", len(served))
		}
		first.Shrink(limit - 2*(limit/4))
	})
}

// There is memory for six slow uploads at once: all succeed.
func TestSlowUploadsComeThrough(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "x")
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				if status := s.upload(8<<20, 320_000, "Connection: close\r\n"); status != http.StatusCreated {
					t.Errorf("status %d", status)
				}
			})
		}
		all.Wait()
		s.wantNothingReserved()
	})
}

// Large answers that clients don't read delay no small request, and other clients still get large answers.
func TestSlowReadersKeepNobodyWaiting(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		for range 16 {
			s.append("orders", strings.Repeat("x", 1<<20))
		}
		newKey(t, s.broker, "ops", seb.ScopeAdmin)
		_, bad := newKey(t, s.broker, "bad", seb.ScopeRead)
		_, good := newKey(t, s.broker, "good", seb.ScopeRead|seb.ScopeWrite)
		for range 64 {
			s.dial("GET " + ordersPath + "?max_bytes=8388608 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + bad + "\r\n\r\n")
		}
		synctest.Wait()
		start := time.Now()
		s.append("orders", "small", bearer(good)...)
		s.get(ordersPath+"?offset=-1", bearer(good)...).want(t, http.StatusOK)
		if a := s.get(ordersPath+"?offset=0&max_bytes=4194304", bearer(good)...); len(a.body) < 4<<20 {
			t.Errorf("a large read got %d bytes", len(a.body))
		}
		s.append("orders", strings.Repeat("y", 4<<20), bearer(good)...)
		if took := time.Since(start); took > 0 {
			t.Errorf("appends and reads of others took %v", took)
		}
		if used, limit := s.broker.ShareBytes(seb.ShareAnswers); used > limit {
			t.Errorf("%d bytes of %d are taken by answers", used, limit)
		}
		time.Sleep(time.Minute) // fake time
		synctest.Wait()
		s.wantNothingReserved()
	})
}

// One slow reader can't fill the memory for large answers, and answers about topics and consumers
// don't need that memory.
func TestSlowReaderLeavesRoomForAnswers(t *testing.T) {
	bubble(t, seb.Options{Memory: 32 << 20}, func(t *testing.T, s *server) {
		for range 10 {
			s.append("orders", strings.Repeat("x", 1<<20))
		}
		newKey(t, s.broker, "ops", seb.ScopeAdmin)
		_, bad := newKey(t, s.broker, "bad", seb.ScopeRead)
		_, good := newKey(t, s.broker, "good", seb.ScopeAdmin|seb.ScopeRead)
		for range 8 {
			s.dial("GET " + ordersPath + "?limit=100&max_bytes=8300000 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + bad + "\r\n\r\n")
		}
		synctest.Wait()
		time.Sleep(2 * answerWait) // fake time; by then the others have small answers
		synctest.Wait()
		start := time.Now()
		s.get("/v1/topics", bearer(good)...).want(t, http.StatusOK)
		s.get("/v1/topics/orders", bearer(good)...).want(t, http.StatusOK)
		s.do("PUT", "/v1/topics/others", strings.NewReader(`{"partitions":100}`), bearer(good)...).want(t, http.StatusCreated)
		s.do("PUT", "/v1/topics/others/consumers/c", nil, bearer(good)...).want(t, http.StatusCreated)
		s.get("/v1/topics/others/consumers/c", bearer(good)...).want(t, http.StatusOK)
		used, limit := s.broker.ShareBytes(seb.ShareAnswers)
		if used < limit/2 || used > limit/4*3 {
			t.Errorf("%d bytes of %d are taken by the answers of one holder", used, limit)
		}
		if a := s.get(ordersPath+"?offset=0&max_bytes=1100000", bearer(good)...); len(a.body) < 1<<20 {
			t.Errorf("a large read got %d bytes", len(a.body))
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("the requests of others took %v", took)
		}
	})
}

// If there is not enough memory for a large read, the read gets a smaller answer at once.
func TestSlowReaderCostsOthersLittle(t *testing.T) {
	bubble(t, seb.Options{Memory: 32 << 20}, func(t *testing.T, s *server) {
		for range 100 {
			s.append("orders", strings.Repeat("x", 100<<10))
		}
		newKey(t, s.broker, "ops", seb.ScopeAdmin)
		_, bad := newKey(t, s.broker, "bad", seb.ScopeRead)
		_, good := newKey(t, s.broker, "good", seb.ScopeRead)
		for range 8 {
			s.dial("GET " + ordersPath + "?max_bytes=8300000 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + bad + "\r\n\r\n")
		}
		synctest.Wait()
		time.Sleep(2 * answerWait) // fake time; by then the others have small answers
		synctest.Wait()
		if used, limit := s.broker.ShareBytes(seb.ShareAnswers); limit-used >= 4<<20 {
			t.Fatalf("only %d bytes of %d are taken", used, limit)
		}
		start := time.Now()
		for range 4 {
			if a := s.get(ordersPath+"?offset=0&max_bytes=4194304", bearer(good)...); len(a.body) < 1<<20 {
				t.Errorf("a large read got %d bytes", len(a.body))
			}
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("large reads took %v", took)
		}
	})
}

// Slow readers of large records, each with a key of its own, fill the memory for large answers. As soon as others
// need it, the broker ends the slow answers.
func TestSlowReadersOfLargeRecordsGiveWay(t *testing.T) {
	bubble(t, seb.Options{Memory: 32 << 20}, func(t *testing.T, s *server) {
		for range 2 {
			s.append("orders", strings.Repeat("x", 1<<20))
		}
		newKey(t, s.broker, "ops", seb.ScopeAdmin)
		_, good := newKey(t, s.broker, "good", seb.ScopeRead)
		const large = ordersPath + "?offset=0&limit=1"
		var readers sync.WaitGroup
		defer readers.Wait()
		for i := range 8 {
			_, bad := newKey(t, s.broker, fmt.Sprint("bad", i), seb.ScopeRead)
			readers.Go(func() {
				for range 8 { // reads nothing for 3 s, and comes back
					conn := s.dial("GET " + large + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + bad + "\r\n\r\n")
					time.Sleep(3 * time.Second) // fake time
					_ = conn.Close()
				}
			})
		}
		time.Sleep(1100 * time.Millisecond) // fake time
		var waited time.Duration
		for range 100 {
			start := time.Now()
			if a := s.get(large, bearer(good)...); len(a.body) < 1<<20 {
				t.Fatalf("a large read got status %d and %d bytes", a.StatusCode, len(a.body))
			}
			waited += time.Since(start)
			time.Sleep(200 * time.Millisecond) // fake time
		}
		if waited == 0 || waited > 2*time.Second {
			t.Errorf("the large reads of 20s waited %v", waited)
		}
	})
}

// Callers that read a large record at the same time take turns: none of them waits for memory while it holds some.
func TestReadersOfALargeRecordTakeTurns(t *testing.T) {
	const size = 2 << 20 // the memory for large answers is 8 MiB
	count := 40
	if testing.Short() {
		count = 12
	}
	for name, path := range map[string]string{
		"records": ordersPath + "?offset=0", "consumer": "/v1/topics/orders/consumers/c%d/records", "stream": ordersPath + "?offset=0&partition=0",
		"queue": "/v1/topics/orders/queues/q%d/receive", "dead": "/v1/topics/orders/queues/dead/dead",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, seb.Options{Memory: 32 << 20}, func(t *testing.T, s *server) {
				s.append("orders", strings.Repeat("x", size))
				newKey(t, s.broker, "ops", seb.ScopeAdmin)
				_, admin := newKey(t, s.broker, "admin", seb.ScopeAdmin|seb.ScopeRead)
				if name == "dead" {
					s.do("PUT", "/v1/topics/orders/queues/dead", strings.NewReader(`{"max_attempts":1}`), bearer(admin)...).want(t, http.StatusCreated)
					a := s.do("POST", "/v1/topics/orders/queues/dead/receive", nil, bearer(admin)...)
					token := a.body[strings.Index(a.body, `"token":"`)+9:]
					token, _, _ = strings.Cut(token, `"`)
					s.do("POST", "/v1/topics/orders/queues/dead/nack", strings.NewReader(`{"tokens":["`+token+`"]}`), bearer(admin)...).want(t, http.StatusOK)
				}
				began := time.Now()
				var readers sync.WaitGroup
				for i := range count {
					_, key := newKey(t, s.broker, fmt.Sprint("reader", i), seb.ScopeRead|seb.ScopeAdmin)
					to, method := path, http.MethodGet
					if strings.Contains(path, "%d") {
						to = fmt.Sprintf(path, i)
					}
					if name == "queue" {
						s.do("PUT", strings.TrimSuffix(to, "/receive"), nil, bearer(admin)...).want(t, http.StatusCreated)
						method = http.MethodPost
					}
					readers.Go(func() {
						if name == "stream" {
							conn := s.dial("GET " + to + " HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nAuthorization: Bearer " + key + "\r\n\r\n")
							if _, err := io.CopyN(io.Discard, conn, size); err != nil {
								t.Error(err)
							}
							_ = conn.Close()
							return
						}
						if a := s.do(method, to, nil, bearer(key)...); len(a.body) < size {
							t.Errorf("status %d and %d bytes: %.200s", a.StatusCode, len(a.body), a.body)
						}
					})
				}
				readers.Wait()
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("%d readers took %v", count, took)
				}
			})
		})
	}
}

// Clients that read small responses slowly keep others waiting for a moment at most, even if they fill the memory for
// small requests.
func TestSlowReadersOfSmallRecordsGiveWay(t *testing.T) {
	bubble(t, seb.Options{Memory: 32 << 20}, func(t *testing.T, s *server) {
		s.append("orders", strings.Repeat("x", 60_000))
		newKey(t, s.broker, "ops", seb.ScopeAdmin)
		_, good := newKey(t, s.broker, "good", seb.ScopeWrite)
		for i := range 4 {
			_, bad := newKey(t, s.broker, fmt.Sprint("bad", i), seb.ScopeRead)
			for range 40 {
				s.dial("GET " + ordersPath + "?offset=0&limit=1&max_bytes=60000 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + bad + "\r\n\r\n")
			}
			synctest.Wait()
		}
		if used, limit := s.broker.ShareBytes(seb.ShareSmall); used < limit-2*smallBytes {
			t.Fatalf("the slow readers hold only %d of %d bytes", used, limit)
		}
		time.Sleep(1500 * time.Millisecond) // fake time
		for range 10 {
			start := time.Now()
			s.append("others", strings.Repeat("y", 60_000), bearer(good)...)
			if took := time.Since(start); took > 150*time.Millisecond {
				t.Errorf("an append of another key took %v", took)
			}
		}
	})
}

// A record that is larger than one holder's share, since a broker with more memory has written it, can
// still be read.
func TestRecordLargerThanAPartIsRead(t *testing.T) {
	store := objstore.NewMemory()
	large := newServerOn(t, store, seb.Options{Memory: 64 << 20}, Options{})
	large.append("orders", strings.Repeat("x", 7<<20))
	bubbleOn(t, store, seb.Options{Memory: 32 << 20}, Options{}, 0, func(t *testing.T, s *server) {
		for _, query := range []string{"?max_bytes=1", "", "?max_bytes=8388608"} {
			if a := s.get(ordersPath + query); len(a.body) < 7<<20 {
				t.Errorf("%q got %d bytes with status %d", query, len(a.body), a.StatusCode)
			}
		}
		s.wantNothingReserved()
	})
}

// A list counts as a large answer only if it is longer than a chunk.
func TestLongListsAreLargeAnswers(t *testing.T) {
	t.Parallel() // it waits for seconds
	s := newServer(t, seb.Options{}, Options{})
	s.do("PUT", "/v1/topics/a", strings.NewReader(`{"partitions":1000}`)).want(t, http.StatusCreated)
	_, limit := s.broker.ShareBytes(seb.ShareAnswers)
	all := s.broker.NewReservation(seb.ShareAnswers, seb.Holder{}, nil)
	if err := all.Grow(t.Context(), limit); err != nil {
		t.Fatal(err)
	}
	s.get("/v1/topics/a/consumers").want(t, http.StatusOK)
	s.get("/v1/topics").wantProblem(t, http.StatusTooManyRequests, seb.CodeOverMemoryBudget)
	all.Shrink(limit)
	s.get("/v1/topics").want(t, http.StatusOK)
	s.wantNothingReserved()
}

// If one key holds memory that others need, its requests are ended, and the key does not get the
// memory back at once.
func TestHostileUploadsCostOthersLittle(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "x")
		newKey(t, s.broker, "ops", seb.ScopeAdmin)
		_, good := newKey(t, s.broker, "good", seb.ScopeWrite)
		_, bad := newKey(t, s.broker, "bad", seb.ScopeWrite)
		over := make(chan struct{})
		var hostile sync.WaitGroup
		for range 8 {
			hostile.Go(func() { // fills the memory, then sends as slowly as allowed
				for {
					select {
					case <-over:
						return
					default:
					}
					conn, err := s.connect()
					if err != nil {
						return
					}
					sent := make(chan struct{})
					go func() {
						defer close(sent)
						_, _ = io.WriteString(conn, postHead+"Authorization: Bearer "+bad+"\r\nContent-Length: 33554432\r\n\r\n"+strings.Repeat("x", 7<<20))
						for range 1000 {
							time.Sleep(time.Second) // fake time
							if _, err := io.WriteString(conn, strings.Repeat("x", 160<<10)); err != nil {
								return
							}
						}
					}()
					statusOn(conn)
					_ = conn.Close() // the connection may be in any state
					<-sent
				}
			})
		}
		time.Sleep(time.Second) // fake time
		start := time.Now()
		body := strings.Repeat("y", 1<<20)
		var slow, slowest time.Duration
		appends := 600
		if testing.Short() {
			appends = 100
		}
		for range appends {
			began := time.Now()
			s.append("orders", body, bearer(good)...)
			took := time.Since(began)
			slow, slowest = slow+took, max(slowest, took)
			s.append("orders", "small", bearer(good)...)
			time.Sleep(100 * time.Millisecond) // fake time
		}
		t.Logf("%d appends waited %v of %v, one %v", appends, slow, time.Since(start), slowest)
		if all := time.Since(start); slow > all/10 || slowest > 2*time.Second {
			t.Errorf("%d appends waited %v of %v, one %v", appends, slow, all, slowest)
		}
		close(over)
		hostile.Wait()
	})
}

// The same if every hostile connection has a different address and a different key.
func TestEveryHolderHasItsPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBroker(t, objstore.NewMemory(), seb.Options{})
		holder := func(i int) seb.Holder {
			return seb.Holder{Key: seb.KeyID(i + 1), Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32)}
		}
		_, limit := b.ShareBytes(seb.ShareBodies)
		revoked := make(chan int, 100)
		for i := range 8 { // together they hold all memory
			r := new(seb.Reservation)
			r = b.NewReservation(seb.ShareBodies, holder(i), func() {
				revoked <- i
				go r.Shrink(limit / 8)
			})
			if err := r.Grow(t.Context(), limit/8); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		r := b.NewReservation(seb.ShareBodies, holder(9), nil)
		if err := r.Grow(t.Context(), limit/16); err != nil || time.Since(began) > time.Second {
			t.Errorf("a ninth holder got %v after %v", err, time.Since(began))
		}
		if n := len(revoked); n != 1 {
			t.Errorf("%d requests were ended for it, want one", n)
		}
		// A holder whose request was ended can't get more than its share again. No request of another holder within its
		// share is ended for it.
		again := b.NewReservation(seb.ShareBodies, holder(<-revoked), nil)
		if err := again.Grow(t.Context(), limit/8); seb.CodeOf(err) != seb.CodeOverMemoryBudget || !strings.Contains(err.Error(), `"bodies"`) {
			t.Errorf("it got %v", err)
		}
		r.Shrink(limit / 16)
	})
}

// The memory of small answers can't be revoked. Even if one caller reads none of its answers, there is memory
// for others.
func TestSmallAnswersOfOneCallerLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBroker(t, objstore.NewMemory(), seb.Options{})
		_, limit := b.ShareBytes(seb.ShareSmall)
		held := int64(0)
		defer func() {
			if held < limit/2 {
				t.Errorf("one caller alone may have %d bytes of %d", held, limit)
			}
		}()
		for {
			r := b.NewReservation(seb.ShareSmall, seb.Holder{Key: 1}, nil)
			if err := r.Grow(t.Context(), 64<<10); err != nil {
				break
			}
			held += 64 << 10
			defer r.Shrink(64 << 10)
		}
		began := time.Now()
		r := b.NewReservation(seb.ShareSmall, seb.Holder{Key: 2}, func() {})
		if err := r.Grow(t.Context(), 64<<10); err != nil {
			t.Fatal(err)
		}
		defer r.Shrink(64 << 10)
		if waited := time.Since(began); waited > 0 {
			t.Errorf("another caller waited %v", waited)
		}
	})
}

// The cost of waiting grows with the number of waiting requests, not with its square.
func TestManyWaitForMemory(t *testing.T) {
	const waiters = 4000
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		b := openBroker(t, objstore.NewMemory(), seb.Options{})
		_, limit := b.ShareBytes(seb.ShareBodies)
		all := b.NewReservation(seb.ShareBodies, seb.Holder{}, nil)
		if err := all.Grow(t.Context(), limit); err != nil {
			t.Fatal(err)
		}
		var waiting sync.WaitGroup
		for i := range waiters {
			waiting.Go(func() {
				r := b.NewReservation(seb.ShareBodies, seb.Holder{Key: seb.KeyID(i + 1)}, func() {})
				if err := r.Grow(t.Context(), 1); seb.CodeOf(err) != seb.CodeOverMemoryBudget {
					t.Errorf("it got %v", err)
				}
			})
		}
		waiting.Wait()
		all.Shrink(limit)
	})
	if took := time.Since(began); took > 10*time.Second { // the test took half a minute when each waiter checked all others
		t.Errorf("%d requests that wait took %v of the processors", waiters, took)
	}
}

// Requests that take much memory once they are parsed or decoded keep no small request waiting, not even while
// they wait for one another.
func TestLargeListsKeepNoSmallRequestWaiting(t *testing.T) {
	const memory = 16 << 20
	list := func(record string) string {
		n := memory / 8 / recordStructBytes // as many as a request may have
		return `{"records":[` + strings.Repeat(record+",", n-1) + record + `]}`
	}
	lines := strings.Repeat(strings.Repeat("x", 9_999)+"\n", memory/4/10_000-1)
	twoMembers := string(gzipped(t, []byte(lines))) + string(gzipped(t, []byte("b"))) // the last bytes state a size of 1
	for name, test := range map[string]struct {
		body   string
		header []string
		status int // of a request that gets its memory
	}{
		"records": {list(`{"value":""}`), []string{"Content-Type", typeRecords}, http.StatusCreated},
		"headers": {list(`{"value":"","headers":{"a":"","b":"","c":""}}`), []string{"Content-Type", typeRecords}, http.StatusCreated},
		"gzip":    {twoMembers, []string{"Content-Type", typeNDJSON, "Content-Encoding", "gzip"}, http.StatusCreated},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, seb.Options{Memory: memory}, func(t *testing.T, s *server) {
				s.append("orders", "x")
				newKey(t, s.broker, "ops", seb.ScopeAdmin)
				_, good := newKey(t, s.broker, "good", seb.ScopeWrite)
				_, bad := newKey(t, s.broker, "bad", seb.ScopeWrite)
				const callers = 8
				each := 3
				if testing.Short() {
					each = 1
				}
				var running, done atomic.Int64
				running.Store(callers)
				for range callers {
					go func() {
						defer running.Add(-1)
						for range each {
							if a := s.post(ordersPath, test.body, append(bearer(bad), test.header...)...); a.StatusCode == test.status {
								done.Add(1)
							} else if a.StatusCode != http.StatusTooManyRequests {
								t.Errorf("status %d: %s", a.StatusCode, a.body)
							}
						}
					}()
				}
				for running.Load() > 0 {
					time.Sleep(time.Millisecond) // fake time, which passes only while all requests wait
					began := time.Now()
					s.append("orders", "small", bearer(good)...)
					if took := time.Since(began); took > time.Second {
						t.Errorf("a small append took %v", took)
					}
				}
				if n := done.Load(); n < int64(callers*each/2) {
					t.Errorf("only %d of %d large requests got their memory", n, callers*each)
				}
				s.wantNothingReserved()
			})
		})
	}
}
