package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/simple-event-broker/seb/internal/test/loglines"
)

// TestMain makes the test binary act as seb if a test runs it by that name, so that tests can kill real
// processes.
func TestMain(m *testing.M) {
	// Parallel tests mostly wait for processes. The flag -parallel goes before.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	testscript.Main(m, map[string]func(){"seb": main, "seb-crowd": crowdMain})
}

// result is the exit code and output of a command line.
type result struct {
	code     int
	out, err string
}

// runSeb runs a command line in this process.
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
	loglines.Check(t, err.String())
	return result{code, out.String(), err.String()}
}

// want fails the test unless the command ended with code, and wrote each of messages to standard error.
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

func TestExitCodesSeparateUsageFromFailure(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		code int
		err  string
	}{
		{"nothing", nil, exitUsage, "seb COMMAND --help"},
		{"unknown command", []string{"frobnicate"}, exitUsage, "frobnicate"},
		{"unknown flag", []string{"version", "--frobnicate"}, exitUsage, "--frobnicate"},
		{"unknown flag's help", []string{"topic", "trim", "--frobnicate"}, exitUsage, "see seb topic trim --help"},
		{"unknown subcommand", []string{"topic", "frobnicate"}, exitUsage, "see seb topic --help"},
		{"bad value", []string{"topic", "create", "t", "--partitions", "-1"}, exitUsage, "see seb topic create --help"},
		{"missing argument", []string{"consume"}, exitUsage, "<topic>"},
		{"bad position", []string{"consume", "t", "--from", "soon"}, exitUsage, "soon"},
		{"update of nothing", []string{"topic", "update", "t"}, exitUsage, "--retention"},
		{"state without room", []string{"serve", "--store", "memory:", "--http", "127.0.0.1:0", "--state-memory", "1"}, exitUsage, "--state-memory is 1 B; it must be at least 1 MiB"},
		{"no partitions", []string{"topic", "create", "t", "--partitions", "0"}, exitUsage, "--partitions"},
		{"fewer than one partition", []string{"topic", "update", "t", "--partitions", "0"}, exitUsage, "--partitions"},
		{"retention of no time", []string{"topic", "update", "t", "--retention", "0s"}, exitUsage, `"none" for no limit`},
		{"retention in years", []string{"topic", "create", "t", "--retention", "7y"}, exitUsage, "7d"},
		{"duration in years", []string{"queue", "create", "t", "q", "--lease", "1y"}, exitUsage, `--lease: invalid duration "1y": write 250ms, 30s, 1h or 7d`},
		{"retention of nothing", []string{"topic", "create", "t", "--retention-bytes", "0"}, exitUsage, `"none" for no limit`},
		{"topic without a name", []string{"topic", "delete", ""}, exitUsage, "use 1 to 249 of"},
		{"topic that would be a path", []string{"produce", ".."}, exitUsage, "invalid_topic_name"},
		{"topic of a consumer that would be a path", []string{"consumer", "delete", "..", "billing"}, exitUsage, "invalid_topic_name"},
		{"trim without a partition", []string{"topic", "trim", "t", "--before", "1"}, exitUsage, "--partition"},
		{"trim without an offset", []string{"topic", "trim", "t", "--partition", "0"}, exitUsage, "--before"},
		{"trim before the first", []string{"topic", "trim", "t", "--partition", "0", "--before", "-1"}, exitUsage, "--before"},
		{"bad server", []string{"topic", "list", "--server", "ftp://localhost:1"}, exitUsage, "--server"},
		{"server without a scheme", []string{"topic", "list", "--server", "127.0.0.1:1"}, exitUnreachable, "no broker answers at http://127.0.0.1:1"},
		{"bad size", []string{"serve", "--memory", "12 parsecs"}, exitUsage, "12 parsecs"},
		{"too little memory", []string{"serve", "--store", "memory:", "--http", "127.0.0.1:0", "--memory", "1MiB"}, exitUsage, "memory"},
		{"bad store", []string{"doctor", "--store", "gs://bucket"}, exitUsage, "gs://bucket"},
		{"open to others", []string{"serve", "--store", "memory:", "--http", "0.0.0.0:0"}, exitUsage, "--insecure"},
		{"open to all", []string{"serve", "--store", "memory:", "--http", ":0"}, exitUsage, "--insecure"},
		{"no port", []string{"serve", "--store", "memory:", "--http", "127.0.0.1"}, exitUsage, "--http"},
		{"port that can't be", []string{"serve", "--store", "memory:", "--http", "127.0.0.1:99999"}, exitUsage, "--http"},
		{"address of another machine", []string{"serve", "--store", "memory:", "--http", "192.0.2.1:0", "--insecure"}, exitUsage, "an address of this machine"},
		{"profiles open to others", []string{"serve", "--debug-addr", "192.0.2.1:0"}, exitUsage, "--debug-addr"},
		{"key without a scope", []string{"key", "create", "a"}, exitUsage, "--scope"},
		{"key of no known scope", []string{"key", "create", "a", "--scope", "root"}, exitUsage, "root"},
		{"key that expired", []string{"key", "create", "a", "--scope", "read", "--expires-in", "-1h"}, exitUsage, "--expires-in"},
		{"URL without a key", []string{"url", "--topic", "t"}, exitUsage, "SEB_API_KEY"},
		{"URL without a topic", []string{"url", "--api-key", "k"}, exitUsage, "--topic"},
		{"URL with no key", []string{"url", "--topic", "t", "--api-key", "k"}, exitRefused, "malformed API key"},
		{"URL of no time", []string{"url", "--topic", "t", "--api-key", "k", "--ttl", "0s"}, exitUsage, "--ttl"},
		{"URL for ever", []string{"url", "--topic", "t", "--api-key", "k", "--ttl", "9000h"}, exitUsage, "--ttl"},
		{"URL from somewhere", []string{"url", "--topic", "t", "--api-key", "k", "--from", "there"}, exitUsage, "--from"},
		{"key in memory", []string{"key", "list", "--store", "memory:"}, exitUsage, "memory:"},
		{"keys of no log", []string{"key", "list", "--store", "no-such-directory"}, exitRefused, "no-such-directory"},
		{"key of two lines", []string{"topic", "list", "--api-key", "a\nb"}, exitUsage, "API key"},
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

// leaves returns the commands without subcommands, by their words.
func leaves(t *testing.T) map[string]*kong.Node {
	t.Helper()
	found := map[string]*kong.Node{}
	var walk func(node *kong.Node, words string)
	walk = func(node *kong.Node, words string) {
		if len(node.Children) == 0 {
			found[strings.TrimSpace(words)] = node
		}
		for _, child := range node.Children {
			if !child.Hidden {
				walk(child, words+" "+child.Name)
			}
		}
	}
	walk(newParser(t.Context(), streams{nil, io.Discard, io.Discard}, func(int) {}).Model.Node, "")
	if len(found) < 20 {
		t.Fatalf("there are only %d commands", len(found))
	}
	return found
}

// The help of every command has examples.
func TestHelpHasExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("nothing goes on at once")
	}
	for words := range leaves(t) {
		r := runSeb(t, nil, append(strings.Fields(words), "--help")...)
		r.want(t, exitOK)
		_, examples, found := strings.Cut(r.out, "Examples:\n\n")
		examples, _, _ = strings.Cut(examples, "\n\n")
		if !found || !strings.Contains(examples+"\n", "seb "+words+"\n") && !strings.Contains(examples, "seb "+words+" ") {
			t.Errorf("the help of %s has no example of it:\n%s", words, r.out)
		}
	}
}

