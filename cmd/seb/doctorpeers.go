package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/httpapi"
	"github.com/simple-event-broker/seb/internal/format"
)

const (
	// peerCommits is of how many of the newest commits doctor reads who wrote them.
	peerCommits = 50
	// peerHeadMax is how much of a commit doctor reads at most.
	peerHeadMax = 256 << 10
	// peerProbeTimeout bounds the connection to a broker.
	peerProbeTimeout = 15 * time.Second
)

// brokerInfo is a broker that has written one of the newest commits.
type brokerInfo struct {
	Session   string     `json:"session"`
	Address   string     `json:"address"` // empty if it advertises none
	LastSlot  format.Seq `json:"last_slot"`
	At        time.Time  `json:"last_commit"` // by the store's clock
	Reached   bool       `json:"reached"`
	Proven    bool       `json:"proven"` // the broker at the address has proved that it has the session
	RoundTrip float64    `json:"round_trip_seconds,omitempty"`
	Error     string     `json:"error,omitempty"`

	id format.SessionID
}

// brokers prints which brokers have written the newest commits, and whether this machine reaches them.
func (d *diagnosis) brokers(ctx context.Context) error {
	list, err := d.writers(ctx)
	if err != nil || len(list) == 0 {
		return err
	}
	var probes sync.WaitGroup
	for i := range list {
		if b := &list[i]; b.Address != "" {
			probes.Go(func() { b.probe(ctx) })
		}
	}
	probes.Wait()
	d.Brokers = list
	d.printf("\n  brokers that wrote the last %d commits, as seen from this machine:\n", peerCommits)
	for _, b := range list {
		state := d.paint(red, "not reached")
		switch {
		case b.Address == "":
			state = "advertises no address, so other brokers can't connect to it"
		case b.Proven:
			state = d.paint(green, "reached, and it has proved its session") + fmt.Sprintf(", connected in %.1f ms", b.RoundTrip*1e3)
		case b.Reached:
			state = d.paint(red, "reached, but it has not proved its session")
		}
		d.printf("    %-24s session %s..., last commit %v, %s: %s\n", orDash(b.Address), b.Session[:8], b.LastSlot, b.At.Format(time.RFC3339), state)
		if b.Error != "" {
			d.printf("      %s\n", b.Error)
		}
	}
	return nil
}

// writers returns the brokers of the newest commits: of each address the newest, and those without an address.
func (d *diagnosis) writers(ctx context.Context) (list []brokerInfo, err error) {
	keys, err := d.newestCommits(ctx)
	for i := len(keys) - 1; err == nil && i >= 0; i-- {
		var o objectStart
		if o, err = d.start(ctx, keys[i]); err != nil {
			return nil, err
		}
		c, err := format.DecodeCommit(o.body)
		if err != nil {
			if o.cut {
				continue // the head is larger
			}
			return nil, fmt.Errorf("%s: %w", keys[i], err)
		}
		m := c.Mark()
		if m == nil || slices.ContainsFunc(list, func(b brokerInfo) bool { return b.id == m.Session || b.Address == m.Address && m.Address != "" }) {
			continue
		}
		list = append(list, brokerInfo{
			id: m.Session, Session: hex.EncodeToString(m.Session[:]), Address: m.Address, LastSlot: c.Seq, At: time.UnixMicro(c.Time).UTC(),
		})
	}
	return list, err
}

// objectStart is the first bytes of an object.
type objectStart struct {
	body []byte
	cut  bool // there are more
}

func (d *diagnosis) start(ctx context.Context, key string) (objectStart, error) {
	o, err := d.store.Get(ctx, key, 0, peerHeadMax)
	return objectStart{o.Body, o.Size > int64(len(o.Body))}, err
}

// newestCommits returns the keys of the newest commits, ascending.
func (d *diagnosis) newestCommits(ctx context.Context) (keys []string, err error) {
	checkpoint, err := d.newestCheckpoint(ctx)
	if err != nil {
		return nil, err
	}
	after := ""
	if s, ok := format.ParseSeqKey(format.CheckpointPrefix, checkpoint); ok && s > peerCommits {
		after = format.LogKey(s - peerCommits)
	}
	for more := true; more; {
		page, err := d.store.List(ctx, format.LogPrefix, after, 0)
		if err != nil {
			return nil, err
		}
		if len(page.Keys) == 0 && page.More {
			return nil, errors.New("the list of commits does not go on")
		}
		if more = page.More; len(page.Keys) > 0 {
			after = page.Keys[len(page.Keys)-1]
		}
		keys = append(keys, page.Keys...)
		keys = keys[max(0, len(keys)-peerCommits):]
	}
	return keys, nil
}

func (b *brokerInfo) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, peerProbeTimeout)
	defer cancel()
	p := httpapi.ProbePeer(ctx, b.Address, b.id)
	b.Reached, b.Proven, b.RoundTrip = p.Reached, p.Proven, p.RoundTrip.Seconds()
	if p.Err != nil {
		b.Error = p.Err.Error()
	}
}
