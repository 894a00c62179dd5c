package httpapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/peer"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// newPeer returns a server on a loopback port, whose broker uses the store and advertises the server's
// address.
func newPeer(t *testing.T, store objstore.Store) *server {
	t.Helper()
	return newPeerWith(t, store, Options{NoPeers: true}) // so that the only connections are those of forwarded requests
}

func newPeerWith(t *testing.T, store objstore.Store, opts Options) *server {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := openBroker(t, store, seb.Options{Address: "http://" + l.Addr().String()})
	h := New(b, opts)
	ts := httptest.NewUnstartedServer(nil)
	_ = ts.Listener.Close() // a listener that is not needed
	ts.Listener, ts.Config = l, NewServer(h, nil)
	ts.Start()
	stop := func() {
		ts.CloseClientConnections()
		ts.Close()
		_ = h.Close()
	}
	t.Cleanup(stop)
	return &server{t: t, broker: b, handler: h, url: ts.URL, client: ts.Client(), stop: stop}
}

// newPeersWithQueue returns n servers on one store. The first owns queue mail of topic orders, which has
// records.
func newPeersWithQueue(t *testing.T, n, records int, stores ...objstore.Store) []*server {
	t.Helper()
	shared := objstore.NewMemory()
	peers := make([]*server, n)
	for i := range peers {
		var store objstore.Store = shared
		if i < len(stores) {
			store = stores[i]
		}
		peers[i] = newPeer(t, store)
	}
	peers[0].ownQueue(records)
	return peers
}

func (s *server) ownQueue(records int) {
	s.t.Helper()
	s.createOrders(1)
	s.setQueue("mail", `{"lease":"1m","backoff":"0s"}`, http.StatusCreated)
	s.received("mail", `{"max":10}`) // from now on 10 records may be handed out at once
	if records > 0 {
		s.append("orders", strings.Repeat("x\n", records), "Content-Type", typeNDJSON)
	}
}

// wantOwner checks the epoch of queue mail's owner. It makes the broker sync.
func (s *server) wantOwner(epoch seb.Epoch) {
	s.t.Helper()
	if _, now, err := s.broker.Queue("orders", "mail").Owner(s.t.Context()); err != nil || now != epoch {
		s.t.Errorf("the owner is %d, want %d: %v", now, epoch, err)
	}
}

func TestAnyBrokerServesAQueue(t *testing.T) {
	peers := newPeersWithQueue(t, 3, 9)
	var all []wireMessage
	for i, s := range peers {
		all = append(all, s.wantHanded(`{"max":3,"lease":"5m"}`, fmt.Sprintf("%d#1 %d#1 %d#1", 3*i, 3*i+1, 3*i+2))...)
	}
	for i, s := range peers {
		peers[0].wantOwner(1) // syncs, so that the broker knows the others' commits
		s.wantCounts("mail", int64(i), int64(9-2*i), 0, 0)
		s.answered("ack", 200, all[(3*i+3)%9]) // received through another broker
		extended := s.post(mailPath+"/extend", `{"lease":"10m","tokens":`+tokensOf(t, all[(3*i+4)%9:(3*i+4)%9+1])+`}`)
		extended.want(t, 200)
		s.answered("nack", 200, all[(3*i+5)%9])
	}
	for _, s := range peers {
		s.wantHanded(`{"wait":"10s"}`, handedAgain(all, s, peers))
		s.wantOwner(1)
	}
	peers[0].answered("ack", 200, all[4], all[7], all[1])
	peers[2].answered("extend", http.StatusConflict, all[4]).wantProblem(t, http.StatusConflict, seb.CodeLeaseLost)
}

// handedAgain returns the offset and attempt of the record that was put back through server s, as it is handed
// out again.
func handedAgain(all []wireMessage, s *server, peers []*server) string {
	for i := range peers {
		if peers[i] == s {
			return fmt.Sprintf("%d#2", all[(3*i+5)%9].Offset)
		}
	}
	return ""
}

