package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes the test binary stand in for seb where a test runs it by that
// name, so that processes can be killed for real.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"seb": main, "seb-crowd": crowdMain})
}

// result is what a command line gave.
type result struct {
	code     int
	out, err string
}

// seb runs a command line in this process.
func runSeb(t *testing.T, stdin io.Reader, args ...string) result {
	t.Helper()
	return runSebContext(t.Context(), t, stdin, args...)
}

func runSebContext(ctx context.Context, t *testing.T, stdin io.Reader, args ...string) result {
	t.Helper()
	if stdin == nil {
		stdin = strings.NewReader("")
	}
	var out, err bytes.Buffer
	code := run(ctx, args, streams{stdin, &out, &err})
	return result{code, out.String(), err.String()}
}

// want fails the test unless the command ended with code, and said every one
// of messages on standard error.
func (r result) want(t *testing.T, code int, messages ...string) {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit code is %d, not %d\nstdout: %s\nstderr: %s", r.code, code, r.out, r.err)
	}
	for _, m := range messages {
		if !strings.Contains(r.err, m) {
			t.Errorf("standard error lacks %q:\n%s", m, r.err)
		}
	}
}

func TestExitCodesTellUsageFromFailure(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		code int
		err  string
	}{
		{"nothing", nil, exitUsage, "seb COMMAND --help"},
		{"unknown command", []string{"frobnicate"}, exitUsage, "frobnicate"},
		{"unknown flag", []string{"version", "--frobnicate"}, exitUsage, "--frobnicate"},
		{"missing argument", []string{"consume"}, exitUsage, "<topic>"},
		{"bad position", []string{"consume", "t", "--from", "soon"}, exitUsage, "soon"},
		{"update of nothing", []string{"topic", "update", "t"}, exitUsage, "--retention"},
		{"no partitions", []string{"topic", "create", "t", "--partitions", "0"}, exitUsage, "--partitions"},
		{"fewer than one partition", []string{"topic", "update", "t", "--partitions", "0"}, exitUsage, "--partitions"},
		{"retention of no time", []string{"topic", "update", "t", "--retention", "0s"}, exitUsage, "none for no limit"},
		{"retention in days", []string{"topic", "create", "t", "--retention", "7d"}, exitUsage, "168h"},
		{"retention of nothing", []string{"topic", "create", "t", "--retention-bytes", "0"}, exitUsage, "none for no limit"},
		{"trim without a partition", []string{"topic", "trim", "t", "--before", "1"}, exitUsage, "--partition"},
		{"trim without an offset", []string{"topic", "trim", "t", "--partition", "0"}, exitUsage, "--before"},
		{"trim before the first", []string{"topic", "trim", "t", "--partition", "0", "--before", "-1"}, exitUsage, "--before"},
		{"bad server", []string{"topic", "list", "--server", "localhost:1"}, exitUsage, "--server"},
		{"bad size", []string{"serve", "--memory", "12 parsecs"}, exitUsage, "12 parsecs"},
		{"too little memory", []string{"serve", "--store", "memory:", "--http", "127.0.0.1:0", "--memory", "1MiB"}, exitUsage, "memory"},
		{"bad store", []string{"doctor", "--store", "gs://bucket"}, exitUsage, "gs://bucket"},
		{"open to others", []string{"serve", "--store", "memory:", "--http", "0.0.0.0:0"}, exitUsage, "--insecure"},
		{"open to all", []string{"serve", "--store", "memory:", "--http", ":0"}, exitUsage, "--insecure"},
		{"profiles open to others", []string{"serve", "--debug-addr", "192.0.2.1:0"}, exitUsage, "--debug-addr"},
		{"key without a scope", []string{"key", "create", "a"}, exitUsage, "--scope"},
		{"key of no known scope", []string{"key", "create", "a", "--scope", "root"}, exitUsage, "root"},
		{"key that expired", []string{"key", "create", "a", "--scope", "read", "--expires-in", "-1h"}, exitUsage, "--expires-in"},
		{"URL without a key", []string{"url", "--topic", "t"}, exitUsage, "SEB_KEY"},
		{"URL without a topic", []string{"url", "--key", "k"}, exitUsage, "--topic"},
		{"URL with no key", []string{"url", "--topic", "t", "--key", "k"}, exitRefused, "that is no API key"},
		{"URL of no time", []string{"url", "--topic", "t", "--key", "k", "--ttl", "0s"}, exitUsage, "--ttl"},
		{"URL for ever", []string{"url", "--topic", "t", "--key", "k", "--ttl", "9000h"}, exitUsage, "--ttl"},
		{"URL from somewhere", []string{"url", "--topic", "t", "--key", "k", "--from", "there"}, exitUsage, "--from"},
		{"key in memory", []string{"key", "list", "--store", "memory:"}, exitUsage, "memory:"},
		{"keys of no log", []string{"key", "list", "--store", "no-such-directory"}, exitRefused, "no-such-directory"},
		{"key of two lines", []string{"topic", "list", "--key", "a\nb"}, exitUsage, "API key"},
		{"zero", []string{"serve", "--checkpoint-commits", "0"}, exitUsage, "--checkpoint-commits"},
		{"negative linger", []string{"serve", "--linger", "-1s"}, exitUsage, "--linger"},
		{"nobody there", []string{"topic", "list", "--server", "http://127.0.0.1:1"}, exitUnreachable, "no broker answers"},
		{"no such object", []string{"dump", "--store", "memory:", "log/00000000000000000001"}, exitRefused, "not found"},
		{"version", []string{"version"}, exitOK, ""},
		{"help", []string{"--help"}, exitOK, ""},
		{"help as a command", []string{"help"}, exitOK, ""},
		{"help of a command", []string{"help", "topic", "trim"}, exitOK, ""},
		{"help of none", []string{"help", "frobnicate"}, exitUsage, "frobnicate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			runSeb(t, nil, test.args...).want(t, test.code, test.err)
		})
	}
}

