package httpapi

import (
	"encoding/hex"
	"net/http"

	"github.com/simple-event-broker/seb"
)

// peersJSON is the answer of GET /v1/peers.
type peersJSON struct {
	Session string     `json:"session"` // of this broker
	Peers   []peerJSON `json:"peers"`
}

// peerJSON is what this broker knows of another one.
type peerJSON struct {
	Session    string   `json:"session"`
	Address    string   `json:"address"` // empty if it has told none
	Connected  bool     `json:"connected"`
	HandsOver  bool     `json:"hands_over"`
	RoundTrip  *float64 `json:"round_trip_seconds"` // null if it is not known
	Version    string   `json:"version"`            // empty if there was no connection
	Zone       string   `json:"zone"`
	LastCommit *string  `json:"last_commit"` // null if this broker has read no commit of it since its own start
	Error      string   `json:"error,omitempty"`
}

func (h *Handler) getPeers(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	id := h.broker.Session().ID()
	answer := peersJSON{Session: hex.EncodeToString(id[:]), Peers: []peerJSON{}}
	for _, p := range h.broker.Peers().List(r.Context()) {
		answer.Peers = append(answer.Peers, peerOfJSON(p))
	}
	return writeJSON(w, http.StatusOK, answer)
}

func peerOfJSON(p seb.PeerInfo) peerJSON {
	j := peerJSON{
		Session: hex.EncodeToString(p.Session[:]), Address: p.Address, Connected: p.Connected, HandsOver: p.HandsOver,
		Version: p.Version, Zone: p.Zone,
	}
	if p.RoundTrip > 0 {
		j.RoundTrip = new(p.RoundTrip.Seconds())
	}
	if !p.Committed.IsZero() {
		j.LastCommit = new(p.Committed.UTC().Format(timestampLayout))
	}
	if p.Err != nil && !p.Connected {
		j.Error = p.Err.Error()
	}
	return j
}