func TestLongPollThroughAnotherBrokerGetsWhatComes(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 0)
	for i, through := range []*server{peers[0], peers[1]} {
		got := make(chan answer)
		go func() { got <- peers[1].post(mailPath+"/receive", `{"wait":"30s"}`) }()
		peers[0].untilWaiting(1)
		through.append("orders", "x")
		if ms := (<-got).messages(t); handed(ms) != fmt.Sprintf("%d#1", i) {
			t.Errorf("got %s", handed(ms))
		}
	}
	peers[0].wantOwner(1)
}

// passedOn returns a channel that is closed when another broker has forwarded its first request to
// s. A count of served requests would not show that, since it includes the request that
// begins a connection between brokers.
func (s *server) passedOn() <-chan struct{} {
	came := make(chan struct{})
	tell := sync.OnceFunc(func() { close(came) })
	s.handler.peerServer.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateActive {
			tell()
		}
	}
	return came
}

// untilWaiting waits until n requests are being served.
func (s *server) untilWaiting(n float64) {
	s.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for testutil.ToFloat64(s.handler.metrics.inFlight) != n {
		if time.Now().After(deadline) {
			s.t.Fatalf("%v requests are served", testutil.ToFloat64(s.handler.metrics.inFlight))
		}
	}
}

// untilOwned waits until queue mail's owner has that epoch.
func (s *server) untilOwned(epoch seb.Epoch) {
	s.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		_, now, err := s.broker.Queue("orders", "mail").Owner(s.t.Context())
		if err == nil && now == epoch {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the owner is %d, want %d: %v", now, epoch, err)
		}
	}
}

// A receive that waits through another broker goes on when the owner dies: the other
// broker takes the queue over during the wait.
func TestOwnerThatDiesIsReplacedWithinTheWait(t *testing.T) {
	shared := objstore.NewMemory()
	dying := &brokenStore{Store: shared}
	peers := newPeersWithQueue(t, 3, 0, dying, shared, shared)
	defer dying.down.Store(false)
	got := make(chan answer, 2)
	for _, s := range peers[1:] {
		go func() { got <- s.post(mailPath+"/receive", `{"wait":"20s"}`) }()
	}
	peers[0].untilWaiting(2)
	dying.down.Store(true)
	peers[0].stop()
	peers[1].untilOwned(2)
	peers[1].append("orders", "a\nb\n", "Content-Type", typeNDJSON)
	seen := map[string]bool{}
	for range 2 {
		a := <-got
		a.want(t, 200)
		seen[handed(a.messages(t))] = true
	}
	if !seen["0#1"] || !seen["1#1"] {
		t.Errorf("handed out were %v", seen)
	}
}

// An owner that shuts down hands its queue over, with what it knows of deliveries.
func TestOwnerThatShutsDownIsReplaced(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 2)
	first := peers[1].wantHanded("", "0#1")
	if err := peers[0].broker.Close(); err != nil {
		t.Fatal(err)
	}
	peers[1].wantHanded(`{"max":2}`, "1#1")
	peers[1].answered("ack", 200, first...)
	peers[1].wantOwner(2)
}

// fakeOwner returns a server on a log in which queue mail has an owner with a valid session, whose
// requests handler serves.
func fakeOwner(t *testing.T, handler http.HandlerFunc) *server {
	t.Helper()
	f := newFakePeer(t, handler)
	owner, s := ownedAt(t, objstore.NewMemory(), f.url)
	f.identity.Store(identityOf(owner.broker))
	return s
}

// fakePeer is a server that answers in place of a broker, with the session of its identity.
type fakePeer struct {
	url      string
	handler  http.Handler
	identity atomic.Pointer[peer.Identity]
}

