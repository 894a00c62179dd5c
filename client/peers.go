package client

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/simple-event-broker/seb"
)

type peerJSON struct {
	Session    string     `json:"session"`
	Address    string     `json:"address"`
	Connected  bool       `json:"connected"`
	HandsOver  bool       `json:"hands_over"`
	RoundTrip  *float64   `json:"round_trip_seconds"`
	Version    string     `json:"version"`
	Zone       string     `json:"zone"`
	LastCommit *time.Time `json:"last_commit"`
	Error      string     `json:"error"`
}

// Peers does what [seb.Peers.List] does: it returns the other brokers of the log, as the broker sees them. The API key needs the
// scope metrics for all topics.
func (c *Client) Peers(ctx context.Context) ([]seb.PeerInfo, error) {
	res, err := c.send(ctx, &request{method: http.MethodGet, path: []string{"peers"}})
	if err != nil {
		return nil, err
	}
	var j struct {
		Session string     `json:"session"` // of the broker itself
		Peers   []peerJSON `json:"peers"`
	}
	var peers []seb.PeerInfo
	err = res.decode(&j, func() error {
		if _, err := sessionOf(j.Session); err != nil {
			return err
		}
		for _, p := range j.Peers {
			session, err := sessionOf(p.Session)
			if err != nil {
				return err
			}
			peers = append(peers, p.info(session))
		}
		return nil
	})
	return peers, err
}

func (j *peerJSON) info(session seb.SessionID) seb.PeerInfo {
	p := seb.PeerInfo{
		Session: session, Address: j.Address, Connected: j.Connected, HandsOver: j.HandsOver, Version: j.Version, Zone: j.Zone,
	}
	if j.RoundTrip != nil {
		p.RoundTrip = time.Duration(*j.RoundTrip * float64(time.Second))
	}
	if j.LastCommit != nil {
		p.Committed = *j.LastCommit
	}
	if j.Error != "" {
		p.Err = errors.New(j.Error)
	}
	return p
}

// sessionOf reads a session in hex.
func sessionOf(text string) (id seb.SessionID, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("%.100q is no session of a broker", text)
	}
	return seb.SessionID(b), nil
}