// Every command shows how it is used, and says it with examples.
func TestHelpHasExamples(t *testing.T) {
	for _, command := range []string{
		"serve", "topic create", "topic list", "topic show", "topic update", "topic trim", "topic delete", "produce", "consume", "import", "doctor", "dump", "fsck", "version", "completion", "top",
	} {
		r := runSeb(t, nil, append(strings.Fields(command), "--help")...)
		r.want(t, exitOK)
		if !strings.Contains(r.out, "Examples:") || !strings.Contains(r.out, "seb "+command+" ") && !strings.Contains(r.out, "    seb "+command) {
			if command != "produce" || !strings.Contains(r.out, "| seb produce") {
				t.Errorf("the help of %s has no example:\n%s", command, r.out)
			}
		}
	}
}

func TestErrorsAreOneLineWithTheHintOnTheNext(t *testing.T) {
	r := runSeb(t, nil, "topic", "show", "orders", "--server", "http://127.0.0.1:1")
	r.want(t, exitUnreachable)
	lines := strings.Split(strings.TrimRight(r.err, "\n"), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "seb: show topic orders: ") || !strings.Contains(lines[1], "seb serve") {
		t.Errorf("standard error is not an error and a hint:\n%s", r.err)
	}
}

func TestEnvironmentSetsFlags(t *testing.T) {
	t.Setenv("SEB_SERVER", "ftp://example")
	runSeb(t, nil, "topic", "list").want(t, exitUsage, "ftp://example")
}

// Read from top to bottom it teaches the product.
func TestHelpTellsWhatSebIsAndHowToBegin(t *testing.T) {
	r := runSeb(t, nil, "--help")
	r.want(t, exitOK)
	at := 0
	for _, next := range []string{
		"event log", "object store", "First steps", "seb serve ", "seb produce ", "seb consume ", "Environment:", "SEB_SERVER",
		"Exit codes:", "Documentation:", "Server:", "serve ", "Data, through a broker:", "topic create", "consume ",
		"Operations:", "doctor ", "fsck ", "Other:", "completion ",
	} {
		found := strings.Index(r.out[at:], next)
		if found < 0 {
			t.Fatalf("the help lacks %q after\n%s", next, r.out[:at])
		}
		at += found
	}
	if strings.Contains(r.out, "complete ") {
		t.Error("the help shows what only shells call")
	}
}
