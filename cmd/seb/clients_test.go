package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// clientLanguage says how the programs of a page below docs/clients are built and run.
type clientLanguage struct {
	page     string
	needs    []string
	optional bool // the test is skipped if a program is missing, even if SEB_TEST_REQUIRE is 1
	build    [][]string
	produce  []string
	consume  []string
	receive  []string                 // receives webhooks; nil: the page has no such program
	value    func(line string) string // the record's value in what consume prints; nil: the whole line
}

var clientLanguages = []clientLanguage{
	{page: "python.md", needs: []string{"python3"}, produce: []string{"python3", "produce.py"}, consume: []string{"python3", "consume.py"}, receive: []string{"python3", "receive.py"}},
	{page: "javascript.md", needs: []string{"node"}, optional: true, produce: []string{"node", "produce.mjs"}, consume: []string{"node", "consume.mjs"}},
	{
		page: "java.md", needs: []string{"javac", "java"}, optional: true, build: [][]string{{"javac", "Seb.java", "Produce.java", "Consume.java"}},
		produce: []string{"java", "Produce"}, consume: []string{"java", "Consume"},
	},
	{
		page: "go.md", needs: []string{"go"}, build: [][]string{{"go", "build", "produce.go"}, {"go", "build", "consume.go"}},
		produce: []string{"./produce"}, consume: []string{"./consume"},
	},
	{
		page: "shell.md", needs: []string{"bash", "curl"}, produce: []string{"bash", "produce.sh"}, consume: []string{"bash", "consume.sh"},
		value: func(line string) string {
			var record struct{ Value string }
			if err := json.Unmarshal([]byte(line), &record); err != nil {
				return err.Error()
			}
			return record.Value
		},
	},
}

// Each page below docs/clients is about a language, and has programs that work.
func TestClientPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("the programs run outside of the race detector")
	}
	pages, err := filepath.Glob("../../docs/clients/*.md")
	if err != nil || len(pages) != len(clientLanguages)+1 { // and README.md
		t.Fatalf("there are %d pages, %v; want README.md, and one for each of %d languages", len(pages), err, len(clientLanguages))
	}
	for _, l := range clientLanguages {
		t.Run(l.page, func(t *testing.T) {
			t.Parallel()
			dir := l.programs(t)
			t.Run("restart", func(t *testing.T) { t.Parallel(); surviveRestart(t, l, dir) })
			t.Run("lost response", func(t *testing.T) { t.Parallel(); surviveLostResponses(t, l, dir) })
			t.Run("refusal", func(t *testing.T) { t.Parallel(); endWhenRefused(t, l, dir) })
			if l.receive != nil {
				t.Run("webhooks", func(t *testing.T) { t.Parallel(); receiveSigned(t, l, dir) })
			}
		})
	}
}

var docFile = regexp.MustCompile("(?s)<!-- file: (\\S+) -->\n```[a-z]+\n(.*?\n)```\n")

// programs writes the programs of the page to a directory, and builds them.
func (l clientLanguage) programs(t *testing.T) string {
	t.Helper()
	for _, program := range l.needs {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("SEB_TEST_REQUIRE") == "1" && !l.optional {
				t.Fatal(program + " is missing")
			}
			t.Skip(program + " is missing")
		}
	}
	page, err := os.ReadFile(filepath.Join("../../docs/clients", l.page))
	if err != nil {
		t.Fatal(err)
	}
	files := docFile.FindAllStringSubmatch(string(page), -1)
	if len(files) == 0 {
		t.Fatal("the page has no files")
	}
	dir := t.TempDir()
	for _, f := range files {
		writeFile(t, filepath.Join(dir, f[1]), f[2])
	}
	for _, command := range l.build {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Dir = dir
		if command[0] == "go" { // runs where the module is
			name := command[2]
			cmd.Args = []string{"go", "build", "-o", dir + "/" + strings.TrimSuffix(name, ".go"), filepath.Join(dir, name)}
			cmd.Dir = "../.."
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	return dir
}

// clientProgram is a program of a page that runs.
type clientProgram struct {
	*process
	stdin io.WriteCloser
}

// runClient starts a program of a page.
func runClient(t *testing.T, dir, server string, command []string, args ...string) *clientProgram {
	t.Helper()
	args = slices.Concat(command[1:], args)
	p := &clientProgram{process: &process{
		cmd: exec.CommandContext(t.Context(), command[0], args...), stdout: newOutput(), stderr: newOutput(), done: make(chan struct{}),
	}}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), "SEB_SERVER="+server)
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	inGroup(p.cmd)
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // ProcessState has the result
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%v printed\n%s\nand on standard error\n%s", p.cmd.Args, p.stdout, p.stderr)
		}
	})
	return p
}

