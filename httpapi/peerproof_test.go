package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/peer"
	"github.com/simple-event-broker/seb/objstore"
)

// eavesdropper is a listener that keeps all bytes that it receives, and answers as the test says.
type eavesdropper struct {
	url  string
	mu   sync.Mutex
	sent bytes.Buffer
}

func newEavesdropper(t *testing.T, answer func(conn net.Conn)) *eavesdropper {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &eavesdropper{url: "http://" + l.Addr().String()}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() {
				defer func() { _ = conn.Close() }()
				answer(&heard{conn, e})
			})
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		tasks.Wait()
	})
	return e
}

// heard is a connection whose read bytes the eavesdropper keeps.
type heard struct {
	net.Conn
	by *eavesdropper
}

func (h *heard) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	h.by.mu.Lock()
	defer h.by.mu.Unlock()
	h.by.sent.Write(b[:n])
	return n, err //nolint:wrapcheck // the connection's error, unchanged
}

func (e *eavesdropper) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sent.String()
}

const forgedAnswer = `{"messages":[{"token":"forged","attempt":1,"leased_until":"2026-01-01T00:00:00Z","partition":0,"offset":0,"timestamp":"2026-01-01T00:00:00Z","value":"forged"}]}`

// A stranger that listens at the address of a dead broker receives no key, no token and no record, and its
// answers are not believed.
func TestForgedOwnerGetsNothingAndIsNotBelieved(t *testing.T) {
	_, strangers, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := peer.NewIdentity(strangers)
	if err != nil {
		t.Fatal(err)
	}
	forged := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(requestIDHeader, r.Header.Get(requestIDHeader))
		w.Header().Set("Content-Type", typeJSON)
		_, _ = io.WriteString(w, forgedAnswer) // fails if the client has left
	})
	other := newFakePeer(t, forged)
	other.identity.Store(stranger)
	for name, answers := range map[string]http.Handler{"plain HTTP": forged, "another session": other.handler} {
		t.Run(name, func(t *testing.T) {
			e := &eavesdropper{}
			ts := httptest.NewUnstartedServer(answers)
			ts.Listener = &hearing{ts.Listener, e}
			ts.Start()
			defer ts.Close()
			owner, s := ownedAt(t, objstore.NewMemory(), ts.URL)
			_, secret := newKey(t, owner.broker, "worker", seb.ScopeAdmin)
			s.wantOwner(1) // syncs: before that, the broker knows no keys
			owner.append("orders", "x", bearer(secret)...)
			a := s.post(mailPath+"/receive", `{"max":7,"lease":"97s"}`, bearer(secret)...)
			a.want(t, http.StatusOK)
			if strings.Contains(a.body, "forged") {
				t.Errorf("the answer is %s", a.body)
			}
			if owned, epoch, err := s.broker.Queue("orders", "mail").Owner(t.Context()); err != nil || epoch != 2 {
				t.Errorf("the owner is %s with epoch %d: %v", owned, epoch, err)
			}
			got := e.text()
			if got == "" {
				t.Error("nobody has asked there")
			}
			for _, kept := range []string{secret, "Authorization", "Bearer", "97s", "orders", callerHeader, forwardedHeader} {
				if strings.Contains(got, kept) {
					t.Errorf("it was told %q", kept)
				}
			}
		})
	}
}

// hearing is a listener whose connections an eavesdropper records.
type hearing struct {
	net.Listener
	by *eavesdropper
}

func (l *hearing) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // the listener's error, unchanged
	}
	return &heard{conn, l.by}, nil
}

// asPeer returns a function that sends requests to a broker with the session of identity.
func asPeer(t *testing.T, to *server, identity *peer.Identity) func(headers ...string) answer {
	t.Helper()
	client := newPeerClient(identity, Options{})
	t.Cleanup(client.http.CloseIdleConnections)
	return func(headers ...string) answer {
		t.Helper()
		ctx, url := urlOf(t.Context(), &seb.Error{Address: to.url, Session: to.broker.Session()}, mailPath+"/receive")
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Add(headers[i], headers[i+1])
		}
		resp, err := client.http.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer{Response: resp, body: string(body)}
	}
}

// A broker on a copy of the bucket has the cluster's id and all of its history. But the original
// log does not name its session.
func TestBrokerOfACopiedBucketIsRefused(t *testing.T) {
	store := objstore.NewMemory()
	owner := newPeer(t, store)
	owner.ownQueue(1)
	_, ops := newKey(t, owner.broker, "ops", seb.ScopeAdmin)
	copied := objstore.NewMemory()
	copyBucket(t, store, copied)
	staging := newPeer(t, copied)
	if err := staging.broker.NameSession(t.Context()); err != nil {
		t.Fatal(err)
	}
	ask := asPeer(t, owner, identityOf(staging.broker))
	a := ask(forwardedHeader, staging.broker.TopicTag(1), callerHeader, "key 1")
	a.wantProblem(t, http.StatusForbidden, codeBrokerUnknown)
	// The broker of the copied bucket goes on with the copy alone.
	if got := staging.received("mail", "", bearer(ops)...); handed(got) != "" { // all records are in the uncertain range
		t.Errorf("the copy's broker hands out %s", handed(got))
	}
	staging.wantOwner(2)
	if _, epoch, err := owner.broker.Queue("orders", "mail").Owner(t.Context()); err != nil || epoch != 1 {
		t.Errorf("the owner is of epoch %d: %v", epoch, err)
	}
	if got := owner.received("mail", "", bearer(ops)...); handed(got) != "0#1" {
		t.Errorf("the owner hands out %s", handed(got))
	}
}

