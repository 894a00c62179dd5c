package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	lostMembers = 3                // brokers
	lostClients = 8                // of each broker; each appends one record after the other
	lostBefore  = 4 * time.Second  // between two faults
	lostFor     = 10 * time.Second // how long a broker is suspended or cut off
	lostAfter   = 5 * time.Second  // how long the brokers are watched after a fault

	restartAfter = 4 * time.Second // from the end of a broker to its restart, to tell one from the other
)

// fault is what happens to the broker that commits for all.
type fault struct {
	what string
	do   func(ctx context.Context, g *group, lost *member) error // returns when the fault has ended
}

var faults = []fault{
	{"killed with kill -9, and restarted after 10 s", func(ctx context.Context, g *group, lost *member) error {
		lost.running().kill()
		pause(ctx, lostFor)
		return lost.start(ctx, g.run)
	}},
	{"suspended for 10 s", func(ctx context.Context, _ *group, lost *member) error {
		pid := strconv.Itoa(lost.running().cmd.Process.Pid)
		err := exec.CommandContext(ctx, "kill", "-STOP", pid).Run()
		pause(ctx, lostFor)
		return errors.Join(err, exec.CommandContext(ctx, "kill", "-CONT", pid).Run())
	}},
	{"stopped with SIGTERM, and restarted", func(ctx context.Context, g *group, lost *member) error {
		return errors.Join(lost.running().stop(), lost.start(ctx, g.run))
	}},
	{"stopped with SIGTERM, and restarted 4 s later", func(ctx context.Context, g *group, lost *member) error {
		began := time.Now()
		err := lost.running().stop()
		pause(ctx, restartAfter)
		g.run.row("  until the restart", fmt.Sprintf("longest pause of the others: %d ms", g.longestPause(lost, began).Milliseconds()))
		return errors.Join(err, lost.start(ctx, g.run))
	}},
	{"cut off from the store for 10 s", func(ctx context.Context, _ *group, lost *member) error {
		reopen := lost.toStore.shut()
		defer reopen()
		pause(ctx, lostFor)
		return nil
	}},
	{"all cut off from each other for 10 s", func(ctx context.Context, g *group, _ *member) error {
		for _, m := range g.members {
			reopen := m.toPeer.shut()
			defer reopen()
		}
		pause(ctx, lostFor)
		return nil
	}},
}

