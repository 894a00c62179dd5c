package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	writers  = 4
	entities = 8
	drainers = 2
)

// Applications write events, in transactions that may commit late or not at all.
// Meanwhile drainers and the broker are killed, connections to the database are cut,
// and the database crashes. In the end each event whose transaction committed is in the
// topics exactly once, and the topics have no other events. The events of each entity are
// in order.
func TestExactlyOnceWhateverIsKilled(t *testing.T) {
	r := newRig(t)
	r.exec(`CREATE TABLE entities (key text PRIMARY KEY, seq int NOT NULL DEFAULT 0)`)
	r.exec(`INSERT INTO entities SELECT 'e' || i FROM generate_series(1, $1) i`, entities)
	c := &chaos{rig: r, output: &output{}}
	for i := range c.drainers {
		c.startDrainer(i)
		defer func() { c.killDrainer(i) }()
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() { r.write(ctx) })
	}
	for range cycles(t) {
		c.strike()
	}
	stop()
	writing.Wait()
	r.conn = r.connect()
	r.eventually("the outbox is empty", func() bool { return r.count(`SELECT count(*) FROM outbox`) == 0 })
	r.wantEmpty()
	events := r.verify()
	t.Logf("%d events; strikes: %v", events, c.strikes)
	if t.Failed() {
		t.Logf("the drainers said:\n%s", c.output)
	}
}

// cycles returns how often the test makes something fail: SEB_KILL_CYCLES times; only 15
// times by default, so that the test is quick.
func cycles(t *testing.T) int {
	s := os.Getenv("SEB_KILL_CYCLES")
	if s == "" {
		return 15
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("SEB_KILL_CYCLES=%q is no number of cycles", s)
	}
	return n
}

// chaos runs drainers and makes them, the broker and the database fail.
type chaos struct {
	*rig
	drainers [drainers]*exec.Cmd
	output   *output
	strikes  map[string]int
}

func (c *chaos) startDrainer(i int) {
	c.t.Helper()
	binary, err := shared.outbox()
	must(c.t, err)
	// The process outlives the test's context: killDrainer ends it.
	cmd := exec.CommandContext(context.WithoutCancel(c.t.Context()), binary,
		"-database", c.database, "-server", c.seb.URL, "-rows", "7", "-pace", "1ms", "-poll", "50ms")
	cmd.Stderr = c.output
	must(c.t, cmd.Start())
	c.drainers[i] = cmd
}

func (c *chaos) killDrainer(i int) {
	_ = c.drainers[i].Process.Kill() // this fails if the process has ended by itself, which is checked below
	err := c.drainers[i].Wait()
	if c.drainers[i].ProcessState.Exited() {
		c.t.Errorf("a drainer ended by itself: %v", err)
	}
}

// strike waits for a moment, and then makes something fail.
func (c *chaos) strike() {
	c.t.Helper()
	<-time.After(rand.N(150 * time.Millisecond))
	var what string
	switch n := rand.IntN(20); {
	case n < 9:
		what = "drainer killed"
		i := rand.IntN(len(c.drainers))
		c.killDrainer(i)
		c.startDrainer(i)
	case n < 14:
		what = "broker killed"
		c.seb.Kill()
		<-time.After(rand.N(100 * time.Millisecond))
		must(c.t, c.seb.Start(c.t.Context()))
	case n < 17:
		what = "drainers' connections cut"
		c.cut(`application_name = 'outbox'`)
	case n < 19:
		what = "all connections cut"
		c.cut(`true`)
	default:
		what = "database crashed"
		must(c.t, c.postgres.Crash(c.t.Context()))
		must(c.t, c.postgres.Start(c.t.Context()))
	}
	if c.strikes == nil {
		c.strikes = map[string]int{}
	}
	c.strikes[what]++
}

// cut ends the connections to the test's database for which the given SQL condition is true.
func (c *chaos) cut(which string) {
	c.t.Helper()
	conn := c.connect()
	_, err := conn.Exec(c.t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND `+which)
	must(c.t, err)
	must(c.t, conn.Close(c.t.Context()))
}

// write is an application: it changes entities and writes an event for each change,
// until ctx ends. If it loses the connection to the database, it opens another connection,
// as applications do.
func (r *rig) write(ctx context.Context) {
	for ctx.Err() == nil {
		conn, err := pgx.Connect(ctx, r.database)
		for err == nil {
			err = change(ctx, conn)
		}
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
		sleep(ctx, look)
	}
}

// change makes one transaction. It updates, and so locks, an entity before it writes the
// entity's event. So the events of an entity get their ids in the order of the changes.
// Sometimes change commits late, and sometimes not at all.
func change(ctx context.Context, conn *pgx.Conn) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	key := fmt.Sprintf("e%d", 1+rand.IntN(entities))
	for range 1 + rand.IntN(4) {
		var seq int
		if err := tx.QueryRow(ctx, `UPDATE entities SET seq = seq + 1 WHERE key = $1 RETURNING seq`, key).Scan(&seq); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO outbox (topic, key, value) VALUES ('t' || right($1, 1)::int % 3, $1, to_jsonb($2::int))`, key, seq); err != nil {
			return err
		}
	}
	switch rand.IntN(6) {
	case 0:
		return tx.Rollback(ctx)
	case 1, 2:
		sleep(ctx, rand.N(60*time.Millisecond))
	}
	return tx.Commit(ctx)
}

// verify compares the topics with the changes that the database has committed, and
// returns the number of events in the topics.
func (r *rig) verify() int {
	r.t.Helper()
	got := map[string][]int{}
	events := 0
	for topic := range 3 {
		for _, s := range r.topic(fmt.Sprintf("t%d", topic)) {
			var seq int
			must(r.t, json.Unmarshal([]byte(s.Value), &seq))
			got[s.Key] = append(got[s.Key], seq)
			events++
		}
	}
	rows, err := r.conn.Query(r.t.Context(), `SELECT key, seq FROM entities`)
	must(r.t, err)
	var key string
	var last int
	_, err = pgx.ForEachRow(rows, []any{&key, &last}, func() error {
		var want []string
		for seq := 1; seq <= last; seq++ {
			want = append(want, strconv.Itoa(seq))
		}
		if have := fmt.Sprint(got[key]); have != "["+strings.Join(want, " ")+"]" {
			r.t.Errorf("events of %s: %v, want all from 1 to %d, each once and in order", key, have, last)
		}
		if last == 0 {
			r.t.Errorf("nothing was written of %s", key)
		}
		return nil
	})
	must(r.t, err)
	return events
}