func copyBucket(t *testing.T, from, to objstore.Store) {
	t.Helper()
	page, err := from.List(t.Context(), "", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range page.Keys {
		got, err := from.Get(t.Context(), key, 0, -1)
		if err == nil {
			_, err = to.Create(t.Context(), key, got.Body)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The owner trusts a proven broker only for who the caller is. What the caller may do, the owner
// looks up itself.
func TestOwnerAuthorizesWhomABrokerNames(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 3)
	_, ops := newKey(t, peers[0].broker, "ops", seb.ScopeAdmin)
	worker, _ := newKey(t, peers[0].broker, "worker", seb.ScopeRead)
	writer, _ := newKey(t, peers[0].broker, "writer", seb.ScopeWrite)
	if err := peers[1].broker.NameSession(t.Context()); err != nil {
		t.Fatal(err)
	}
	ask := asPeer(t, peers[0], identityOf(peers[1].broker))
	mark := peers[1].broker.TopicTag(1)
	id := func(k seb.Key) string { return fmt.Sprintf("key %d", k.ID) }
	ask(forwardedHeader, mark, callerHeader, id(worker)).want(t, http.StatusOK)
	ask(forwardedHeader, mark, callerHeader, id(writer)).wantProblem(t, http.StatusForbidden, seb.CodeForbidden)
	ask(forwardedHeader, mark, callerHeader, callerAnyone).wantProblem(t, http.StatusUnauthorized, seb.CodeUnauthorized)
	ask(forwardedHeader, mark, callerHeader, "key 99").wantProblem(t, http.StatusUnauthorized, seb.CodeUnauthorized)
	for _, bad := range [][]string{
		{forwardedHeader, mark}, {callerHeader, id(worker)}, {forwardedHeader, mark, callerHeader, "key 0"}, {forwardedHeader, mark, callerHeader, "worker"},
		{forwardedHeader, mark, callerHeader, id(worker), callerHeader, id(writer)}, {forwardedHeader, mark, callerHeader, ""}, {},
	} {
		ask(bad...).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	}
	// Requests from others can't name a caller.
	peers[0].post(mailPath+"/receive", "{}", forwardedHeader, mark, callerHeader, id(worker)).wantProblem(t, http.StatusUnauthorized, seb.CodeUnauthorized)
	peers[0].post(mailPath+"/receive", "{}", append(bearer(ops), callerHeader, id(worker))...).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	peers[0].do("DELETE", "/v1/keys/"+fmt.Sprint(worker.ID), nil, bearer(ops)...).want(t, http.StatusNoContent)
	ask(forwardedHeader, mark, callerHeader, id(worker)).wantProblem(t, http.StatusUnauthorized, seb.CodeUnauthorized)
}

// A connection between brokers can't hold another one: nested connections would take memory that no budget counts.
func TestConnectionBetweenBrokersHoldsNoOther(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 0)
	s, other := peers[0], identityOf(peers[1].broker)
	if err := peers[1].broker.NameSession(t.Context()); err != nil {
		t.Fatal(err)
	}
	outer := askOf(t, s, other)
	if _, err := other.Ask(t.Context(), outer, "broker", peer.Key(s.broker.Session()).Is); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a connection within the connection: %v", err)
	}
}

// askOf returns a connection to a broker on which identity has proved its session.
func askOf(t *testing.T, to *server, identity *peer.Identity) net.Conn {
	t.Helper()
	host := strings.TrimPrefix(to.url, "http://")
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := identity.Ask(t.Context(), conn, host, peer.Key(to.broker.Session()).Is)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = outer.Close() })
	return outer
}

// Anyone can make a session. A session that the log does not name gets one answer, whatever it asks
// for, and the answer is not a server error.
func TestConnectionOfAnUnknownSessionEnds(t *testing.T) {
	for _, request := range []string{
		"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n",
		// No interim response may come before the session is known to be one of the log.
		"POST " + mailPath + "/receive HTTP/1.1\r\nHost: x\r\nSeb-Caller: anyone\r\nSeb-Forwarded: x.1\r\nContent-Length: 0\r\n\r\n",
	} {
		s := newPeer(t, objstore.NewMemory())
		conn := askOf(t, s, identityOf(newPeer(t, objstore.NewMemory()).broker))
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(conn) // until the server closes it
		if err != nil || !strings.HasPrefix(string(said), "HTTP/1.1 403 ") || !strings.Contains(string(said), string(codeBrokerUnknown)) {
			t.Errorf("it is answered with %q: %v", said, err)
		}
	}
}

