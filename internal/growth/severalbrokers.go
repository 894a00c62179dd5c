package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	severalMedian  = 30 * time.Millisecond // of the store's delay
	severalSigma   = 0.4
	severalWarmUp  = 2 * time.Second  // of each load, not measured
	severalTimeout = 60 * time.Second // how long the last appends of a load may take
	eventPause     = 100 * time.Millisecond
	idleEventPause = 4 * time.Second
)

// steadyLoad is a load of appends at a steady rate, of all brokers together.
type steadyLoad struct {
	rate        int // appends per second
	contentType string
	body        string
}

var (
	smallAppends = steadyLoad{400, "text/plain", strings.Repeat("x", 1<<10)}
	manyRecords  = steadyLoad{40_000 / 64, "application/x-ndjson", strings.Repeat(strings.Repeat("x", 100)+"\n", 64)}
)

// connected lets the brokers connect to each other, although they listen on a loopback address.
var connected = []string{"--advertise", "http://127.0.0.1:0"}

// severalBrokers measures brokers that share a slow store: the latency of appends and the requests to the
// store, then how soon an event that one broker appends reaches a stream at another.
func severalBrokers(ctx context.Context, r *run) error {
	for _, batch := range []struct {
		what  string
		flags []string
	}{
		{"--batch immediate", []string{"--batch", "immediate"}},
		{"--linger 250ms", []string{"--linger", "250ms"}},
	} {
		for _, n := range []int{1, 2, 4, 8} {
			for _, with := range []struct {
				what  string
				flags []string
			}{
				{"", connected},
				{", not connected", []string{"--no-peers"}},
			} {
				if n == 1 && with.what != "" {
					continue
				}
				skipped, err := onSlowStore(ctx, r, n, slices.Concat(batch.flags, with.flags), func(store *slowStore, brokers []*broker) error {
					return appendsThrough(ctx, r, store, brokers, smallAppends, fmt.Sprintf("brokers: %d, %s%s", n, batch.what, with.what))
				})
				if err != nil || skipped {
					return err
				}
			}
		}
	}
	for _, n := range []int{1, 2, 4} {
		_, err := onSlowStore(ctx, r, n, append([]string{"--linger", "100ms"}, connected...), func(store *slowStore, brokers []*broker) error {
			return appendsThrough(ctx, r, store, brokers, manyRecords, fmt.Sprintf("brokers: %d, --linger 100ms, 40,000 records/s", n))
		})
		if err != nil {
			return err
		}
	}
	_, err := onSlowStore(ctx, r, 2, append([]string{"--batch", "immediate"}, connected...), func(store *slowStore, brokers []*broker) error {
		if err := eventsThrough(ctx, r, store, brokers, "one event every 100 ms", eventPause, r.size(50, 200)); err != nil {
			return err
		}
		return eventsThrough(ctx, r, store, brokers, "one event every 4 s", idleEventPause, r.size(3, 15))
	})
	return err
}