// lostBrokers measures how long appends wait when the broker that commits for all is lost. Then it checks that the log has each
// acknowledged record once, in the order of its client, and no refused one.
func lostBrokers(ctx context.Context, r *run) error {
	store, err := startSlowStore(ctx, r, lognormal(severalMedian, severalSigma))
	if errors.Is(err, errNoVersitygw) {
		r.row("skipped", err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	defer store.stop()
	defer r.killAll()
	g := &group{run: r}
	defer g.end()
	for i := range lostMembers {
		binary := r.seb
		if i == 0 && r.other != "" {
			binary = r.other
		}
		m, err := newMember(ctx, r, binary, store, i)
		if err != nil {
			return err
		}
		g.members = append(g.members, m)
	}
	if _, err := g.members[0].running().ask(ctx, http.MethodPut, "/v1/topics/t", `{}`); err != nil {
		return err
	}
	r.row("parameters", fmt.Sprintf("%d brokers, --batch immediate, %d clients each, append after append; the store: lognormal, median %v, sigma %v",
		lostMembers, lostClients, severalMedian, severalSigma))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for _, m := range g.members {
		for c := range lostClients {
			clients.Go(func() { m.append(ctx, stop, c) })
		}
	}
	for _, f := range faults {
		var pauses [2][]time.Duration // of the others: without and with the fault
		acknowledged := 0             // by the lost broker, during the fault
		for range r.size(2, 10) {
			began := time.Now()
			lost, err := g.winner(ctx)
			if err != nil {
				return err
			}
			happened := time.Now()
			if err := f.do(ctx, g, lost); err != nil {
				return err
			}
			acknowledged += lost.countBetween(happened, time.Now())
			pause(ctx, lostAfter)
			for _, m := range g.members {
				if m == lost {
					continue
				}
				pauses[0] = append(pauses[0], m.longestPause(began, happened))
				pauses[1] = append(pauses[1], m.longestPause(happened, time.Now()))
			}
		}
		median := func(p []time.Duration) int64 { slices.Sort(p); return p[len(p)/2].Milliseconds() }
		r.row(f.what,
			fmt.Sprintf("longest pause of the others: median %d ms, most %d ms (before: median %d ms, most %d ms)",
				median(pauses[1]), slices.Max(pauses[1]).Milliseconds(), median(pauses[0]), slices.Max(pauses[0]).Milliseconds()),
			fmt.Sprintf("%d times, %.0f appends/s acknowledged by the lost one", r.size(2, 10), float64(acknowledged)/float64(r.size(2, 10))/lostFor.Seconds()))
	}
	close(stop)
	clients.Wait()
	return g.check(ctx)
}

// group is several brokers of one log, and the store that they share.
type group struct {
	run     *run
	members []*member
}

func (g *group) end() {
	for _, m := range g.members {
		m.toStore.end()
		m.toPeer.end()
	}
}

// longestPause returns the longest pause of the brokers that are not lost, from a time to now.
func (g *group) longestPause(lost *member, from time.Time) (longest time.Duration) {
	for _, m := range g.members {
		if m != lost {
			longest = max(longest, m.longestPause(from, time.Now()))
		}
	}
	return longest
}

// winner returns the broker that has written most commits within lostBefore.
func (g *group) winner(ctx context.Context) (most *member, err error) {
	before := map[*member]float64{}
	for _, m := range g.members {
		if before[m], err = m.running().metric(ctx, "seb_commits_total"); err != nil {
			return nil, err
		}
	}
	pause(ctx, lostBefore)
	commits := -1.0
	for _, m := range g.members {
		now, err := m.running().metric(ctx, "seb_commits_total")
		if err != nil {
			return nil, err
		}
		if n := now - before[m]; n > commits {
			most, commits = m, n
		}
	}
	return most, nil
}

// check compares the log with what the clients were told.
func (g *group) check(ctx context.Context) error {
	found := map[string]int{} // values, and how many records have them
	var last = map[string]int{}
	next, end := 0, 1
	for next < end {
		values, after, to, err := g.members[0].running().values(ctx, next)
		if err != nil {
			return err
		}
		for _, v := range values {
			client, number, _ := strings.Cut(v, ":")
			n, err := strconv.Atoi(number)
			if err != nil {
				return fmt.Errorf("the log has a record %q, which no client has sent", v)
			}
			if previous, ok := last[client]; ok && n <= previous {
				return fmt.Errorf("the log has record %d of client %s after record %d", n, client, previous)
			}
			last[client], found[v] = n, found[v]+1
		}
		next, end = after, to
	}
	told := map[outcome]int{}
	for _, m := range g.members {
		for value, o := range m.told {
			told[o]++
			switch n := found[value]; {
			case n > 1:
				return fmt.Errorf("the log has record %s %d times", value, n)
			case o == acknowledged && n == 0:
				return fmt.Errorf("the log does not have record %s, which was acknowledged", value)
			case o == refused && n > 0:
				return fmt.Errorf("the log has record %s, which was refused as not committed", value)
			}
		}
	}
	g.run.row("all records", fmt.Sprintf("%d acknowledged, each once in the log and in order; %d refused, none in the log; %d of unknown outcome",
		told[acknowledged], told[refused], told[unknown]))
	return nil
}

// outcome is what a client was told of an append.
type outcome int

const (
	acknowledged outcome = iota + 1
	refused
	unknown
)

// member is one of several brokers, with gates in front of it and of its store.
type member struct {
	name, binary    string
	flags           []string
	storeURL        string
	toStore, toPeer *gate

	mu     sync.Mutex
	broker *broker
	acks   []time.Time
	told   map[string]outcome // what the clients were told of each value
}

func newMember(ctx context.Context, r *run, binary string, store *slowStore, i int) (*member, error) {
	m := &member{name: string(rune('a' + i)), binary: binary, told: map[string]outcome{}}
	var err error
	if m.toStore, err = newGate(ctx, store.slowAddress); err != nil {
		return nil, err
	}
	if m.toPeer, err = newGate(ctx, ""); err != nil {
		return nil, err
	}
	m.storeURL = storeURL(m.toStore.address())
	m.flags = []string{"--batch", "immediate", "--advertise", "http://" + m.toPeer.address()}
	return m, m.start(ctx, r)
}

// start starts the broker, also after it was killed.
func (m *member) start(ctx context.Context, r *run) error {
	b, err := r.serveAs(ctx, m.binary, m.storeURL, m.flags...)
	if err != nil {
		return err
	}
	m.toPeer.leadTo(strings.TrimPrefix(b.url, "http://"))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broker = b
	return nil
}

func (m *member) running() *broker {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.broker
}

// append appends records until stop is closed. Each value is sent once.
func (m *member) append(ctx context.Context, stop <-chan struct{}, client int) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		value := fmt.Sprintf("%s%d:%d", m.name, client, n)
		o := m.running().appendOnce(ctx, value)
		m.mu.Lock()
		m.told[value] = o
		if o == acknowledged {
			m.acks = append(m.acks, time.Now())
		}
		m.mu.Unlock()
		if o != acknowledged {
			pause(ctx, 20*time.Millisecond)
		}
	}
}

// appendOnce appends one record to topic t.
func (b *broker) appendOnce(ctx context.Context, value string) outcome {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/v1/topics/t/records", strings.NewReader(value))
	if err != nil {
		return refused
	}
	resp, err := b.client.Do(req)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			return refused
		}
		return unknown
	}
	defer resp.Body.Close()
	var problem struct{ Outcome string }
	err = json.NewDecoder(resp.Body).Decode(&problem)
	switch {
	case resp.StatusCode == http.StatusCreated:
		return acknowledged
	case err == nil && problem.Outcome == "not_committed":
		return refused
	}
	return unknown
}

// longestPause returns the longest time between two acknowledgements of the broker that lies within the given time.
func (m *member) longestPause(from, to time.Time) (longest time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := from
	for _, at := range m.acks {
		if at.After(from) && at.Before(to) {
			longest, last = max(longest, at.Sub(last)), at
		}
	}
	return max(longest, to.Sub(last))
}

func (m *member) countBetween(from, to time.Time) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, at := range m.acks {
		if at.After(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// values returns the values of records of topic t from an offset on, the offset for the next read, and the end of the topic.
func (b *broker) values(ctx context.Context, offset int) (values []string, next, end int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/v1/topics/t/records?offset=%d&limit=65536&max_bytes=%d", b.url, offset, 8<<20), nil)
	if err != nil {
		return nil, 0, 0, err
	}
	req.Header.Set("Accept", "application/x-ndjson")
	resp, err := b.client.Do(req)
	if err != nil {
		return nil, 0, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300)) // the status says enough
		return nil, 0, 0, fmt.Errorf("read from offset %d: %s: %s", offset, resp.Status, text)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		var record struct{ Value string }
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
			return nil, 0, 0, err
		}
		values = append(values, record.Value)
	}
	next, err1 := strconv.Atoi(resp.Header.Get("Seb-Next-Offset"))
	end, err2 := strconv.Atoi(resp.Header.Get("Seb-End-Offset"))
	return values, next, end, cmp.Or(lines.Err(), err1, err2)
}