func newFakePeer(t *testing.T, handler http.Handler) *fakePeer {
	t.Helper()
	f := &fakePeer{}
	inner := &http.Server{
		Handler: handler, ReadHeaderTimeout: readHeaderTimeout, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn),
		BaseContext: func(l net.Listener) context.Context { return l.(*peerConn).base },
	}
	f.handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, err := f.identity.Load().Accept(context.Background(), w)
		if err != nil {
			return // the other side reports the error
		}
		conn.Trust()
		if err := inner.Serve(&peerConn{Conn: conn, base: context.WithValue(context.Background(), peerKey{}, conn)}); !errors.Is(err, net.ErrClosed) {
			_ = conn.Close()
		}
	})
	outer := httptest.NewServer(f.handler)
	f.url = outer.URL
	t.Cleanup(func() {
		outer.Close()
		_ = inner.Close()
	})
	return f
}

// ownedAt returns the owner of a queue, which advertises that address, and another broker.
func ownedAt(t *testing.T, store objstore.Store, address string) (owner, s *server) {
	t.Helper()
	owner = serve(t, openBroker(t, store, seb.Options{Address: address}), Options{})
	owner.ownQueue(0)
	s = newPeer(t, store)
	s.handler.patience = patience{200 * time.Millisecond, 300 * time.Millisecond}
	return owner, s
}

func elsewhere(epoch int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(requestIDHeader, r.Header.Get(requestIDHeader))
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(w, `{"code":"queue_elsewhere","status":503,"epoch":%d}`, epoch) // fails if the client has left
	}
}