// onSlowStore starts n brokers on a new slow store, calls do, and stops the brokers and the store. It
// reports skipped, and prints why, if there is no S3 server.
func onSlowStore(ctx context.Context, r *run, n int, flags []string, do func(*slowStore, []*broker) error) (skipped bool, err error) {
	store, err := startSlowStore(ctx, r, lognormal(severalMedian, severalSigma))
	if errors.Is(err, errNoVersitygw) {
		r.row("skipped", err.Error())
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer store.stop()
	defer r.killAll()
	var brokers []*broker
	for range n {
		b, err := r.serve(ctx, store.slow, append([]string{"--prices", "s3"}, flags...)...)
		if err != nil {
			return false, err
		}
		brokers = append(brokers, b)
	}
	return false, do(store, brokers)
}

// appendsThrough spreads a load over the brokers, and prints the latencies of the appends and the requests to the store.
func appendsThrough(ctx context.Context, r *run, store *slowStore, brokers []*broker, load steadyLoad, what string) error {
	if _, err := brokers[0].ask(ctx, http.MethodPut, "/v1/topics/t", `{}`); err != nil {
		return err
	}
	prices, err := brokers[0].prices(ctx)
	if err != nil {
		return err
	}
	during := time.Duration(r.size(5, 15)) * time.Second
	per := make([]latencies, len(brokers))
	var counted requestCounts
	var loads sync.WaitGroup
	for i, b := range brokers {
		loads.Go(func() { per[i] = b.steady(ctx, load, len(brokers), during) })
	}
	loads.Go(func() {
		pause(ctx, severalWarmUp)
		before := store.requests.now()
		pause(ctx, during)
		counted = store.requests.now().since(before)
	})
	loads.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	figures := []string{spread("p50", per, 0.50), spread("p99", per, 0.99)}
	failed, first := 0, error(nil)
	for _, l := range per {
		if failed += l.failed; first == nil {
			first = l.first
		}
	}
	if failed > 0 {
		figures = append(figures, fmt.Sprintf("%d failed: %.200v", failed, first))
	}
	perSecond := func(n int) float64 { return float64(n) / during.Seconds() }
	figures = append(figures,
		fmt.Sprintf("requests/s: %.1f PUT (%.1f refused), %.1f GET", perSecond(counted.puts), perSecond(counted.refused), perSecond(counted.gets)),
		fmt.Sprintf("$%.0f a month", prices.month(counted, during)))
	r.row(what, figures...)
	return nil
}

// steady sends the part of a load that one of several brokers gets, whether or not earlier appends are answered. It returns the
// latencies of those appends that were sent in the time during after severalWarmUp.
func (b *broker) steady(ctx context.Context, load steadyLoad, brokers int, during time.Duration) latencies {
	ctx, cancel := context.WithTimeout(ctx, severalWarmUp+during+severalTimeout)
	defer cancel()
	gap := time.Second * time.Duration(brokers) / time.Duration(load.rate)
	all := latencies{over: during}
	var mu sync.Mutex
	var appends sync.WaitGroup
	began := time.Now()
	for at := time.Duration(0); at < severalWarmUp+during && ctx.Err() == nil; at += gap {
		pause(ctx, at-time.Since(began))
		appends.Go(func() {
			_, err := b.askAs(ctx, http.MethodPost, "/v1/topics/t/records", load.contentType, load.body)
			took := time.Since(began) - at // from when the append was due, so a late start counts too
			if at < severalWarmUp && err == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				all.took = append(all.took, took)
				return
			}
			if all.failed++; all.first == nil {
				all.first = err
			}
		})
	}
	appends.Wait()
	slices.Sort(all.took)
	return all
}

// spread returns the smallest and the largest of a percentile of several brokers.
func spread(name string, per []latencies, share float64) string {
	low, high := per[0].at(share), per[0].at(share)
	for _, l := range per[1:] {
		low, high = min(low, l.at(share)), max(high, l.at(share))
	}
	if len(per) == 1 {
		return fmt.Sprintf("%s %d ms", name, low.Milliseconds())
	}
	return fmt.Sprintf("%s %d-%d ms", name, low.Milliseconds(), high.Milliseconds())
}

// storePrices are the prices of a million requests, in dollars.
type storePrices struct {
	ClassA float64 `json:"class_a_per_million"`
	ClassB float64 `json:"class_b_per_million"`
}

// prices returns the prices with which the broker computes its bill.
func (b *broker) prices(ctx context.Context) (storePrices, error) {
	var bill struct {
		Prices *storePrices `json:"prices"`
	}
	if err := b.into(ctx, http.MethodGet, "/v1/bill", "", &bill); err != nil {
		return storePrices{}, err
	}
	if bill.Prices == nil {
		return storePrices{}, errors.New("the broker's bill has no prices")
	}
	return *bill.Prices, nil
}

// month returns what the requests of the time during cost in 30 days, if they go on.
func (p storePrices) month(c requestCounts, during time.Duration) float64 {
	const month = 30 * 24 * time.Hour
	once := (p.ClassA*float64(c.puts+c.lists) + p.ClassB*float64(c.gets)) / 1e6
	return once * float64(month) / float64(during)
}

