package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// answering runs seb on a terminal, and types answer when seb asks for one. If answer is "", it sends Ctrl-C.
// It returns what the terminal showed, whether seb asked, and the exit code.
func answering(t *testing.T, answer string, args ...string) (shown string, asked bool, code int) {
	t.Helper()
	master, terminal := openTerminal(t)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "seb", args...)
	cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for buf := make([]byte, 4096); ; {
		n, err := master.Read(buf) // fails once the process has ended
		all.Write(buf[:n])
		if err != nil {
			break
		}
		if asked || !strings.Contains(all.String(), "[y/N] ") {
			continue
		}
		asked = true
		if answer == "" {
			err = cmd.Process.Signal(syscall.SIGINT)
		} else {
			_, err = master.WriteString(answer)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_ = cmd.Wait() // ProcessState has the result
	return all.String(), asked, cmd.ProcessState.ExitCode()
}

// What goes with a topic is named before it goes, in numbers that are cheap to find.
func TestDeletingATopicSaysWhatGoes(t *testing.T) {
	b := serve(t, nil, "--store", "memory:")
	t.Setenv("SEB_SERVER", b.url)
	runSeb(t, nil, "topic", "create", "orders", "--partitions", "3").want(t, exitOK)
	runSeb(t, strings.NewReader("one\ntwo\nthree\n"), "produce", "orders", "--partition", "1").want(t, exitOK)
	runSeb(t, nil, "topic", "trim", "orders", "--partition", "1", "--before", "1").want(t, exitOK)
	for _, name := range []string{"mail", "bills"} {
		runSeb(t, nil, "queue", "create", "orders", name).want(t, exitOK)
	}
	runSeb(t, nil, "consume", "orders", "--consumer", "billing").want(t, exitOK)
	shown, _, code := answering(t, "n\n", "topic", "delete", "orders")
	if want := "Delete topic orders at " + b.url + "? It has 3 partitions with 2 records, 2 queues and 1 consumer. [y/N] "; code != exitFailure || !strings.Contains(shown, want) {
		t.Errorf("exit code %d, %q", code, shown)
	}
	for i := range 101 {
		runSeb(t, nil, "consumer", "reset", "orders", fmt.Sprint("c", i), "--from", "latest").want(t, exitOK)
	}
	if shown, _, _ := answering(t, "n\n", "topic", "delete", "orders"); !strings.Contains(shown, " and more than 100 consumers.") {
		t.Errorf("of 102 consumers it says %q", shown)
	}
	if shown, asked, code := answering(t, "n\n", "topic", "delete", "nothing"); asked || code != exitRefused || !strings.Contains(shown, "topic_not_found") {
		t.Errorf("of a topic that is not there: exit code %d, %q", code, shown)
	}
}

// The default broker needs no name.
func TestQuestionsNameNoDefaultBroker(t *testing.T) {
	shown, asked, _ := answering(t, "n\n", "queue", "purge", "orders", "mail", "--server", defaultServer)
	if !asked || !strings.Contains(shown, "Mark all records of queue mail of orders as done? ") {
		t.Errorf("it shows %q", shown)
	}
}

func TestWhatDestroysAsksOnATerminal(t *testing.T) {
	b := serve(t, nil, "--store", "memory:")
	t.Setenv("SEB_SERVER", b.url)
	for _, test := range []struct {
		question string
		args     string
	}{
		{"Delete all records of topic orders before offset 1 of partition 0 at " + b.url + "?", "topic trim orders --partition 0 --before 1"},
		{"Mark all records of queue mail of orders at " + b.url + " as done?", "queue purge orders mail"},
		{"Delete queue mail of orders at " + b.url + ", and forget which of its records are done?", "queue delete orders mail"},
		{"Delete topic orders at " + b.url + "? It has 1 partition with ", "topic delete orders"},
	} {
		args := strings.Fields(test.args)
		for _, answer := range []string{"n\n", "\n", "\x04", "yess\n", "", "y\n"} {
			runSeb(t, strings.NewReader("one\ntwo\n"), "produce", "orders").want(t, exitOK)
			if r := runSeb(t, nil, "queue", "show", "orders", "mail"); r.code == exitRefused {
				runSeb(t, nil, "queue", "create", "orders", "mail").want(t, exitOK)
			}
			before := runSeb(t, nil, "topic", "show", "orders").out + runSeb(t, nil, "queue", "list", "orders").out
			shown, asked, code := answering(t, answer, args...)
			if !asked || !strings.Contains(shown, test.question) {
				t.Fatalf("seb %s shows %q, exit code %d", test.args, shown, code)
			}
			want := map[string]int{"y\n": exitOK, "": 130}[answer]
			if answer != "y\n" && answer != "" {
				want = exitFailure
			}
			if code != want || want == exitFailure && !strings.Contains(shown, "nothing was changed") {
				t.Errorf("seb %s, answered %q: exit code %d, %q", test.args, answer, code, shown)
			}
			after := runSeb(t, nil, "topic", "show", "orders").out + runSeb(t, nil, "queue", "list", "orders").out
			if (withoutAges(before) != withoutAges(after)) != (answer == "y\n") {
				t.Errorf("seb %s, answered %q: it was\n%s\nand is\n%s", test.args, answer, before, after)
			}
		}
	}
	for _, answer := range []string{"--yes", "-y"} {
		runSeb(t, strings.NewReader("one\n"), "produce", "orders").want(t, exitOK)
		if shown, asked, code := answering(t, "n\n", "topic", "delete", "orders", answer); asked || code != exitOK {
			t.Errorf("with %s: exit code %d, %q", answer, code, shown)
		}
	}
}

var ages = regexp.MustCompile(`\b[0-9.m]+s\b *`)

// withoutAges replaces the column OLDEST, which changes by itself.
func withoutAges(table string) string { return ages.ReplaceAllString(table, "AGE") }

func TestRevokingTheLastAdminKeyAsks(t *testing.T) {
	b := serve(t, nil, "--store", "log")
	t.Setenv("SEB_SERVER", b.url)
	create := func(args ...string) string {
		r := runSeb(t, nil, append([]string{"key", "create"}, args...)...)
		r.want(t, exitOK)
		return strings.TrimSpace(r.out)
	}
	t.Setenv("SEB_API_KEY", create("ops", "--scope", "admin"))
	create("second", "--scope", "admin")
	create("some", "--scope", "admin", "--topic", "orders") // can't manage keys
	create("shop", "--scope", "write")
	for _, name := range []string{"shop", "second"} {
		if shown, asked, code := answering(t, "n\n", "key", "revoke", name); asked || code != exitOK {
			t.Errorf("revoke %s: exit code %d, %q", name, code, shown)
		}
	}
	create("visitor", "--scope", "admin", "--expires-in", "1h")
	const soon = "Revoke ops? All other keys that can manage keys expire within a day."
	if shown, asked, code := answering(t, "n\n", "key", "revoke", "ops"); !asked || code != exitFailure || !strings.Contains(shown, soon) {
		t.Errorf("with a key that expires soon, it shows %q, exit code %d", shown, code)
	}
	runSeb(t, nil, "key", "revoke", "visitor").want(t, exitOK)
	const question = "Revoke ops, the last key that can manage keys?"
	if shown, asked, code := answering(t, "n\n", "key", "revoke", "ops"); !asked || code != exitFailure || !strings.Contains(shown, question) {
		t.Errorf("it shows %q, exit code %d", shown, code)
	}
	runSeb(t, nil, "key", "list").want(t, exitOK)
	// The hint says how to get back in, also where nobody is asked.
	runSeb(t, nil, "key", "revoke", "ops").want(t, exitOK, "`seb key create NAME --scope admin --store STORE`")
	runSeb(t, nil, "key", "list").want(t, exitRefused, "unauthorized")
}
