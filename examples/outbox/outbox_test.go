package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestRowsBecomeRecords(t *testing.T) {
	r := newRig(t)
	r.exec(`INSERT INTO outbox (topic, key, value, headers, created) VALUES
		('orders', '42', '{"state":"paid"}', '{"by":"shop","":"x"}', '2026-01-31T12:00:00.25Z'),
		('orders', NULL, '[1, "\"\n"]', NULL, now()),
		('invoices', '', '"a"', '{}', now())`)
	r.drained()
	r.wantEmpty()
	orders, invoices := r.topic("orders"), r.topic("invoices")
	got := fmt.Sprint(orders, invoices)
	want := `[{0 42 {"state": "paid"} map[:x by:shop outbox-id:1]} {1  [1, "\"\n"] map[outbox-id:2]}] [{0  "a" map[outbox-id:3]}]`
	if got != want {
		t.Errorf("the topics have\n%s, want\n%s", got, want)
	}
}

// The value column may also be text or bytea.
func TestColumnOfBytes(t *testing.T) {
	r := newRig(t)
	r.exec(`ALTER TABLE outbox DROP CONSTRAINT outbox_value_check, ALTER value TYPE text USING value::text`)
	r.exec(`INSERT INTO outbox (topic, value) VALUES ('t', 'not JSON')`)
	r.drained()
	r.exec(`ALTER TABLE outbox ALTER value TYPE bytea USING value::bytea`)
	r.exec(`INSERT INTO outbox (topic, value) VALUES ('t', '\x00ff')`)
	r.drained()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.seb.URL+"/v1/topics/t/records/1", nil)
	must(t, err)
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	defer res.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(res.Body)
	must(t, err)
	if body.String() != "\x00\xff" || r.topic("t")[0].Value != "not JSON" {
		t.Errorf("the records are %v and %q", r.topic("t"), body.Bytes())
	}
}

// A row is moved even if the row's transaction commits after a row with a larger id was
// moved.
func TestLateCommit(t *testing.T) {
	r := newRig(t)
	late, err := r.connect().Begin(t.Context())
	must(t, err)
	_, err = late.Exec(t.Context(), `INSERT INTO outbox (topic, value) VALUES ('t', '"late"')`)
	must(t, err)
	r.insert("early")
	r.drained()
	r.wantTopic("early")
	must(t, late.Commit(t.Context()))
	r.drained()
	r.wantTopic("early", "late")
	r.wantEmpty()
}

func TestManyBatches(t *testing.T) {
	r := newRig(t)
	r.exec(`INSERT INTO outbox (topic, value) SELECT 't' || i % 20, to_jsonb(repeat('x', i)) FROM generate_series(1, 1000) i`)
	r.drained("-rows", "100", "-bytes", "20000") // the last rows have about 1,000 bytes each, so 20 of them fit into a batch
	r.wantEmpty()
	for topic := range 20 {
		var sizes []int
		for _, s := range r.topic(fmt.Sprintf("t%d", topic)) {
			sizes = append(sizes, len(s.Value)-len(`""`))
		}
		var want []int
		for i := 1; i <= 1000; i++ {
			if i%20 == topic {
				want = append(want, i)
			}
		}
		if fmt.Sprint(sizes) != fmt.Sprint(want) {
			t.Errorf("topic t%d has values of sizes %v, want %v", topic, sizes, want)
		}
	}
}

// A row that is larger than the limit is sent as a batch by itself.
func TestLargeRow(t *testing.T) {
	r := newRig(t)
	r.insert("a", strings.Repeat("b", 100), "c")
	r.drained("-bytes", "10")
	r.wantTopic("a", strings.Repeat("b", 100), "c")
}

// If the broker's answer gets lost, the program sends the same batch again. Rows that
// were inserted meanwhile wait for the next batch.
func TestLostAnswer(t *testing.T) {
	r := newRig(t)
	r.insert("a", "b")
	front := r.front(func(_ int, _ http.ResponseWriter, req *http.Request, next http.Handler) {
		next.ServeHTTP(httptest.NewRecorder(), req)
		panic(http.ErrAbortHandler)
	})
	if code, said := r.once(front.URL); code != exitFailure || !strings.Contains(said, "no response from") {
		t.Fatalf("ended with %d:\n%s", code, said)
	}
	r.wantTopic("a", "b")
	r.insert("c")
	var out output
	if code := run(t.Context(), []string{"-database", r.database, "-server", r.seb.URL, "-once"}, &out, &out); code != 0 {
		t.Fatalf("ended with %d:\n%s", code, &out)
	}
	if !strings.Contains(out.String(), `"batches sent again"=1`) {
		t.Errorf("it does not say that a batch was there already:\n%s", &out)
	}
	r.wantTopic("a", "b", "c")
	r.wantEmpty()
}