// unreachable returns a handler that answers a number of times like an owner that can't reach the store.
func unreachable(asked *atomic.Int32, times int32) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(requestIDHeader, r.Header.Get(requestIDHeader))
		if asked.Add(1) <= times {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprint(w, `{"code":"store_unavailable","status":503}`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"messages":[]}`)
	}
}

// Whatever server answers at the owner's address, the queue is taken over and served.
func TestOwnerThatDoesNotAnswerAsOneIsReplaced(t *testing.T) {
	var led atomic.Int32
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { led.Add(1) }))
	defer trap.Close()
	stranger := newServer(t, seb.Options{}, Options{})
	stranger.ownQueue(0)
	for name, handler := range map[string]http.HandlerFunc{
		"it hangs": func(_ http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil { // else the server does not notice that its client leaves
				t.Error(err)
			}
			<-r.Context().Done()
		},
		"it hangs after a sign": func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusProcessing)
			<-r.Context().Done()
		},
		"it dies after a sign": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusProcessing)
			panic(http.ErrAbortHandler)
		},
		"it redirects": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(requestIDHeader, r.Header.Get(requestIDHeader))
			http.Redirect(w, r, trap.URL, http.StatusTemporaryRedirect)
		},
		"it is no broker":     func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
		"it isn't the owner":  elsewhere(1),
		"it knows an earlier": elsewhere(0),
		"it has no store":     unreachable(new(atomic.Int32), 100),
		"it is closing": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(requestIDHeader, r.Header.Get(requestIDHeader))
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprint(w, `{"code":"broker_closed","status":503}`)
		},
		"it answers nonsense": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(requestIDHeader, r.Header.Get(requestIDHeader))
			w.WriteHeader(http.StatusServiceUnavailable)
		},
		"it is of another bucket": stranger.handler.servePeer,
	} {
		t.Run(name, func(t *testing.T) {
			s := fakeOwner(t, handler)
			s.wantReplaced()
			s.wantCounts("mail", 0, 1, 0, 0)
		})
	}
	t.Run("it is not there", func(t *testing.T) {
		ts := httptest.NewServer(nil)
		ts.Close()
		_, s := ownedAt(t, objstore.NewMemory(), ts.URL)
		s.wantReplaced()
	})
	if led.Load() > 0 {
		t.Error("a redirect was followed")
	}
}

// Brokers that can't reach each other take a queue over only once. A request that does not take it over gets no
// log line that says so.
func TestOnlyTakeoversAreLoggedAsSuch(t *testing.T) {
	shared := objstore.NewMemory()
	var servers [2]*server
	var lines [2]*logLines
	for i := range servers {
		ts := httptest.NewServer(nil)
		ts.Close()
		lines[i] = &logLines{}
		servers[i] = newServerOn(t, shared, seb.Options{Address: ts.URL}, Options{Logger: lines[i].logger()})
	}
	servers[0].ownQueue(0)
	for i := range 6 {
		if _, _, err := servers[0].broker.Queue("orders", "mail").Owner(t.Context()); err != nil { // learns that it lost the queue
			t.Fatal(err)
		}
		a := servers[1-i%2].post(mailPath+"/receive", "{}")
		if want := []int{http.StatusOK, http.StatusServiceUnavailable}[i%2]; a.StatusCode != want {
			t.Errorf("request %d: %d %s", i, a.StatusCode, a.body)
		}
	}
	for i, want := range []int{0, 1} {
		if got := strings.Count(lines[i].String(), "the owner of a queue d"); got != want {
			t.Errorf("broker %d: %d lines, want %d: %s", i, got, want, lines[i])
		}
	}
}

// wantReplaced checks that a receive through s makes s take the queue over, and that the receive gets a
// record that is appended then.
func (s *server) wantReplaced() {
	s.t.Helper()
	got := make(chan answer)
	go func() { got <- s.post(mailPath+"/receive", `{"wait":"20s"}`) }()
	s.untilOwned(2)
	s.append("orders", "x")
	if ms := (<-got).messages(s.t); handed(ms) != "0#1" {
		s.t.Errorf("handed out %s", handed(ms))
	}
}

// An owner at its limit on connections accepts new ones late. It must not lose its queues for that, since
// anyone can open connections without a key.
func TestOwnerThatTakesConnectionsLateIsNotReplaced(t *testing.T) {
	t.Parallel() // it waits for seconds
	f := newFakePeer(t, unreachable(new(atomic.Int32), 0))
	late := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(2500 * time.Millisecond): // longer than patience.first, and longer than a dial may take
		case <-r.Context().Done(): // the client has given up
			return
		}
		f.handler.ServeHTTP(w, r)
	}))
	defer late.Close()
	owner, s := ownedAt(t, objstore.NewMemory(), late.URL)
	f.identity.Store(identityOf(owner.broker))
	s.handler.patience = patience{time.Second, 30 * time.Second}
	s.post(mailPath+"/receive", `{}`).want(t, http.StatusOK)
	s.wantOwner(1)
}

// If no broker can reach the store, no broker takes a queue from its owner: else each would
// take it from the others when the store is back.
func TestOwnerWithoutItsStoreIsReplacedByNoBrokerWithoutOne(t *testing.T) {
	view := storetest.NewFaulty(objstore.NewMemory())
	var asked atomic.Int32
	f := newFakePeer(t, unreachable(&asked, 100))
	owner, s := ownedAt(t, view, f.url)
	f.identity.Store(identityOf(owner.broker))
	if err := s.broker.NameSession(t.Context()); err != nil {
		t.Fatal(err)
	}
	view.SetDown(true)
	s.post(mailPath+"/receive", `{}`).wantProblem(t, http.StatusServiceUnavailable, seb.CodeStoreUnavailable)
	if asked.Load() != 1 {
		t.Errorf("the owner was asked %d times", asked.Load())
	}
	view.SetDown(false)
	s.wantOwner(1)
}

// After an outage of the store for all brokers, the owner keeps its queue.
func TestOwnerThatHasItsStoreAgainKeepsTheQueue(t *testing.T) {
	var asked atomic.Int32
	s := fakeOwner(t, unreachable(&asked, 1))
	if ms := s.post(mailPath+"/receive", `{}`).messages(t); len(ms) > 0 || asked.Load() != 2 {
		t.Errorf("handed out %s when %d were asked", handed(ms), asked.Load())
	}
	s.wantOwner(1)
}

// The owner's answer is passed back unchanged, and the owner gets exactly the client's request.
func TestRequestIsPassedOnAsItIs(t *testing.T) {
	asked := make(chan *http.Request, 1)
	s := fakeOwner(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- r
		w.Header().Set(requestIDHeader, r.Header.Get(requestIDHeader))
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = fmt.Fprint(w, `{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"no","code":"over_memory_budget","hint":"wait"}`)
	})
	a := s.post(mailPath+"/receive", `{"wait":"20s","lease":"1m"}`, requestIDHeader, "mine", "Traceparent", "00-a-b-00", "Cookie", "c=d", "Connection", "X-Mine", "X-Mine", "1")
	a.wantProblem(t, http.StatusTooManyRequests, seb.CodeOverMemoryBudget)
	a.wantHeader(t, "Retry-After", "7")
	a.wantHeader(t, "Set-Cookie", "")
	a.wantHeader(t, requestIDHeader, "mine")
	r := <-asked
	if r.URL.Path != mailPath+"/receive" || r.Method != "POST" || r.Header.Get("Traceparent") == "" || r.Header.Get("Cookie")+r.Header.Get("X-Mine") != "" ||
		r.Header.Get(forwardedHeader) != s.broker.TopicTag(1) {
		t.Errorf("asked was %s %s %v", r.Method, r.URL, r.Header)
	}
	s.wantOwner(1)
}

// A broker to which a request was forwarded does not forward it again: it answers with the owner's
// address.
func TestRequestIsPassedOnOnce(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 1)
	mark := peers[1].broker.TopicTag(1)
	a := peers[1].post(mailPath+"/receive", `{}`, forwardedHeader, mark)
	a.wantProblem(t, http.StatusServiceUnavailable, seb.CodeQueueElsewhere)
	var told problem
	a.json(t, &told)
	if told.Owner != peers[0].url || told.Epoch != 1 {
		t.Errorf("the problem is %s", a.body)
	}
	peers[0].wantHanded("", "0#1")
	peers[1].post(mailPath+"/receive", `{}`, forwardedHeader, "7").wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	peers[1].post(mailPath+"/ack", `{}`, forwardedHeader, mark).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	// A broker that names an owner which nobody knows is asked only a few times.
	var asked atomic.Int32
	liar := fakeOwner(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		elsewhere(99)(w, r)
	})
	liar.post(mailPath+"/receive", `{}`).wantProblem(t, http.StatusServiceUnavailable, seb.CodeQueueElsewhere)
	if n := asked.Load(); n != ownerTries {
		t.Errorf("it was asked %d times", n)
	}
	liar.wantOwner(1)
}

func TestReceiveThroughAnotherBrokerEndsWithItsClient(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 0)
	passedOn := peers[0].passedOn()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		req, err := http.NewRequestWithContext(ctx, "POST", peers[1].url+mailPath+"/receive", strings.NewReader(`{"wait":"5m"}`))
		if err == nil {
			_, err = peers[1].client.Do(req) //nolint:bodyclose // there is no body
		}
		done <- err
	}()
	<-passedOn
	peers[0].untilWaiting(1)
	cancel()
	if err := <-done; err == nil {
		t.Error("it was answered")
	}
	peers[0].untilWaiting(0)
	peers[1].untilWaiting(0)
	peers[0].append("orders", "x")
	peers[1].wantHanded("", "0#1")
}

// A client that has shut down its sending side is also answered through another broker.
func TestHalfClosedClientIsAnsweredThroughAnotherBroker(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 2)
	s := peers[1]
	s.connect = func() (net.Conn, error) {
		return new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	}
	ask := func(path, body string) answer {
		conn := s.dial(fmt.Sprintf("POST %s/%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", mailPath, path, len(body), body))
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		a, _ := answerOn(t, conn)
		return a
	}
	for i := range 2 {
		a := ask("receive", `{}`)
		a.want(t, http.StatusOK)
		var got struct{ Messages []wireMessage }
		if a.json(t, &got); handed(got.Messages) != fmt.Sprintf("%d#1", i) {
			t.Errorf("got %s", a.body)
		}
		ask("extend", `{"tokens":`+tokensOf(t, got.Messages)+`}`).want(t, http.StatusOK)
	}
	peers[0].wantOwner(1)
}

func TestDrainEndsReceivesThroughAnotherBroker(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 0)
	passedOn := peers[0].passedOn()
	got := make(chan answer)
	go func() { got <- peers[1].post(mailPath+"/receive", `{"wait":"5m"}`) }()
	<-passedOn
	peers[0].untilWaiting(1)
	peers[1].handler.Drain()
	if a := <-got; a.StatusCode != 200 || a.body != `{"messages":[]}`+"\n" {
		t.Errorf("drained: %d %s", a.StatusCode, a.body)
	}
}

func TestKeyIsShownToTheOwner(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 1)
	_, ops := newKey(t, peers[0].broker, "ops", seb.ScopeAdmin)
	_, worker := newKey(t, peers[0].broker, "worker", seb.ScopeRead, "orders")
	peers[1].wantOwner(1) // syncs: before that, the broker knows no keys
	if got := peers[1].received("mail", "", bearer(worker)...); handed(got) != "0#1" {
		t.Errorf("got %s", handed(got))
	}
	peers[1].post(mailPath+"/receive", "").wantProblem(t, http.StatusUnauthorized, seb.CodeUnauthorized)
	q := peers[1].get(mailPath, bearer(ops)...)
	if !strings.Contains(q.body, `"leased":1`) {
		t.Errorf("the queue is %s", q.body)
	}
}

// A caller that is authenticated by its certificate is served through another broker, like one with a key.
func TestCallerWithACertificateIsServedByTheOwner(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 1)
	newKey(t, peers[0].broker, "ops", seb.ScopeAdmin)
	newKey(t, peers[0].broker, "worker", seb.ScopeRead)
	peers[1].wantOwner(1) // syncs: before that, the broker knows no keys
	shown := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: "worker"}}}}}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.TLS = shown
		peers[1].handler.ServeHTTP(w, r)
	}))
	defer ts.Close()
	peers[1].url = ts.URL
	peers[1].wantHanded("", "0#1")
	peers[0].wantOwner(1)
}

// While a forwarded request waits at the owner, the owner sends signs of life to the forwarding broker.
func TestOwnerShowsThatItWaits(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.ownQueue(0)
		signs := 0
		trace := &httptrace.ClientTrace{Got1xxResponse: func(status int, _ textproto.MIMEHeader) error {
			if status == http.StatusProcessing {
				signs++
			}
			return nil
		}}
		ctx := httptrace.WithClientTrace(t.Context(), trace)
		req, err := http.NewRequestWithContext(ctx, "POST", s.url+mailPath+"/receive", strings.NewReader(`{"wait":"42s"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(forwardedHeader, s.broker.TopicTag(1))
		began := time.Now()
		resp, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if string(body) != `{"messages":[]}`+"\n" || err != nil || time.Since(began) != 42*time.Second {
			t.Errorf("got %s after %v, %v", body, time.Since(began), err)
		}
		if most := s.handler.patience.later / signInterval; signs < 9 || most < 2 {
			t.Errorf("there were %d signs, and patience for %d", signs, most)
		}
	})
}

func TestOwnerIsDialedWithDialPeer(t *testing.T) {
	shared := objstore.NewMemory()
	owner := newPeer(t, shared)
	owner.ownQueue(1)
	var dialed []string
	other := serve(t, openBroker(t, shared, seb.Options{}), Options{NoPeers: true, DialPeer: func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed = append(dialed, network+" "+address)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}})
	other.wantHanded("", "0#1")
	if want := []string{"tcp " + strings.TrimPrefix(owner.url, "http://")}; !slices.Equal(dialed, want) {
		t.Errorf("dialed %v, want %v", dialed, want)
	}
}

// The broker that gets a receive with acknowledgements commits these itself, and forwards only the rest.
func TestReceiveThroughAnotherBrokerAcknowledgesFirst(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 3)
	ms := peers[1].wantHanded(`{"max":2}`, "0#1 1#1")
	peers[1].wantHanded(`{"ack":`+tokensOf(t, ms)+`}`, "2#1")
	peers[0].wantOwner(1) // syncs, so that the broker knows the other's commits
	peers[0].wantCounts("mail", 0, 1, 0, 0)
}
