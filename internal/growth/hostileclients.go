package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	hostileCount = 8         // connections of hostile clients
	hostileValue = 4_000_000 // bytes of the record that slow readers read
	bombBytes    = 64 << 20  // what a gzip bomb decodes to: more than the broker accepts
	hostileTopic = "/v1/topics/bad/records"
)

// hostileClients measures clients with one API key, first alone, then while clients with other keys take as much
// memory or CPU time of the broker as they can.
func hostileClients(ctx context.Context, r *run) error {
	const atOnce, rate = 8 << 20, 320_000
	bodies := throttled{method: http.MethodPost, path: hostileTopic, contentType: "application/x-ndjson", size: 32 << 20, atOnce: atOnce, sendRate: rate}
	commits := bodies
	commits.path, commits.contentType, commits.size, commits.start = "/v1/commits", "application/json", 16<<20, `{"appends":[{"topic":"bad","records":[{"value":"`
	r.row("good clients", "2 that append 1 MiB, 8 that append 5 bytes")
	for _, client := range []throttled{bodies, commits} {
		if err := besiege(ctx, r, client); err != nil {
			return err
		}
	}
	bomb, err := gzipped(bombBytes)
	if err != nil {
		return err
	}
	const record = `{"value":"0123456789012345678901234567890123456789012345678901234567890123456789"},`
	list := `{"appends":[{"topic":"bad","records":[` + strings.Repeat(record, 8<<20/len(record)) // its end is missing
	r.row(fmt.Sprintf("%d hostile clients, each with an API key", hostileCount), "small appends of others, and the rate of others' 1 MiB appends")
	for _, hostile := range []struct {
		what   string
		client throttled
	}{
		{"slow bodies to " + hostileTopic, bodies},
		{"slow readers of a record of 4 MB", throttled{method: http.MethodGet, path: hostileTopic + "?limit=1&offset=0", readRate: 19_000}},
		{"gzip bombs", throttled{method: http.MethodPost, path: hostileTopic, encoding: "gzip", contentType: "application/octet-stream", start: bomb, size: len(bomb), hasty: true}},
		{"malformed lists of 8 MiB", throttled{method: http.MethodPost, path: "/v1/commits", contentType: "application/json", start: list, size: len(list), hasty: true}},
	} {
		if err := besiegeWithKeys(ctx, r, hostile.what, hostile.client); err != nil {
			return err
		}
	}
	return nil
}

// siege is a broker with API keys for the operator, for the good clients, and for the hostile connections.
type siege struct {
	store  string
	broker *broker
	ops    *broker // with the scope admin
	good   *broker
	bad    []*broker // one for each hostile connection
}

// newSiege starts a broker. The hostile connections have as many different API keys as keys says.
func newSiege(ctx context.Context, r *run, keys int) (*siege, error) {
	store, err := r.store()
	if err != nil {
		return nil, err
	}
	// With a long linger, latencies depend less on the speed of the machine, and the broker writes
	// fewer commits, so that the store stays small.
	b, err := r.serve(ctx, store, "--linger", "50ms")
	if err != nil {
		return nil, err
	}
	s := &siege{store: store, broker: b}
	if s.ops, err = b.withKey(ctx, "ops", "admin"); err != nil {
		return nil, err
	}
	if s.good, err = s.ops.withKey(ctx, "good", "write"); err != nil {
		return nil, err
	}
	for i := range hostileCount {
		if i < keys {
			bad, err := s.ops.withKey(ctx, fmt.Sprint("bad", i), "read", "write")
			if err != nil {
				return nil, err
			}
			s.bad = append(s.bad, bad)
			continue
		}
		s.bad = append(s.bad, s.bad[i%keys])
	}
	return s, nil
}

// end kills the broker, and removes its store, which is large.
func (s *siege) end() error {
	s.broker.kill()
	return os.RemoveAll(s.store)
}

