// Package loglines checks the log lines that tests cause. A line must not show what is not there, such as
// err=<nil>, say the same twice, or have figures without a unit.
//
// [Logger] gives a broker of a test a logger that checks each line, [Text] one that also keeps the lines. [Check]
// checks what a process has written.
package loglines

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"testing"
)

// faults are what no line of either format may have, and why.
var faults = []struct {
	found *regexp.Regexp
	why   string
}{
	{regexp.MustCompile(`<nil>|:null[,}]`), "it shows a value that is not there"},
	{regexp.MustCompile(`!BADKEY|%!\w?\(`), "an attribute or a verb of its format is wrong"},
	{regexp.MustCompile(`operation error|https response error`), "it has the words of an SDK, which belong to the level debug"},
	{regexp.MustCompile(`method"?[=:]"?(GET|HEAD)\b.*\(outcome: `), "a read has no outcome"},
}

// sdkWords is the index in faults of the rule that does not apply to the level debug.
const sdkWords = 2

// requests finds two requests in a row, with their keys.
var requests = regexp.MustCompile(`\b(?:get|create|list|delete|load|read back) (\S+): (?:get|create|list|delete|load|read back) (\S+): `)

var ofDebug = regexp.MustCompile(`level"?[=:]"?DEBUG`)

// durations are names of attributes that have durations. In JSON, such a name must end in a unit: took_seconds.
var durations = []string{"duration", "took", "left", "for", "in", "again_in", "wait", "within", "age"}

// Fault returns what is wrong with a line of a log, or "" if nothing is.
func Fault(line string) string {
	for i, f := range faults {
		if i == sdkWords && ofDebug.MatchString(line) {
			continue
		}
		if f.found.MatchString(line) {
			return f.why
		}
	}
	if keys := requests.FindStringSubmatch(line); keys != nil && keys[1] == keys[2] {
		return "it names a request twice"
	}
	var attrs map[string]any
	if json.Unmarshal([]byte(line), &attrs) != nil {
		return ""
	}
	for name, value := range attrs {
		if _, number := value.(float64); number && slices.Contains(durations, name) {
			return fmt.Sprintf("%s has no unit", name)
		}
	}
	return ""
}

// Logger returns a logger of level debug. Once the test has ended, the test fails if a line was faulty.
func Logger(t testing.TB) *slog.Logger { return Text(t, io.Discard, slog.LevelDebug) }

// Text returns a logger that writes lines of text to out. Once the test has ended, the test fails if a line was
// faulty.
func Text(t testing.TB, out io.Writer, level slog.Level) *slog.Logger {
	w := &checker{}
	t.Cleanup(func() {
		for _, fault := range w.end() {
			t.Error(fault)
		}
	})
	return slog.New(slog.NewTextHandler(io.MultiWriter(w, out), &slog.HandlerOptions{Level: level}))
}

// Check fails the test for each faulty line in what a process has written.
func Check(t testing.TB, written string) {
	t.Helper()
	w := &checker{}
	_, _ = w.Write([]byte(written)) // never fails
	for _, fault := range w.end() {
		t.Error(fault)
	}
}

// checker checks the lines that are written to it.
type checker struct {
	mu     sync.Mutex
	faulty []string
}

func (c *checker) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		if fault := Fault(string(line)); fault != "" {
			c.mu.Lock()
			c.faulty = append(c.faulty, fmt.Sprintf("a log line is faulty, since %s: %s", fault, line))
			c.mu.Unlock()
		}
	}
	return len(p), nil
}

func (c *checker) end() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.faulty
}