// The broker's answer gets lost, and the broker is down before net/http could send the
// request again. The refused connection must not make the program believe that the first
// request appended nothing.
func TestLostAnswerThenNoBroker(t *testing.T) {
	r := newRig(t)
	r.exec(`INSERT INTO outbox (topic, value) VALUES ('t', '"a"'), ('t', '"b"')`)
	var front *httptest.Server
	front = r.front(func(n int, w http.ResponseWriter, req *http.Request, next http.Handler) {
		if n == 1 { // opens a connection, which the next request uses too
			next.ServeHTTP(w, req)
			return
		}
		next.ServeHTTP(httptest.NewRecorder(), req)
		must(t, front.Listener.Close())
		panic(http.ErrAbortHandler)
	})
	if code, said := r.once(front.URL, "-rows", "1"); code != exitFailure {
		t.Fatalf("ended with %d:\n%s", code, said)
	}
	if n := r.count(`SELECT count(*) FROM outbox_batches`); n != 1 {
		t.Errorf("%d batches are on their way, want the one in doubt", n)
	}
	r.insert("c")
	r.drained()
	r.wantTopic("a", "b", "c")
}

// Rows that were certainly not appended are released, and can go into another batch.
func TestNoBroker(t *testing.T) {
	r := newRig(t)
	r.insert("a")
	r.seb.Kill()
	if code, said := r.once(r.seb.URL); code != exitFailure || !strings.Contains(said, "no broker answers at "+r.seb.URL) {
		t.Fatalf("ended with %d:\n%s", code, said)
	}
	if n := r.count(`SELECT count(*) FROM outbox_batches`); n != 0 {
		t.Errorf("%d batches are on their way, want none", n)
	}
	must(t, r.seb.Start(t.Context()))
	r.drained()
	r.wantTopic("a")
}

// If the broker refuses appends to a topic, other topics go on. When it accepts them again,
// the program sends the topic's rows in order.
func TestRefusedTopic(t *testing.T) {
	r := newRig(t, "--auto-create=false")
	create := func(topic string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.seb.URL+"/v1/topics/"+topic, nil)
		must(t, err)
		res, err := http.DefaultClient.Do(req)
		must(t, err)
		res.Body.Close()
	}
	create("other")
	r.insert("a", "b")
	said, _ := r.background(r.seb.URL, "-rows", "1")
	r.eventually("the refusal is told", func() bool {
		return strings.Contains(said.String(), "level=ERROR") && strings.Contains(said.String(), "topic_not_found")
	})
	r.exec(`INSERT INTO outbox (topic, value) VALUES ('other', '1')`)
	r.eventually("another topic gets its row", func() bool { return len(r.topic("other")) == 1 })
	create("t")
	r.eventually("the topic gets its rows", func() bool { return len(r.topic("t")) == 2 })
	r.wantTopic("a", "b")
}

// A batch that is older than doubtMax is not sent again.
func TestOldDoubt(t *testing.T) {
	r := newRig(t)
	r.insert("a")
	front := r.front(func(_ int, _ http.ResponseWriter, req *http.Request, next http.Handler) {
		next.ServeHTTP(httptest.NewRecorder(), req)
		panic(http.ErrAbortHandler)
	})
	if code, said := r.once(front.URL); code != exitFailure {
		t.Fatalf("ended with %d:\n%s", code, said)
	}
	r.exec(`UPDATE outbox_batches SET created = now() - interval '23 hours 1 minute'`)
	code, said := r.once(r.seb.URL)
	if code != exitFailure || !strings.Contains(said, "more than 23h0m0s ago") {
		t.Fatalf("ended with %d:\n%s", code, said)
	}
	// Do what the error advises for records that are in the topic.
	_, advice, _ := strings.Cut(said, "if they are there, ")
	remove, rest, _ := strings.Cut(advice, "; then, in any case, ")
	r.exec(remove)
	r.exec(strings.TrimSpace(rest))
	r.insert("b")
	r.drained()
	r.wantTopic("a", "b")
	r.wantEmpty()
}

// A row is sent as soon as it is committed, even if the program polls rarely.
func TestNotificationWakes(t *testing.T) {
	r := newRig(t)
	r.background(r.seb.URL, "-poll", "1h")
	for i := range 3 {
		r.insert(fmt.Sprint(i))
		r.eventually("the row is in the topic", func() bool { return len(r.topic("t")) == i+1 })
	}
}

