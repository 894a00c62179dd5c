package main

import (
	"encoding/hex"
	"time"

	"github.com/simple-event-broker/seb"
)

// topPeer is a row of the other brokers of the log.
type topPeer struct {
	Session    string     `json:"session"`
	Address    string     `json:"address"`
	State      string     `json:"state"` // connected; commits only (an older version, which does not hand over requests); or not connected
	RoundTrip  *float64   `json:"round_trip_seconds"`
	Version    string     `json:"version"`
	Zone       string     `json:"zone"`
	LastCommit *time.Time `json:"last_commit"`
	Error      string     `json:"error,omitempty"`
}

// peersOf returns a row for each of the other brokers.
func peersOf(peers []seb.PeerInfo) []topPeer {
	rows := []topPeer{}
	for _, p := range peers {
		row := topPeer{Session: hex.EncodeToString(p.Session[:]), Address: p.Address, State: peerState(p), Version: p.Version, Zone: p.Zone}
		if p.RoundTrip > 0 {
			row.RoundTrip = new(p.RoundTrip.Seconds())
		}
		if !p.Committed.IsZero() {
			row.LastCommit = &p.Committed
		}
		if p.Err != nil {
			row.Error = p.Err.Error()
		}
		rows = append(rows, row)
	}
	return rows
}

// peerState returns the state of the connection to another broker in a word.
func peerState(p seb.PeerInfo) string {
	switch {
	case p.HandsOver:
		return "connected"
	case p.Connected:
		return "commits only"
	}
	return "not connected"
}

// peerTable returns the table of the other brokers.
func (v *topView) peerTable() []string {
	return tableOf(func(p *printer) {
		p.printf("BROKER\tSTATE\tROUND TRIP\tZONE\tVERSION\tLAST COMMIT\n")
		for _, x := range v.Peers {
			roundTrip, last := "-", "-"
			if x.RoundTrip != nil {
				roundTrip = time.Duration(*x.RoundTrip * float64(time.Second)).Round(10 * time.Microsecond).String()
			}
			if x.LastCommit != nil {
				last = x.LastCommit.UTC().Format(time.RFC3339)
			}
			p.printf("%s\t%s\t%s\t%s\t%s\t%s\n", orDash(x.Address), x.State, roundTrip, orDash(x.Zone), orDash(x.Version), last)
		}
	})
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