// kill ends the program and what it has started.
func (p *clientProgram) kill() {
	_ = signalGroup(p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	<-p.done
}

// write writes the lines from, from+1, ... to-1.
func (p *clientProgram) write(t *testing.T, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := fmt.Fprintln(p.stdin, clientLine(i)); err != nil {
			t.Fatal(err)
		}
	}
}

// ended closes the program's input, and returns its exit code.
func (p *clientProgram) ended(t *testing.T) int {
	t.Helper()
	_ = p.stdin.Close() // the program may have ended
	select {
	case <-p.done:
	case <-time.After(startTimeout):
		t.Fatalf("%v does not end", p.cmd.Args)
	}
	return p.cmd.ProcessState.ExitCode()
}

// clientLine is a line with characters that JSON, shells and the locale may spoil. Line 3 is empty.
func clientLine(i int) string {
	if i == 3 {
		return ""
	}
	return fmt.Sprintf(`%d "naïve" \n $HOME  `, i)
}

func clientLines(n int) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = clientLine(i)
	}
	return lines
}

// surviveRestart kills the broker while the programs run, and starts it again: each line is in the log once, and
// the consumer gets each record.
func surviveRestart(t *testing.T, l clientLanguage, dir string) {
	store := t.TempDir()
	args := []string{"--store", store, "--http", "127.0.0.1:" + freePort(t)}
	broker := serve(t, nil, args...)
	producer := runClient(t, dir, broker.url, l.produce, "orders")
	producer.write(t, 0, 5)
	until(t, "the broker has the first lines", func() bool { return slices.Equal(topicValues(t, broker.url), clientLines(5)) })
	consumer := runClient(t, dir, broker.url, l.consume, "orders", "billing")
	until(t, "the consumer has read the first lines", func() bool { return len(l.values(consumer)) >= 5 })

	broker.killed(t)
	producer.write(t, 5, 8)
	for _, p := range []*clientProgram{producer, consumer} {
		until(t, fmt.Sprintf("%v tries again", p.cmd.Args), func() bool { return strings.Contains(p.stderr.String(), "trying again") })
	}
	broker = serve(t, nil, args...)

	producer.write(t, 8, 10)
	if code := producer.ended(t); code != 0 {
		t.Errorf("the producer ended with %d", code)
	}
	if got, want := topicValues(t, broker.url), clientLines(10); !slices.Equal(got, want) {
		t.Errorf("the log has\n%q, want\n%q", got, want)
	}
	until(t, "the consumer has committed all", func() bool { return consumerLag(t, broker.url) == 0 })
	got := l.values(consumer)
	for i, want := range clientLines(10) {
		if !slices.Contains(got, want) {
			t.Errorf("the consumer has not got line %d, but %q", i, got)
		}
	}
	consumer.kill()

	// The next run of the consumer begins where the last one has committed.
	appendLine(t, broker.url, "last")
	consumer = runClient(t, dir, broker.url, l.consume, "orders", "billing")
	until(t, "the consumer reads the last record", func() bool { return len(l.values(consumer)) > 0 })
	if got := l.values(consumer); !slices.Equal(got, []string{"last"}) {
		t.Errorf("the second consumer has got %q", got)
	}
}

// surviveLostResponses loses the first response to each kind of request, after the broker has done it: an append
// that is repeated is in the log once.
func surviveLostResponses(t *testing.T, l clientLanguage, dir string) {
	broker := serve(t, nil)
	target, err := url.Parse(broker.url)
	if err != nil {
		t.Fatal(err)
	}
	var appends, reads, commits atomic.Int32
	lossy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(res *http.Response) error {
			path, count := res.Request.URL.Path, &reads
			switch {
			case strings.HasSuffix(path, "/commit"):
				count = &commits
			case res.Request.Method == http.MethodPost:
				count = &appends
			}
			if count.Add(1) == 1 {
				return http.ErrAbortHandler
			}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // closes the connection
	}
	proxy := httptest.NewServer(lossy)
	t.Cleanup(proxy.Close)

	producer := runClient(t, dir, proxy.URL, l.produce, "orders")
	producer.write(t, 0, 5)
	if code := producer.ended(t); code != 0 {
		t.Errorf("the producer ended with %d", code)
	}
	if got, want := topicValues(t, broker.url), clientLines(5); !slices.Equal(got, want) {
		t.Errorf("the log has\n%q, want\n%q", got, want)
	}
	if n := appends.Load(); n != 6 {
		t.Errorf("the producer has sent %d requests, want 5, and one again", n)
	}
	consumer := runClient(t, dir, proxy.URL, l.consume, "orders", "billing")
	until(t, "the consumer has committed all, after a lost response", func() bool { return commits.Load() > 1 && consumerLag(t, broker.url) == 0 })
	if got := l.values(consumer); !slices.Equal(slices.Compact(got), clientLines(5)) {
		t.Errorf("the consumer has got %q", got)
	}
}

