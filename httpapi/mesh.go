package httpapi

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
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

// dialMesh connects to a session.
func (h *Handler) dialMesh(ctx context.Context, session seb.SessionID, address string) (seb.PeerConn, error) {
	ctx = context.WithValue(ctx, addressKey{}, address)
	if err := h.introduce(ctx, session); err != nil {
		return nil, fmt.Errorf("name this broker in the log: %w", err)
	}
	dialing, cancel := context.WithTimeout(ctx, ownerDialMax+ownerConnectMax)
	defer cancel()
	conn, resp, err := websocket.Dial(dialing, meshURL(session), &websocket.DialOptions{ //nolint:bodyclose // the WebSocket has taken over the body
		HTTPClient: &http.Client{Transport: h.peers.http}, CompressionMode: websocket.CompressionDisabled,
	})
	switch {
	case err != nil && resp != nil && resp.StatusCode == http.StatusNotFound:
		return nil, errors.New("the other broker keeps no connections: it runs with --no-peers, or an older version of Seb")
	case err != nil:
		return nil, fmt.Errorf("connect to a broker: %w", err)
	}
	return newMeshConn(conn), nil
}

// introduce names this broker in the log. A broker that commits all the time wins each slot from a new one. So while this
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
