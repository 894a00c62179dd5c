package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/simple-event-broker/seb/examples/internal/servers"
)

const (
	patience = 20 * time.Second // how long rig.eventually waits
	look     = 20 * time.Millisecond
)

// shared has what all tests use. Each part is made when a test first needs it.
var shared struct {
	dir      string
	postgres func() (*servers.Postgres, error)
	seb      func() (string, error) // the binary of the broker
	outbox   func() (string, error) // the binary of this program
}

func TestMain(m *testing.M) {
	os.Exit(withShared(m.Run))
}

func withShared(run func() int) int {
	dir, err := os.MkdirTemp("", "seb-outbox-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	var postgres *servers.Postgres
	defer func() {
		if postgres != nil {
			if err := postgres.Remove(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}()
	shared.dir = dir
	shared.postgres = sync.OnceValues(func() (*servers.Postgres, error) {
		bin, err := servers.FindPostgres()
		if err != nil {
			return nil, err
		}
		// No fsync is needed: these tests don't cut the power.
		postgres, err = servers.StartPostgres(context.Background(), bin, "fsync=off")
		return postgres, err
	})
	shared.seb = sync.OnceValues(func() (string, error) { return servers.Build(context.Background(), servers.SebProgram, dir) })
	shared.outbox = sync.OnceValues(func() (string, error) { return servers.Build(context.Background(), servers.OutboxProgram, dir) })
	return run()
}

// databases counts the databases that tests have created.
var databases atomic.Int64

// rig has an outbox in a separate database, and a broker.
type rig struct {
	t        *testing.T
	postgres *servers.Postgres
	name     string // name of the database
	database string // URL of the database
	conn     *pgx.Conn
	seb      *servers.Seb
}

// newRig makes an empty outbox, and starts a broker with the given flags of `seb serve`.
// If there is no PostgreSQL, it skips the test, or fails it if SEB_TEST_REQUIRE is 1.
func newRig(t *testing.T, flags ...string) *rig {
	t.Helper()
	postgres, err := shared.postgres()
	if errors.Is(err, servers.ErrNoPostgres) && os.Getenv("SEB_TEST_REQUIRE") != "1" {
		t.Skip(err)
	}
	must(t, err)
	r := &rig{t: t, postgres: postgres}
	r.name = fmt.Sprintf("shop%d", databases.Add(1))
	admin, err := pgx.Connect(t.Context(), postgres.URL)
	must(t, err)
	_, err = admin.Exec(t.Context(), "CREATE DATABASE "+r.name)
	must(t, err)
	must(t, admin.Close(t.Context()))
	r.database = strings.Replace(postgres.URL, "/postgres?", "/"+r.name+"?", 1)
	r.conn = r.connect()
	r.exec(schema)

	binary, err := shared.seb()
	must(t, err)
	r.seb, err = servers.StartSeb(t.Context(), binary, t.TempDir(), flags...)
	if r.seb != nil {
		t.Cleanup(r.seb.Kill)
	}
	must(t, err)
	return r
}

// connect opens another connection to the database.
func (r *rig) connect() *pgx.Conn {
	r.t.Helper()
	conn, err := pgx.Connect(r.t.Context(), r.database)
	must(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close(context.Background()) }) // fails if the test has cut the connection
	return conn
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	_, err := r.conn.Exec(r.t.Context(), sql, args...)
	must(r.t, err)
}

// insert adds a row for each value, with topic t and key k.
func (r *rig) insert(values ...string) {
	r.t.Helper()
	for _, v := range values {
		r.exec(`INSERT INTO outbox (topic, key, value) VALUES ('t', 'k', to_jsonb($1::text))`, v)
	}
}

// count returns the result of a query that counts rows.
func (r *rig) count(query string) int {
	r.t.Helper()
	var n int
	must(r.t, r.conn.QueryRow(r.t.Context(), query).Scan(&n))
	return n
}

// stored is a record in the JSON form of the broker.
type stored struct {
	Offset  int64
	Key     string
	Value   string
	Headers map[string]string
}

// topic returns the records of a topic's only partition. If the topic does not exist, the
// list is empty.
func (r *rig) topic(name string) []stored {
	r.t.Helper()
	var all []stored
	for {
		address := fmt.Sprintf("%s/v1/topics/%s/records?limit=65536&offset=%d", r.seb.URL, name, len(all))
		req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, address, nil)
		must(r.t, err)
		req.Header.Set("Accept", "application/json")
		res, err := http.DefaultClient.Do(req)
		must(r.t, err)
		defer res.Body.Close()
		if res.StatusCode == http.StatusNotFound {
			return nil
		}
		var page struct{ Records []stored }
		must(r.t, json.NewDecoder(res.Body).Decode(&page))
		if len(page.Records) == 0 {
			return all
		}
		all = append(all, page.Records...)
	}
}

// wantTopic fails the test unless the records of topic t have the given values, as JSON strings.
func (r *rig) wantTopic(values ...string) {
	r.t.Helper()
	var got []string
	for _, s := range r.topic("t") {
		var v string
		must(r.t, json.Unmarshal([]byte(s.Value), &v))
		got = append(got, v)
	}
	if strings.Join(got, " ") != strings.Join(values, " ") {
		r.t.Fatalf("topic t has %q, want %q", got, values)
	}
}

// wantEmpty fails the test unless the tables are empty.
func (r *rig) wantEmpty() {
	r.t.Helper()
	if n := r.count(`SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM outbox_batches)`); n != 0 {
		r.t.Fatalf("%d rows are left in outbox and outbox_batches", n)
	}
}

// output keeps what a program writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// once runs the program with -once, for the broker at the URL server. It returns the exit
// code and the output.
func (r *rig) once(server string, flags ...string) (int, string) {
	r.t.Helper()
	var out output
	args := append([]string{"-database", r.database, "-server", server, "-once"}, flags...)
	return run(r.t.Context(), args, &out, &out), out.String()
}

// drained runs the program with -once against the broker, and fails the test if the
// program fails.
func (r *rig) drained(flags ...string) {
	r.t.Helper()
	if code, said := r.once(r.seb.URL, flags...); code != 0 {
		r.t.Fatalf("outbox -once ended with %d:\n%s", code, said)
	}
}

// background runs the program until the test ends or stop is called. stop returns the
// exit code; said has the output.
func (r *rig) background(server string, flags ...string) (said *output, stop func() int) {
	ctx, cancel := context.WithCancel(r.t.Context())
	said = &output{}
	ended := make(chan int, 1)
	args := append([]string{"-database", r.database, "-server", server}, flags...)
	go func() { ended <- run(ctx, args, said, said) }()
	stop = sync.OnceValue(func() int {
		cancel()
		return <-ended
	})
	r.t.Cleanup(func() {
		stop()
		if r.t.Failed() {
			r.t.Logf("outbox said:\n%s", said)
		}
	})
	return said, stop
}

// eventually waits until holds returns true.
func (r *rig) eventually(what string, holds func() bool) {
	r.t.Helper()
	timeout := time.After(patience)
	for !holds() {
		select {
		case <-time.After(look):
		case <-timeout:
			r.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// front starts a proxy in front of the broker. The proxy calls meddle for each append; n
// is 1 for the first append. meddle calls next to forward the append to the broker.
func (r *rig) front(meddle func(n int, w http.ResponseWriter, req *http.Request, next http.Handler)) *httptest.Server {
	r.t.Helper()
	target, err := url.Parse(r.seb.URL)
	must(r.t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	var mu sync.Mutex
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		n++
		this := n
		mu.Unlock()
		meddle(this, w, req, proxy)
	}))
	r.t.Cleanup(server.Close)
	return server
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// page returns a page of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../docs", name))
	must(t, err)
	return string(b)
}
