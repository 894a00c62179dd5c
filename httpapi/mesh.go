package httpapi

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/simple-event-broker/seb"
)

// meshPath is the path at which a broker asks another broker for a persistent connection: a WebSocket, which runs
// inside a connection on which both brokers have proved their sessions.
const meshPath = "/v1/peer/mesh"

// peerMessageMax is the largest message that a broker reads from another one, in bytes. A message has a commit's head,
// usually of a few MiB at most, and up to 64 KiB of records. A broker does not send a commit that needs more.
const peerMessageMax = 16 << 20

// A broker that the log does not name yet asks for a free slot when it has tried for askForSlotAfter to win one, and
// then every askForSlotEvery.
const (
	askForSlotAfter = 100 * time.Millisecond
	askForSlotEvery = 5 * time.Second
)

// connectPeers lets the broker open and accept persistent connections to the other brokers of the log.
func (h *Handler) connectPeers(version, zone string) {
	h.broker.Peers().Open(seb.PeerOptions{Version: version, Zone: zone, Dial: h.dialMesh})
}

// introductionHeader has the key of the object that introduces the requesting broker: see [seb.Peers.Introduce]. It is valid only in
// a request for meshPath.
const introductionHeader = "Seb-Introduction"

// errUnintroduced says that the other broker does not know this one, although this one has introduced itself.
var errUnintroduced = errors.New("the other broker does not know this one")

// dialMesh connects to a session.
func (h *Handler) dialMesh(ctx context.Context, session seb.SessionID, address string) (seb.PeerConn, error) {
	ctx = context.WithValue(ctx, addressKey{}, address)
	conn, err := h.askForMesh(ctx, session)
	if !errors.Is(err, errUnintroduced) {
		return conn, err
	}
	if err := h.introduce(ctx, session); err != nil {
		return nil, fmt.Errorf("name this broker in the log: %w", err)
	}
	return h.askForMesh(ctx, session)
}

// askForMesh connects to a session, and asks it for a persistent connection. This broker introduces itself only to a broker that
// has proved its session, so it stores nothing for one that has ended.
func (h *Handler) askForMesh(ctx context.Context, session seb.SessionID) (seb.PeerConn, error) {
	ctx, cancel := context.WithTimeout(ctx, ownerDialMax+ownerConnectMax)
	defer cancel()
	raw, err := h.peers.connect(ctx, "tcp", net.JoinHostPort(hex.EncodeToString(session[:]), "80"))
	if err != nil {
		return nil, fmt.Errorf("connect to a broker: %w", err)
	}
	header := http.Header{}
	introduction, err := h.broker.Peers().Introduce(ctx)
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("introduce this broker to another one: %w", err)
	}
	if introduction != "" {
		header.Set(introductionHeader, introduction)
	}
	once := &http.Transport{
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return raw, nil },
		DisableCompression: true, MaxResponseHeaderBytes: headerBytesMax,
	}
	conn, resp, err := websocket.Dial(ctx, meshURL(session), &websocket.DialOptions{ //nolint:bodyclose // the WebSocket has taken over the body
		HTTPClient: &http.Client{Transport: once}, CompressionMode: websocket.CompressionDisabled, HTTPHeader: header,
	})
	if err == nil {
		return newMeshConn(conn), nil
	}
	_ = raw.Close()
	switch {
	case resp != nil && resp.StatusCode == http.StatusNotFound:
		return nil, errors.New("the other broker keeps no connections: it runs with --no-peers, or an older version of Seb")
	case resp != nil && resp.StatusCode == http.StatusForbidden && introduction != "":
		return nil, fmt.Errorf("%w: %w", errUnintroduced, err)
	}
	return nil, fmt.Errorf("connect to a broker: %w", err)
}

// introduce names this broker in the log, since the other one is of an older version, or has not found the introduction. A broker that commits all the time wins each slot from a new one. So while this
// takes long, introduce asks the broker with that session for a free slot. checkPeer refuses the request, and notes it.
func (h *Handler) introduce(ctx context.Context, session seb.SessionID) error {
	named := make(chan error, 1)
	go func() { named <- h.broker.NameSession(ctx) }()
	for pause := askForSlotAfter; ; pause = askForSlotEvery {
		select {
		case err := <-named:
			return err //nolint:wrapcheck // the caller wraps it
		case <-time.After(pause):
		}
		if err := h.askForSlot(ctx, session); err != nil {
			return err
		}
	}
}

func (h *Handler) askForSlot(ctx context.Context, session seb.SessionID) error {
	ctx, cancel := context.WithTimeout(ctx, ownerDialMax+ownerConnectMax)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, meshURL(session), nil)
	if err != nil {
		return err //nolint:wrapcheck // the caller wraps it
	}
	resp, err := h.peers.http.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("ask another broker for a free slot: %w", err)
	}
	return resp.Body.Close() //nolint:wrapcheck // the caller wraps it
}

// meshURL returns the URL of meshPath at a session. The context of a request has the address.
func meshURL(session seb.SessionID) string {
	return "http://" + hex.EncodeToString(session[:]) + meshPath
}

// acceptMesh turns a request of another broker into a persistent connection. checkPeer has checked that the log names
// the broker's session.
func (h *Handler) acceptMesh(w *response, r *http.Request) {
	if h.drained() {
		h.fail(w, r, errShuttingDown())
		return
	}
	_ = w.conn.SetReadDeadline(time.Time{})
	conn, err := websocket.Accept(w.ResponseWriter, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		w.status = http.StatusBadRequest // Accept has answered, unless the other side has left
		return
	}
	w.status = http.StatusSwitchingProtocols
	session := seb.SessionKey(peerOf(r).Session())
	go h.broker.Peers().Serve(newMeshConn(conn), session) // in a goroutine: the connection outlives the request
}

// meshConn is a WebSocket as a [seb.PeerConn].
type meshConn struct{ *websocket.Conn }

func newMeshConn(conn *websocket.Conn) meshConn {
	conn.SetReadLimit(peerMessageMax)
	return meshConn{conn}
}

// Receive implements [seb.PeerConn].
func (c meshConn) Receive(ctx context.Context) ([]byte, error) {
	_, b, err := c.Read(ctx)
	return b, err //nolint:wrapcheck // the error says what has ended the connection
}

// Send implements [seb.PeerConn].
func (c meshConn) Send(ctx context.Context, message []byte) error {
	return c.Write(ctx, websocket.MessageBinary, message) //nolint:wrapcheck // the error says what has ended the connection
}

// Close implements [seb.PeerConn].
func (c meshConn) Close() { _ = c.CloseNow() }
