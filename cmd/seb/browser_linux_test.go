package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// browsers are the names of programs that can show a page without a screen.
var browsers = []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"}

const browserTimeout = time.Minute // for events that the page should get

func findBrowser(t *testing.T) string {
	t.Helper()
	if named := os.Getenv("SEB_TEST_BROWSER"); named != "" {
		return named
	}
	for _, name := range browsers {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "needs a headless Chromium: install Debian's chromium-headless-shell, or set SEB_TEST_BROWSER to the program"
	if os.Getenv("SEB_TEST_REQUIRE") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// pageText follows the URL in its query with an EventSource, and reports each event to its server, in
// order.
const pageText = `<!doctype html><meta charset=utf-8><script>
let told = Promise.resolve()
const tell = (what) => told = told.then(() => fetch("/told", {method: "POST", body: JSON.stringify(what)}))
const source = new EventSource(decodeURIComponent(location.search.slice(1)))
source.onopen = () => tell({kind: "open"})
source.onmessage = (e) => tell({kind: "record", id: e.lastEventId, data: e.data})
source.onerror = (e) => tell({kind: e.data ? "problem" : source.readyState == EventSource.CLOSED ? "closed" : "again", data: e.data})
</script>`

// told is an event that a page reports.
type told struct{ Kind, ID, Data string }

// browse starts a server of pages: open opens a page that follows url, and tells has the events that it
// reports.
func browse(t *testing.T) (origin string, open func(url string), tells <-chan told) {
	t.Helper()
	browser := findBrowser(t)
	said := make(chan told, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, pageText) // a page that did not load reports nothing
		case "/told":
			var what told
			if err := json.NewDecoder(r.Body).Decode(&what); err != nil {
				t.Errorf("the page tells nonsense: %v", err)
			}
			said <- what
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, func(url string) {
		// Without a sandbox, which root can't have; the browser loads nothing but this page.
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), browser, "--headless", "--no-sandbox", "--disable-gpu",
			"--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-component-update",
			"--user-data-dir="+t.TempDir(), "--remote-debugging-port=0", server.URL+"/?"+strings.ReplaceAll(url, "&", "%26"))
		stderr := newOutput()
		cmd.Stderr = stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its children are killed with it
		if err := cmd.Start(); err != nil {
			t.Fatalf("start %s: %v", browser, err)
		}
		t.Cleanup(func() {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
			_ = cmd.Wait()
			if t.Failed() {
				t.Logf("standard error of %s:\n%s", browser, stderr)
			}
		})
	}, said
}

// pageReader collects what a page gets.
type pageReader struct {
	t     *testing.T
	tells <-chan told
	ids   map[string]bool
	next  map[int]int // offset by partition
	got   int
}

// record takes a record, which must be the next of its partition.
func (p *pageReader) record(what told) {
	p.t.Helper()
	var r struct {
		Partition, Offset int
		Value             string
	}
	if err := json.Unmarshal([]byte(what.Data), &r); err != nil {
		p.t.Fatalf("%+v: %v", what, err)
	}
	if r.Offset != p.next[r.Partition] {
		p.t.Fatalf("partition %d: offset %d came where %d was due", r.Partition, r.Offset, p.next[r.Partition])
	}
	if want := fmt.Sprintf("%d-%d", r.Partition, r.Offset); r.Value != want || what.ID == "" || p.ids[what.ID] {
		p.t.Fatalf("%+v came where %s was due", what, want)
	}
	p.next[r.Partition]++
	p.ids[what.ID] = true
	p.got++
}

// until reads events until the page has n records in all, and then an event of kind, if that is not "".
func (p *pageReader) until(n int, kind string) told {
	p.t.Helper()
	timeout := time.After(browserTimeout)
	for p.got < n || kind != "" {
		select {
		case what := <-p.tells:
			if what.Kind == "record" {
				p.record(what)
			}
			if what.Kind == kind && p.got >= n {
				return what
			}
		case <-timeout:
			p.t.Fatalf("the page has %d of %d records, and no %q", p.got, n, kind)
		}
	}
	if p.got > n {
		p.t.Fatalf("the page has %d records, want %d", p.got, n)
	}
	return told{}
}

// A page follows a topic with a plain EventSource while its broker is killed, shut down and restarted, and
// another broker appends. The page gets every record once, in order, and learns when the topic is deleted.
func TestBrowserFollowsThroughRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a while, and the browser most of it")
	}
	findBrowser(t)
	t.Parallel()
	origin, open, tells := browse(t)
	dir := t.TempDir()
	address := "127.0.0.1:" + freePort(t)
	start := func() *process {
		return serve(t, nil, "--store", dir, "--http", address, "--allow-origin", origin)
	}
	broker := start()
	const partitions = 3
	if a := <-begin(t, http.MethodPut, broker.url+"/v1/topics/orders", fmt.Sprintf(`{"partitions":%d}`, partitions)); a.status != http.StatusCreated {
		t.Fatalf("create the topic: %+v", a)
	}
	appended := 0
	appendTo := func(broker *process, n int) {
		t.Helper()
		for range n {
			partition, offset := appended%partitions, appended/partitions
			a := <-begin(t, http.MethodPost, fmt.Sprintf("%s/v1/topics/orders/records?partition=%d", broker.url, partition), fmt.Sprintf("%d-%d", partition, offset))
			if a.status != http.StatusCreated {
				t.Fatalf("append: %+v", a)
			}
			appended++
		}
	}
	appendTo(broker, 10)
	page := &pageReader{t: t, tells: tells, ids: map[string]bool{}, next: map[int]int{}}
	open(broker.url + "/v1/topics/orders/records")
	page.until(appended, "")

	another := serve(t, nil, "--store", dir)
	broker.killed(t)
	page.until(appended, "again")
	appendTo(another, 10) // while no broker serves the page
	broker = start()
	appendTo(broker, 10)
	page.until(appended, "")

	broker.stopped(t)
	page.until(appended, "again")
	broker = start()
	appendTo(another, 5)
	appendTo(broker, 5)
	page.until(appended, "")

	if a := <-begin(t, http.MethodDelete, another.url+"/v1/topics/orders", ""); a.status != http.StatusNoContent {
		t.Fatalf("delete the topic: %+v", a)
	}
	if what := page.until(appended, "problem"); !strings.Contains(what.Data, `"topic_not_found"`) {
		t.Errorf("the page was told %+v", what)
	}
	page.until(appended, "closed") // it has tried again, and given up
}