// Without the trigger the program polls.
func TestPollingWithoutTrigger(t *testing.T) {
	r := newRig(t)
	r.exec(`DROP TRIGGER outbox_notify ON outbox`)
	said, _ := r.background(r.seb.URL, "-poll", "50ms")
	r.eventually("it waits", func() bool { return strings.Contains(said.String(), "draining") })
	r.insert("a")
	r.eventually("the row is in the topic", func() bool { return len(r.topic("t")) == 1 })
}

// While one drainer works, others stand by. When the connection of the working drainer
// ends, another drainer goes on.
func TestStandby(t *testing.T) {
	r := newRig(t)
	first, stop := r.background(r.seb.URL)
	r.eventually("the first drains", func() bool { return strings.Contains(first.String(), "draining") })
	second, _ := r.background(r.seb.URL, "-poll", "50ms")
	r.eventually("the second stands by", func() bool { return strings.Contains(second.String(), "standing by") })
	if code, said := r.once(r.seb.URL); code != exitFailure || !strings.Contains(said, "another process drains") {
		t.Errorf("a third one ended with %d:\n%s", code, said)
	}
	if code := stop(); code != 0 {
		t.Errorf("the first ended with %d:\n%s", code, first)
	}
	r.insert("a")
	r.eventually("the second moves the row", func() bool { return len(r.topic("t")) == 1 })
}

// A drainer does not release a batch if another drainer has taken over meanwhile, and may
// have sent the batch.
func TestReleaseAfterTakeover(t *testing.T) {
	r := newRig(t)
	r.insert("a")
	config, err := configure(r.database)
	must(t, err)
	first, err := connect(t.Context(), config)
	must(t, err)
	defer first.close()
	fresh, err := first.makeBatches(t.Context(), limits{1, 1}, nil)
	must(t, err)
	second := &session{conn: r.connect()} // without the lock
	old, err := second.oldBatches(t.Context(), nil)
	must(t, err)
	if len(fresh) != 1 || len(old) != 1 || old[0].id != fresh[0].id || old[0].fresh {
		t.Fatalf("the first has %v, the second %v", fresh, old)
	}
	must(t, first.release(t.Context(), fresh))
	if n := r.count(`SELECT count(*) FROM outbox_batches`); n != 1 {
		t.Errorf("%d batches are on their way, want the one that the second has", n)
	}
}

// A batch must not be sent before the database has made it durable.
func TestBatchesAreDurable(t *testing.T) {
	r := newRig(t)
	r.exec(`ALTER DATABASE ` + r.name + ` SET synchronous_commit = off`)
	config, err := configure(r.database)
	must(t, err)
	s, err := connect(t.Context(), config)
	must(t, err)
	defer s.close()
	var setting string
	must(t, s.conn.QueryRow(t.Context(), `SHOW synchronous_commit`).Scan(&setting))
	if setting != "on" {
		t.Errorf("synchronous_commit is %s, want on", setting)
	}
}

// A drainer forgets a topic that failed when the topic's rows were deleted by hand.
func TestForgetsTopicsWithoutRows(t *testing.T) {
	r := newRig(t)
	r.insert("a")
	s := &session{conn: r.connect()}
	past := pause{until: time.Now().Add(-time.Second), last: time.Second}
	future := pause{until: time.Now().Add(time.Hour), last: time.Hour}
	d := &drainer{most: limits{10, 1000}, paused: map[string]pause{"gone": past, "t": past, "later": future}}
	batches, more, err := d.next(t.Context(), s)
	must(t, err)
	if len(batches) != 1 || more || len(d.paused) != 2 || d.paused["t"] != past || d.paused["later"] != future {
		t.Errorf("next gives %v, %v and leaves %v", batches, more, d.paused)
	}
}

// When the program is told to end, it first waits for the request that is under way.
func TestEndsCleanly(t *testing.T) {
	r := newRig(t)
	under, goOn := make(chan struct{}), make(chan struct{})
	front := r.front(func(_ int, w http.ResponseWriter, req *http.Request, next http.Handler) {
		close(under)
		<-goOn
		next.ServeHTTP(w, req)
	})
	said, stop := r.background(front.URL)
	r.insert("a")
	<-under
	ended := make(chan int)
	go func() { ended <- stop() }()
	select {
	case code := <-ended:
		t.Fatalf("ended with %d while a request was under way", code)
	case <-time.After(200 * time.Millisecond):
	}
	close(goOn)
	if code := <-ended; code != 0 {
		t.Fatalf("ended with %d:\n%s", code, said)
	}
	r.wantTopic("a")
	r.wantEmpty()
}