// eventsThrough appends n events through the first broker, one every gap on average, once the second one is connected to it. It prints how
// long after the request each event was acknowledged, and how long after the request it reached a stream at the second broker.
func eventsThrough(ctx context.Context, r *run, store *slowStore, brokers []*broker, what string, gap time.Duration, n int) error {
	const topic = "events"
	if _, err := brokers[0].ask(ctx, http.MethodPut, "/v1/topics/"+topic, `{}`); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(n)*gap+severalTimeout)
	defer cancel()
	stream, err := brokers[1].stream(ctx, topic)
	if err != nil {
		return err
	}
	defer stream.close()
	if err := brokers[0].meet(ctx, brokers[1]); err != nil {
		return err
	}
	before := store.requests.now()
	var mu sync.Mutex
	var acknowledged, seen latencies
	sent := make([]time.Time, n)
	read := make(chan error, 1)
	go func() {
		read <- stream.values(func(value string) (more bool, err error) {
			i, err := strconv.Atoi(value)
			if err != nil || i < 0 || i >= n {
				return false, fmt.Errorf("the stream has an unexpected event %q", value)
			}
			mu.Lock()
			defer mu.Unlock()
			seen.took = append(seen.took, time.Since(sent[i]))
			return len(seen.took) < n, nil
		})
	}()
	var appends sync.WaitGroup
	for i := range n {
		mu.Lock()
		sent[i] = time.Now()
		mu.Unlock()
		appends.Go(func() {
			began := time.Now()
			_, err := brokers[0].ask(ctx, http.MethodPost, "/v1/topics/"+topic+"/records", strconv.Itoa(i))
			mu.Lock()
			defer mu.Unlock()
			acknowledged.took = append(acknowledged.took, time.Since(began))
			if err != nil && acknowledged.first == nil {
				acknowledged.first = err
				cancel()
			}
		})
		pause(ctx, gap*3/4+rand.N(gap/2)) // random, so that no poll of a broker always comes at the same time as an event
	}
	appends.Wait()
	err = <-read
	if acknowledged.first != nil {
		return acknowledged.first
	}
	if err != nil {
		return err
	}
	slices.Sort(acknowledged.took)
	slices.Sort(seen.took)
	at := func(l latencies) string {
		return fmt.Sprintf("p50 %d ms, p99 %d ms", l.at(0.50).Milliseconds(), l.at(0.99).Milliseconds())
	}
	counted := store.requests.now().since(before)
	r.row(what+", through another broker", "acknowledged: "+at(acknowledged), "seen: "+at(seen),
		fmt.Sprintf("%d events: %d PUT, %d GET, %d LIST", n, counted.puts, counted.gets, counted.lists))
	return nil
}

// meet appends until another broker has connected to this one.
func (b *broker) meet(ctx context.Context, other *broker) error {
	for ctx.Err() == nil {
		if _, err := b.ask(ctx, http.MethodPost, "/v1/topics/meet/records", "x"); err != nil {
			return err
		}
		peers, err := other.metric(ctx, "seb_peers")
		if err != nil || peers > 0 {
			return err
		}
		pause(ctx, 100*time.Millisecond)
	}
	return ctx.Err()
}

// eventReader reads server-sent events.
type eventReader struct {
	body  io.ReadCloser
	lines *bufio.Scanner
}

// stream opens a stream of the records of a topic that are appended from now on. When it returns, the
// stream has begun.
func (b *broker) stream(ctx context.Context, topic string) (*eventReader, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"/v1/topics/"+topic+"/records?offset=latest", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := (&http.Client{Transport: b.client.Transport}).Do(req) //nolint:bodyclose // eventReader.close closes it; the client has no timeout, since a stream does not end
	if err != nil {
		return nil, err
	}
	e := &eventReader{resp.Body, bufio.NewScanner(resp.Body)}
	if resp.StatusCode != http.StatusOK {
		e.close()
		return nil, fmt.Errorf("follow %s: %s", topic, resp.Status)
	}
	for e.lines.Scan() {
		if strings.HasPrefix(e.lines.Text(), "id: ") { // where the stream begins
			return e, nil
		}
	}
	e.close()
	return nil, errors.Join(fmt.Errorf("the stream of %s ended before it began", topic), e.lines.Err())
}

// values calls do with the value of each record, until do returns false or the stream ends.
func (e *eventReader) values(do func(value string) (more bool, err error)) error {
	for e.lines.Scan() {
		data, ok := strings.CutPrefix(e.lines.Text(), "data: ")
		if !ok {
			continue
		}
		var record struct {
			Value string `json:"value"`
		}
		if err := json.Unmarshal([]byte(data), &record); err != nil {
			return err
		}
		if more, err := do(record.Value); err != nil || !more {
			return err
		}
	}
	return errors.Join(errors.New("the stream ended"), e.lines.Err())
}

// close ends the stream.
func (e *eventReader) close() { _ = e.body.Close() } // events that were not read do not matter
