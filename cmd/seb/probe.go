package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
)

const (
	probeTimeout   = 30 * time.Second // of one request
	cleanupTimeout = 30 * time.Second // of all deletes together
)

// prober finds out whether a store keeps the promises that the log relies on. It creates and deletes only
// objects whose keys begin with probe/ and its own id.
type prober struct {
	store objstore.Store
	id    string

	mu       sync.Mutex
	progress *progress // of requests
	requests int64
	keys     []string // of the objects to delete at the end
	dates    []dated  // one for each answer with a date
	undated  int      // answers without a date
	samples  map[string][]time.Duration
}

// dated has the store's time in an answer, and the local times at which the request was sent and the answer
// received.
type dated struct{ store, sent, received time.Time }

func newProber(store objstore.Store) *prober {
	var id [8]byte
	rand.Read(id[:])
	return &prober{store: store, progress: newProgress(io.Discard, 0), id: hex.EncodeToString(id[:]), samples: map[string][]time.Duration{}}
}

func (p *prober) prefix() string { return format.ProbePrefix + p.id + "-" }

func (p *prober) key(format string, args ...any) string {
	return p.prefix() + fmt.Sprintf(format, args...)
}

// create creates an object, and stores its key for cleanup.
func (p *prober) create(ctx context.Context, sample, key string, body []byte) error {
	p.mu.Lock()
	if !slices.Contains(p.keys, key) {
		p.keys = append(p.keys, key)
	}
	p.mu.Unlock()
	return p.timed(ctx, sample, func(ctx context.Context) (time.Time, error) {
		return p.store.Create(ctx, key, body)
	})
}

func (p *prober) get(ctx context.Context, sample, key string, off, n int64) (o objstore.Object, err error) {
	err = p.timed(ctx, sample, func(ctx context.Context) (time.Time, error) {
		o, err = p.store.Get(ctx, key, off, n)
		return o.Time, err
	})
	return o, err
}

func (p *prober) list(ctx context.Context, sample, after string, limit int) (page objstore.Page, err error) {
	err = p.timed(ctx, sample, func(ctx context.Context) (time.Time, error) {
		page, err = p.store.List(ctx, p.prefix(), after, limit)
		return page.Time, err
	})
	return page, err
}

// timed runs one request. sample is the row of the latency table in which its duration counts, "" for none.
func (p *prober) timed(ctx context.Context, sample string, request func(context.Context) (time.Time, error)) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	sent := time.Now()
	at, err := request(ctx)
	received := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	p.progress.update(received, p.requests, 0)
	if err != nil && !errors.Is(err, objstore.ErrExists) && !errors.Is(err, objstore.ErrNotFound) {
		return err
	}
	if at.IsZero() {
		p.undated++
	} else {
		p.dates = append(p.dates, dated{at, sent, received})
	}
	if sample != "" {
		p.samples[sample] = append(p.samples[sample], received.Sub(sent))
	}
	return err
}

// race makes several racers create the same object at the same time, in round after round. Exactly one racer
// must win, and the object must have the bytes of the winner: the log relies on this.
func (p *prober) race(ctx context.Context, rounds, racers int) (detail string, err error) {
	unknowns := 0
	for round := range rounds {
		key := p.key("race-%d", round)
		results := make([]error, racers)
		var all sync.WaitGroup
		start := make(chan struct{})
		for racer := range racers {
			all.Go(func() {
				<-start
				results[racer] = p.create(ctx, "", key, raceBody(round, racer))
			})
		}
		close(start)
		all.Wait()
		n, err := p.judgeRace(ctx, key, round, results)
		if err != nil {
			return "", fmt.Errorf("round %d of %d: %w", round+1, rounds, err)
		}
		unknowns += n
	}
	detail = fmt.Sprintf("%d rounds of %d, one winner each", rounds, racers)
	if unknowns > 0 {
		detail += fmt.Sprintf("; %d requests got no clear answer", unknowns)
	}
	return detail, nil
}

func raceBody(round, racer int) []byte { return fmt.Appendf(nil, "round %d, racer %d", round, racer) }

// raceBytesMax is larger than what any racer writes.
const raceBytesMax = 1 << 10

// judgeRace compares the results of the racers' requests with the object. unknowns is how many racers got no
// clear answer.
func (p *prober) judgeRace(ctx context.Context, key string, round int, results []error) (unknowns int, err error) {
	var won []int
	var unknown, full error
	for racer, err := range results {
		switch {
		case err == nil:
			won = append(won, racer)
		case isFull(err):
			full = err
		case !errors.Is(err, objstore.ErrExists):
			unknown = err
			unknowns++
		}
	}
	if len(won) > 1 {
		return unknowns, fmt.Errorf("%d of %d concurrent creates succeeded; exactly one must", len(won), len(results))
	}
	if full != nil { // fewer creates than planned have raced
		return unknowns, full
	}
	if len(won) == 0 && unknowns == 0 {
		return unknowns, fmt.Errorf("none of %d concurrent creates succeeded; exactly one must", len(results))
	}
	o, err := p.get(ctx, "", key, 0, raceBytesMax)
	if err != nil {
		if unknown != nil {
			return unknowns, fmt.Errorf("the object could not be read after the race, and %d creates got no clear answer, the last one: %w", unknowns, unknown)
		}
		return unknowns, fmt.Errorf("the object could not be read after the race: %w", err)
	}
	for racer, err := range results {
		if !bytes.Equal(o.Body, raceBody(round, racer)) {
			continue
		}
		if err == nil || (len(won) == 0 && !errors.Is(err, objstore.ErrExists)) {
			return unknowns, nil
		}
		return unknowns, errors.New("the object has the content of a create that did not succeed")
	}
	return unknowns, fmt.Errorf("none of the concurrent creates sent the content of the object: %q", o.Body)
}

// exists tries to create the objects of the races again, which the store must refuse.
func (p *prober) exists(ctx context.Context, rounds int) (string, error) {
	for round := range rounds {
		key := p.key("race-%d", round)
		before, err := p.get(ctx, "", key, 0, raceBytesMax)
		if err != nil {
			return "", err
		}
		switch err := p.create(ctx, "", key, []byte("late")); {
		case err == nil:
			return "", errors.New("an existing object could be created again")
		case !errors.Is(err, objstore.ErrExists):
			return "", fmt.Errorf("creating an existing object is not refused clearly: %w", err)
		}
		after, err := p.get(ctx, "", key, 0, raceBytesMax)
		if err != nil {
			return "", err
		}
		if !bytes.Equal(before.Body, after.Body) {
			return "", errors.New("a create that was refused changed the object")
		}
	}
	return fmt.Sprintf("refused %d of %d times, objects unchanged", rounds, rounds), nil
}

// cleanup deletes what the prober may have created, even if ctx has ended.
func (p *prober) cleanup(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	for _, key := range p.keys {
		err := p.timed(ctx, "delete", func(ctx context.Context) (time.Time, error) { return p.store.Delete(ctx, key) })
		if err != nil {
			return fmt.Errorf("delete %s: %w", key, err)
		}
	}
	return nil
}