// endWhenRefused sends a request that no retry makes valid.
func endWhenRefused(t *testing.T, l clientLanguage, dir string) {
	broker := serve(t, nil)
	producer := runClient(t, dir, broker.url, l.produce, "no!topic")
	producer.write(t, 0, 1)
	for _, p := range []*clientProgram{producer, runClient(t, dir, broker.url, l.consume, "no!topic", "billing")} {
		if code := p.ended(t); code == 0 || !strings.Contains(p.stderr.String(), "invalid_topic_name") {
			t.Errorf("%v ended with %d", p.cmd.Args, code)
		}
	}
}

// receiveSigned pushes a queue to the page's receiver, which gets what the broker has signed, and refuses all else.
func receiveSigned(t *testing.T, l clientLanguage, dir string) {
	broker := serve(t, nil, "--push-allow", "127.0.0.1")
	secret := base64.StdEncoding.EncodeToString([]byte("a secret of at least 24 bytes"))
	file, port := filepath.Join(t.TempDir(), "secret"), freePort(t)
	writeFile(t, file, "whsec_"+secret)
	l.receive = slices.Concat([]string{"env", "WEBHOOK_SECRET=whsec_" + secret}, l.receive)
	receiver := runClient(t, dir, broker.url, l.receive, port)

	appendLine(t, broker.url, clientLine(0))
	runSeb(t, nil, "queue", "create", "orders", "mail", "--from", "earliest", "--server", broker.url).want(t, exitOK)
	runSeb(t, nil, "queue", "push", "set", "orders", "mail", "http://127.0.0.1:"+port, "--secret-file", file, "--server", broker.url).want(t, exitOK)
	until(t, "the receiver has the record", func() bool { return slices.Equal(l.values(receiver), []string{clientLine(0)}) })

	writeFile(t, file, "whsec_"+base64.StdEncoding.EncodeToString([]byte("another secret of 24 bytes")))
	runSeb(t, nil, "queue", "push", "set", "orders", "mail", "--secret-file", file, "--server", broker.url).want(t, exitOK)
	appendLine(t, broker.url, clientLine(1))
	until(t, "the receiver has refused the next record", func() bool {
		var push struct{ Failing *string }
		getJSON(t, broker.url+"/v1/topics/orders/queues/mail/push", &push)
		return push.Failing != nil && strings.Contains(*push.Failing, "401")
	})
	if got := l.values(receiver); len(got) != 1 {
		t.Errorf("the receiver has got %q", got)
	}
}

// values returns the values of the records that consume has printed.
func (l clientLanguage) values(p *clientProgram) []string {
	var values []string
	for line := range strings.Lines(p.stdout.String()) {
		if line, whole := strings.CutSuffix(line, "\n"); whole {
			if l.value != nil {
				line = l.value(line)
			}
			values = append(values, line)
		}
	}
	return values
}

// getJSON reads the response to a GET into v, and returns the status.
func getJSON(t *testing.T, url string, v any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(v); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode
}

// topicValues returns the values of the topic's records, in order.
func topicValues(t *testing.T, server string) []string {
	t.Helper()
	var read struct{ Records []struct{ Value string } }
	getJSON(t, server+"/v1/topics/orders/records", &read)
	var values []string
	for _, r := range read.Records {
		values = append(values, r.Value)
	}
	return values
}

// consumerLag returns how many records the consumer has not committed, or -1 if it does not exist.
func consumerLag(t *testing.T, server string) int {
	t.Helper()
	var consumer struct{ Lag int }
	if getJSON(t, server+"/v1/topics/orders/consumers/billing", &consumer) != http.StatusOK {
		return -1
	}
	return consumer.Lag
}

func appendLine(t *testing.T, server, value string) {
	t.Helper()
	if a := <-begin(t, http.MethodPost, server+"/v1/topics/orders/records", value); a.err != nil || a.status != http.StatusCreated {
		t.Fatalf("append: %+v", a)
	}
}
