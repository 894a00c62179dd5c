package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
)

// apiKey is an API key whose creation was acknowledged.
type apiKey struct {
	id     format.KeyID
	secret string
}

// setUpKeys creates the API key that clients use over HTTP, in a log with API keys.
func (s *simulation) setUpKeys() {
	for attempt := 0; s.plan.keys && s.secret == ""; attempt++ {
		s.sleep(between(stream(s.cfg.Seed, "keys", attempt), time.Millisecond, time.Second))
		if s.now() > lifetimeMax {
			s.giveUp("no broker creates an API key")
		}
		l := s.nodes[attempt%len(s.nodes)].current()
		if l == nil {
			continue
		}
		opts := seb.KeyOptions{Name: fmt.Sprintf("ops-%d", attempt), Scopes: seb.ScopeAdmin}
		if _, secret, err := l.broker.CreateKey(context.Background(), opts); err == nil {
			s.secret, s.secretSince = secret, s.now()
		}
	}
}

// useKeys creates or revokes an API key, or authenticates with an API key, all through the library.
func (c *client) useKeys(l *life) {
	s := c.sim
	s.mu.Lock()
	keys := slices.Clone(s.keys)
	s.mu.Unlock()
	if len(keys) == 0 || chance(c.rng, 0.2) {
		c.sent++
		c.createKey(l, fmt.Sprintf("%s.%d", c.name, c.sent))
		return
	}
	key := keys[c.rng.IntN(len(keys))]
	o := &op{kind: shows, apiKey: key.id}
	if chance(c.rng, 0.2) {
		o.kind = revokes
	}
	c.callLibrary(l, o, func(ctx context.Context, b *seb.Broker) (err error) {
		if o.kind == revokes {
			_, err = b.RevokeKey(ctx, key.id)
		} else {
			_, err = b.Authenticate(ctx, seb.Credential{Secret: key.secret})
		}
		return err
	})
}

func (c *client) createKey(l *life, name string) {
	o := &op{kind: grants}
	var secret string
	c.callLibrary(l, o, func(ctx context.Context, b *seb.Broker) error {
		key, text, err := b.CreateKey(ctx, seb.KeyOptions{Name: name, Scopes: seb.ScopeRead})
		o.apiKey, secret = key.ID, text
		return err
	})
	if o.acked() {
		c.sim.mu.Lock()
		defer c.sim.mu.Unlock()
		c.sim.keys = append(c.sim.keys, apiKey{o.apiKey, secret})
	}
}

// callLibrary runs an operation that clients do only through the library.
func (c *client) callLibrary(l *life, o *op, do func(context.Context, *seb.Broker) error) {
	o.client, o.broker, o.via, o.call = c.name, l.name, viaLibrary, c.sim.now()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o.fail(do(ctx, l.broker))
	o.ret = c.sim.now()
	c.sim.history.add(o)
}

// finalShows authenticates with every key at a broker. The caller calls it when the store has had no faults
// for longer than StaleMax, so that the broker must know all revocations.
func (s *simulation) finalShows(l *life) {
	for _, key := range s.keys {
		o := &op{kind: shows, apiKey: key.id, client: atEnd, broker: l.name, via: viaLibrary, call: s.now()}
		_, err := l.broker.Authenticate(context.Background(), seb.Credential{Secret: key.secret})
		o.fail(err)
		o.ret = s.now()
		s.history.add(o)
	}
}

// checkKeys expects a broker to refuse a key that it must have known to be revoked, and to accept
// a key that no client can have revoked.
func (x *checker) checkKeys(ops []*op) {
	for _, o := range ops {
		// A life that began before the log had API keys may let a request without a key begin, and refuse
		// the rest of that request when the life learns of the keys. So the check leaves out such lives.
		if o.failure == seb.CodeUnauthorized && o.via == viaHTTP && x.sim.began(o.broker) >= x.sim.secretSince {
			x.history.violate("KeyAsAsked", "a request was refused although its key was never revoked: %v", o)
		}
		if o.apiKey == 0 {
			continue
		}
		revoked := slices.ContainsFunc(ops, func(r *op) bool {
			return r.kind == revokes && r.apiKey == o.apiKey && r.call <= o.ret && (r.acked() || r.outcome == seb.Unknown)
		})
		inForce := x.final.keys[o.apiKey]
		fresh := x.freshSince(o)
		switch {
		case o.kind == revokes && o.acked() && inForce:
			x.history.violate("KeyAsAsked", "the revoked key is still in force: %v", o)
		case o.kind == shows && o.acked() && slices.ContainsFunc(ops, func(r *op) bool {
			return r.kind == revokes && r.apiKey == o.apiKey && r.acked() && (r.ret <= fresh || r.broker == o.broker && r.ret <= o.call)
		}):
			x.history.violate("KeyAsAsked", "the key was accepted, but the broker must have known that it was revoked: %v", o)
		case o.kind == shows && o.failure == seb.CodeUnauthorized && !revoked:
			x.history.violate("KeyAsAsked", "the key was refused, but no client has revoked it: %v", o)
		case o.kind == shows && o.client == atEnd && o.acked() != inForce:
			x.history.violate("KeyAsAsked", "the broker contradicts the log (key in force: %v): %v", inForce, o)
		}
	}
}