// The help of a flag says what to write, and what the default is.
func TestHelpOfFlagsIsWhole(t *testing.T) {
	for words, node := range leaves(t) {
		for _, argument := range node.Positional {
			if !strings.HasSuffix(argument.Help, ".") {
				t.Errorf("seb %s <%s>: %q is no sentence", words, argument.Name, argument.Help)
			}
		}
		for _, flag := range slices.Concat(node.AllFlags(true)...) {
			if !strings.HasSuffix(flag.Help, ".") {
				t.Errorf("seb %s --%s: %q is no sentence", words, flag.Name, flag.Help)
			}
			if !flag.IsBool() && !flag.Required && !strings.Contains(flag.Help, "(default") {
				t.Errorf("seb %s --%s: %q tells of no default", words, flag.Name, flag.Help)
			}
			if flag.Default != "" && !strings.Contains(flag.Help, flag.Default) && flag.Default != "*" {
				t.Errorf("seb %s --%s: %q does not tell of the default %s", words, flag.Name, flag.Help, flag.Default)
			}
			for _, value := range flag.EnumSlice() {
				if !strings.Contains(flag.Help, value) {
					t.Errorf("seb %s --%s: %q does not tell of %s", words, flag.Name, flag.Help, value)
				}
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

// The help of seb says what Seb is, and then what to do first.
func TestHelpSaysWhatSebIsAndHowToBegin(t *testing.T) {
	r := runSeb(t, nil, "--help")
	r.want(t, exitOK)
	at := 0
	for _, next := range []string{
		"event log", "object store", "record ", "topic ", "partition ", "offset ", "First steps", "seb serve ", "seb produce ", "seb consume ", "Environment:", "SEB_SERVER", "SEB_API_KEY", "SEB_STORE",
		"Exit codes:", "Documentation:", "Server:", "serve ", "Data, through a broker:", "topic create", "consume ",
		"Operations:", "doctor ", "fsck ", "gc ", "Other:", "completion ",
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

// A shell variable that is not set makes a flag or a name empty. That must not mean everything, or the default.
func TestEmptyFlagsAndNamesAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"consume", "orders", "--consumer", ""}, {"consume", "orders", "--consumer="}, {"consume", "orders", "--from", ""},
		{"key", "create", "shop", "--scope", "read", "--topic", ""}, {"key", "revoke", "shop", "--store", ""}, {"import", ".", "--topic", ""},
		{"queue", "create", "orders", "mail", "--from", ""}, {"queue", "create", "orders", "mail", "--dead-letter-topic", ""},
		{"queue", "dead", "orders", "mail", "--next", ""}, {"work", "orders", "", "--exec", "true"}, {"queue", "show", "orders", ""},
		{"consumer", "show", "orders", ""}, {"key", "revoke", ""},
	} {
		runSeb(t, nil, append(args, "--server", "http://127.0.0.1:1")...).want(t, exitUsage, " is empty")
	}
	for _, args := range [][]string{
		{"topic", "list", "--api-key", ""}, {"queue", "nack", "orders", "mail", "x", "--reason", ""}, {"produce", "orders", "--key", "", "--file", "/dev/null"},
	} {
		if r := runSeb(t, strings.NewReader(""), append(args, "--server", "http://127.0.0.1:1")...); strings.Contains(r.err, " is empty") {
			t.Errorf("%q: %s", args, r.err)
		}
	}
}