// Bytes that were recorded on one connection between brokers are useless on another.
func TestReplayedRequestIsRefused(t *testing.T) {
	t.Parallel() // it waits for seconds
	peers := newPeersWithQueue(t, 2, 2)
	e := newEavesdropper(t, func(conn net.Conn) {
		on, err := new(net.Dialer).DialContext(context.Background(), "tcp", strings.TrimPrefix(peers[0].url, "http://"))
		if err != nil {
			return
		}
		defer func() { _ = on.Close() }()
		go func() { _, _ = io.Copy(on, conn) }()
		_, _ = io.Copy(conn, on)
	})
	client := newPeerClient(identityOf(peers[1].broker), Options{DialPeer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, strings.TrimPrefix(e.url, "http://"))
	}})
	peers[1].handler.peers = client
	peers[1].wantHanded("", "0#1")
	client.http.CloseIdleConnections()
	said := e.text()
	if !strings.Contains(said, peer.Path) || strings.Contains(said, "orders") {
		t.Errorf("said was %q", said)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(peers[0].url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	begin, rest, _ := strings.Cut(said, "\r\n\r\n")
	if _, err := io.WriteString(conn, begin+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	from := bufio.NewReader(conn)
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Fatalf("it says %d with %v", resp.StatusCode, resp.Header)
	}
	_, _ = io.WriteString(conn, rest) // the other side may have stopped reading before
	_, _ = io.Copy(io.Discard, from)  // until the other side closes the connection
	peers[0].wantCounts("mail", 1, 1, 0, 0)
	peers[0].wantHanded("", "1#1")
}

// A request with a forged forwarded mark, which names a later owner, causes no store request.
func TestForgedMarkCostsNoStoreRequest(t *testing.T) {
	var gets atomic.Int64
	store := objstore.Observe(objstore.NewMemory(), func(op objstore.Op) {
		if op.Verb == objstore.VerbGet {
			gets.Add(1)
		}
	})
	bubbleOn(t, store, seb.Options{}, Options{}, 0, func(t *testing.T, s *server) {
		s.ownQueue(0)
		s.wantOwner(1)
		before := gets.Load()
		for range 50 {
			s.post(mailPath+"/receive", "{}", forwardedHeader, s.broker.TopicTag(99)).want(t, http.StatusOK)
		}
		if sent := gets.Load() - before; sent > 0 {
			t.Errorf("%d store requests were sent", sent)
		}
	})
}

// A broker that shuts down waits until the requests that others have forwarded to it are answered.
func TestShutdownAnswersWhatWasPassedOn(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 0)
	passedOn := peers[0].passedOn()
	got := make(chan answer)
	go func() { got <- peers[1].post(mailPath+"/receive", `{"wait":"30s"}`) }()
	<-passedOn
	peers[0].untilWaiting(1)
	if err := peers[0].handler.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := <-got; a.StatusCode != http.StatusOK || a.body != `{"messages":[]}`+"\n" {
		t.Errorf("it is answered with %d %s", a.StatusCode, a.body)
	}
	peers[0].untilWaiting(0)
	peers[1].wantOwner(1)
}

// stranger returns a client on a connection on which a broker of another log has proved its
// session.
func (s *server) stranger(t *testing.T) *client {
	t.Helper()
	identity := identityOf(openBroker(t, objstore.NewMemory(), seb.Options{}))
	conn, err := identity.Ask(t.Context(), s.dial(""), "x", peer.Key(s.broker.Session()).Is)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{t, conn, bufio.NewReader(conn)}
}

// The server closes idle connections under a lock: a connection whose other side no longer reads
// must not delay the others.
func TestShutdownWaitsForNoIdleConnectionBetweenBrokers(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		for range 3 {
			s.stranger(t).get("/livez")
		}
		synctest.Wait()
		began := time.Now()
		if err := s.handler.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took >= time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A connection between brokers gives up its place for a waiting client, like any other connection.
func TestConnectionsBetweenBrokersGiveWay(t *testing.T) {
	for what, x := range map[string]struct {
		use   func(t *testing.T, s *server)
		after time.Duration
	}{
		"no handshake": {func(t *testing.T, s *server) {
			a := s.dial("GET " + peer.Path + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: seb-peer/1\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(a), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatal(resp.StatusCode, err)
			}
		}, readHeaderTimeout},
		"no request": {func(t *testing.T, s *server) { s.stranger(t) }, readHeaderTimeout},
		"half a request": {func(t *testing.T, s *server) {
			if _, err := io.WriteString(s.stranger(t).conn, "GET /livez HTTP/1.1\r\n"); err != nil {
				t.Fatal(err)
			}
		}, readHeaderTimeout},
		"after its answer": {func(t *testing.T, s *server) { s.stranger(t).get("/livez") }, 0},
	} {
		t.Run(what, func(t *testing.T) {
			bubbleOf(t, seb.Options{}, 1, func(t *testing.T, s *server) {
				x.use(t, s)
				s.wantServed(t, x.after)
			})
		})
	}
}
