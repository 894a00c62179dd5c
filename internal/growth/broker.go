package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// broker is a seb serve process.
type broker struct {
	url    string
	key    string        // the API key of requests; "" for none
	ready  time.Duration // from the start of the process until the broker was ready
	cmd    *exec.Cmd
	client *http.Client
	stderr *bytes.Buffer // readable once done is closed
	done   chan struct{} // closed when the process has ended
}

func startBroker(ctx context.Context, seb, store string, flags ...string) (*broker, error) {
	b := &broker{
		cmd:    exec.CommandContext(ctx, seb, append([]string{"serve", "--store", store, "--http", "127.0.0.1:0", "--log-level", "warn"}, flags...)...),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}, Timeout: 2 * time.Minute},
		stderr: new(bytes.Buffer),
		done:   make(chan struct{}),
	}
	b.cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+slowStoreUser, "AWS_SECRET_ACCESS_KEY="+slowStoreSecret, "AWS_SESSION_TOKEN=")
	b.cmd.Stderr = b.stderr
	stdout, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stdout)
	for b.url == "" && lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "Seb is ready at "); ok {
			b.url, b.ready = url, time.Since(began)
		}
	}
	go func() {
		defer close(b.done)
		_, _ = io.Copy(io.Discard, stdout) // the pipe ends when the process does
		_ = b.cmd.Wait()                   // callers look at the ProcessState instead of the error
	}()
	if b.url == "" {
		<-b.done
		return nil, fmt.Errorf("seb serve is not ready: %v\n%s", b.cmd.ProcessState, b.stderr)
	}
	return b, nil
}

// kill ends the process with SIGKILL.
func (b *broker) kill() {
	_ = b.cmd.Process.Kill() // the process may have ended
	<-b.done
}

// stop ends the process with SIGTERM, and waits until it has shut down.
func (b *broker) stop() error {
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-b.done
	if code := b.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("seb serve ended with %d:\n%s", code, b.stderr)
	}
	return nil
}

// ask sends a request and returns the body of the answer. A status of 400 or more is an error.
func (b *broker) ask(ctx context.Context, method, path, body string) ([]byte, error) {
	return b.askAs(ctx, method, path, "", body)
}

// askAs is ask with the media type of the body; "" for none.
func (b *broker) askAs(ctx context.Context, method, path, contentType, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, b.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if b.key != "" {
		req.Header.Set("Authorization", "Bearer "+b.key)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 400 {
		err = fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, text)
	}
	return text, err
}

// into sends a request like ask, and decodes the JSON body of the answer into answer.
func (b *broker) into(ctx context.Context, method, path, body string, answer any) error {
	text, err := b.ask(ctx, method, path, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// memory returns the resident memory of the process now, and its peak, in bytes. It works
// only on Linux.
func (b *broker) memory() (now, peak int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			now = kib << 10
		case "VmHWM":
			peak = kib << 10
		}
	}
	return now, peak, nil
}

// cpu returns the processor time that the process has used.
func (b *broker) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("unexpected /proc stat line %q", text)
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	const ticks = 100 // per second: USER_HZ is 100 on every Linux
	return time.Duration(user+system) * time.Second / ticks, errors.Join(err1, err2)
}

// metric returns the value of a metric, added up over all series of the metric.
func (b *broker) metric(ctx context.Context, name string) (float64, error) {
	text, err := b.ask(ctx, http.MethodGet, "/metrics", "")
	if err != nil {
		return 0, err
	}
	sum, found := 0.0, false
	for line := range strings.Lines(string(text)) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if base, _, _ := strings.Cut(series, "{"); !ok || base != name {
			continue
		}
		x, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		sum, found = sum+x, true
	}
	if !found {
		return 0, fmt.Errorf("the broker has no metric %s", name)
	}
	return sum, nil
}