// besiege measures the good clients alone, then together with hostile clients that share an API key, and repeats
// both.
func besiege(ctx context.Context, r *run, client throttled) error {
	s, err := newSiege(ctx, r, 1)
	if err != nil {
		return err
	}
	const rounds = 2
	during := time.Duration(r.size(10, 30)) * time.Second
	var largeAlone, smallAlone, large, small latencies
	theirs := make([]string, rounds)
	for i := range rounds {
		one, other := goodClients(ctx, s.good, during)
		largeAlone, smallAlone = largeAlone.and(one), smallAlone.and(other)
		theirs[i] = beset(ctx, s.bad, client, func() {
			one, other := goodClients(ctx, s.good, during)
			large, small = large.and(one), small.and(other)
		})
	}
	r.row(fmt.Sprintf("%d hostile bodies to %s", hostileCount, client.path), theirs...)
	r.row("  1 MiB appends, alone", append(largeAlone.figures(), longest(largeAlone))...)
	r.row("  1 MiB appends, with", append(large.figures(), longest(large), rateAlone(large, largeAlone))...)
	r.row("  small appends, alone", append(smallAlone.figures(), longest(smallAlone))...)
	r.row("  small appends, with", append(small.figures(), longest(small), rateAlone(small, smallAlone))...)
	return s.end()
}

// besiegeWithKeys measures the good clients alone for a short time, then together with hostile clients, each with an
// API key of its own.
func besiegeWithKeys(ctx context.Context, r *run, what string, client throttled) error {
	s, err := newSiege(ctx, r, hostileCount)
	if err != nil {
		return err
	}
	if _, err := s.ops.ask(ctx, http.MethodPost, hostileTopic, strings.Repeat("x", hostileValue)); err != nil {
		return err
	}
	during := time.Duration(r.size(5, 30)) * time.Second
	largeAlone, smallAlone := goodClients(ctx, s.good, during)
	var large, small latencies
	theirs := beset(ctx, s.bad, client, func() { large, small = goodClients(ctx, s.good, during) })
	r.row("  alone", append(smallAlone.figures(), fmt.Sprintf("1 MiB appends: %.1f/s", largeAlone.rate()))...)
	r.row("  with "+what, append(small.figures(), "1 MiB appends: "+rateAlone(large, largeAlone), theirs)...)
	return s.end()
}

// gzipped returns n zeros in gzip.
func gzipped(n int64) (string, error) {
	var all bytes.Buffer
	w := gzip.NewWriter(&all)
	if _, err := io.CopyN(w, zeros{}, n); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	return all.String(), nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func rateAlone(with, alone latencies) string {
	return fmt.Sprintf("%.2f of the rate alone", with.rate()/alone.rate())
}

func longest(l latencies) string { return fmt.Sprintf("longest %.0f ms", float64(l.at(1))/1e6) }

// goodClients appends large and small records at the same time.
func goodClients(ctx context.Context, b *broker, during time.Duration) (large, small latencies) {
	value := strings.Repeat("x", 1<<20)
	var both sync.WaitGroup
	both.Go(func() {
		large = load(ctx, 2, during, func(ctx context.Context, _, _ int) error {
			_, err := b.ask(ctx, http.MethodPost, "/v1/topics/large/records", value)
			return err
		})
	})
	both.Go(func() {
		small = load(ctx, 8, during, func(ctx context.Context, _, _ int) error {
			_, err := b.ask(ctx, http.MethodPost, "/v1/topics/small/records", "small")
			return err
		})
	})
	both.Wait()
	return large, small
}

// withKey creates an API key, and returns a copy of b that sends requests with the key.
func (b *broker) withKey(ctx context.Context, name string, scopes ...string) (*broker, error) {
	var made struct{ Key string }
	if err := b.into(ctx, http.MethodPost, "/v1/keys", fmt.Sprintf(`{"name":%q,"scopes":["%s"]}`, name, strings.Join(scopes, `","`)), &made); err != nil {
		return nil, err
	}
	with := *b
	with.key = made.Key
	return &with, nil
}