func TestSchemaRefusesWhatTheBrokerWould(t *testing.T) {
	r := newRig(t)
	for name, values := range map[string]string{
		"topic":   `'a b', NULL, '1', NULL, now()`,
		"dots":    `'..', NULL, '1', NULL, now()`,
		"key":     `'t', repeat('k', 65537), '1', NULL, now()`,
		"value":   `'t', NULL, to_jsonb(repeat('x', 5000000)), NULL, now()`,
		"list":    `'t', NULL, '1', '["a"]', now()`,
		"header":  `'t', NULL, '1', '{"a":1}', now()`,
		"headers": `'t', NULL, '1', jsonb_build_object('a', repeat('x', 65536)), now()`,
		"created": `'t', NULL, '1', NULL, 'infinity'`,
	} {
		_, err := r.conn.Exec(t.Context(), `INSERT INTO outbox (topic, key, value, headers, created) VALUES (`+values+`)`)
		if err == nil || !strings.Contains(err.Error(), "violates check constraint") {
			t.Errorf("%s: %v, want a violated check", name, err)
		}
	}
	r.exec(`INSERT INTO outbox (topic, key, value, headers)
		VALUES ('t', repeat('k', 65536), to_jsonb(repeat('x', 4194302)), jsonb_build_object('a', repeat('x', 65536 - 9)))`)
	r.drained()
	if got := r.topic("t"); len(got) != 1 {
		t.Errorf("the largest row gave %d records", len(got))
	}
}

// The privileges that the documentation names are enough.
func TestLeastPrivileges(t *testing.T) {
	r := newRig(t)
	r.exec(`CREATE ROLE shop; GRANT INSERT ON outbox TO shop;
		CREATE ROLE mover; GRANT SELECT, DELETE ON outbox TO mover; GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_batches TO mover`)
	defer r.exec(`DROP OWNED BY shop, mover; DROP ROLE shop, mover`)
	r.exec(`SET ROLE shop`)
	r.insert("a")
	r.exec(`RESET ROLE`)
	r.database += "&options=-crole%3Dmover"
	front := r.front(func(_ int, _ http.ResponseWriter, req *http.Request, next http.Handler) {
		next.ServeHTTP(httptest.NewRecorder(), req)
		panic(http.ErrAbortHandler)
	})
	if code, said := r.once(front.URL); code != exitFailure || !strings.Contains(said, "no response from") {
		t.Fatalf("ended with %d:\n%s", code, said)
	}
	r.drained()
	r.wantTopic("a")
	r.exec(`REVOKE DELETE ON outbox FROM mover`)
	r.insert("b")
	if code, said := r.once(r.seb.URL); code != exitFailure || !strings.Contains(said, "the role needs") {
		t.Errorf("ended with %d:\n%s", code, said)
	}
}

func TestMistakes(t *testing.T) {
	r := newRig(t)
	r.exec(`DROP TABLE outbox_batches`)
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"argument":     {[]string{"orders"}, exitUsage, `unexpected argument "orders"`},
		"flag":         {[]string{"-speed", "1"}, exitUsage, "-speed"},
		"server":       {[]string{"-server", "127.0.0.1:51313"}, exitUsage, "is not an http:// or https:// URL"},
		"limits":       {[]string{"-rows", "0"}, exitUsage, "must be greater than 0"},
		"key":          {[]string{"-key-file", "/nonexistent"}, exitUsage, "-key-file"},
		"database":     {[]string{"-database", "postgres://:x:"}, exitUsage, "-database"},
		"no tables":    {[]string{"-database", r.database}, exitFailure, "outbox -schema | psql"},
		"other tables": {[]string{"-database", r.postgres.URL}, exitFailure, "outbox -schema | psql"},
		"no database":  {[]string{"-database", strings.Replace(r.database, r.name, "nothing", 1)}, exitFailure, "DATABASE_URL"},
	} {
		t.Run(name, func(t *testing.T) {
			var out output
			if code := run(t.Context(), test.args, &out, &out); code != test.code || !strings.Contains(out.String(), test.says) {
				t.Errorf("ended with %d:\n%s\nwant %d and %q", code, &out, test.code, test.says)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	var out output
	if code := run(context.Background(), []string{"-help"}, &out, &out); code != 0 || !strings.Contains(out.String(), "-once") {
		t.Errorf("-help ended with %d:\n%s", code, &out)
	}
}

// The documentation shows the same schema as the program.
func TestPageHasTheSchema(t *testing.T) {
	if !strings.Contains(page(t, "from-postgres.md"), "```sql\n"+schema+"```\n") {
		t.Error("docs/from-postgres.md does not have examples/outbox/schema.sql as it is")
	}
}
