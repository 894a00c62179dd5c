package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/simple-event-broker/seb"
)

// nextOfConsumer returns where the consumer billing of orders continues in partition 0.
func nextOfConsumer(t *testing.T, url string) seb.Offset {
	t.Helper()
	c, err := serverFlag{Server: url}.client()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	info, err := c.Consumer("orders", "billing").Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return nextOf(info)[0]
}

// A pipe takes more records than the program behind it has processed. With --ack-lines, the consumer continues
// after the record that the program acknowledged last.
func TestConsumerContinuesAfterWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	broker, dir := serve(t, nil, "--store", t.TempDir(), "--linger", "1ms"), t.TempDir()
	runSeb(t, strings.NewReader(strings.Join(numbers(1000), "\n")), "produce", "orders", "--server", broker.url).want(t, exitOK)
	pipeline := func(worker string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-c", `[ -p acks ] || mkfifo acks
			{ seb consume orders --consumer billing --ack-lines --server `+broker.url+` <acks 2>errors; echo $? >code; } | `+worker+` >acks`)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.Join(fileLines(t, filepath.Join(dir, "code")), "")
	}
	code := pipeline(`{ read -r x; echo "$x" >>done; echo; read -r x; echo "$x" >>done; echo; }`)
	if next := nextOfConsumer(t, broker.url); code != "1" || next != 2 {
		t.Fatalf("after a worker that ended early, exit code %s, position %d: %q", code, next, fileLines(t, filepath.Join(dir, "errors")))
	}
	if said := strings.Join(fileLines(t, filepath.Join(dir, "errors")), "\n"); !strings.Contains(said, "consume orders: standard input ended: 2 of 1000 records were acknowledged\n") ||
		!strings.Contains(said, "the same command continues after the committed records") {
		t.Errorf("it said\n%s", said)
	}
	code = pipeline(`while read -r x; do echo "$x" >>done; echo; done`)
	if next := nextOfConsumer(t, broker.url); code != "0" || next != 1000 {
		t.Fatalf("at the end, exit code %s, position %d: %q", code, next, fileLines(t, filepath.Join(dir, "errors")))
	}
	oneEach(t, fileLines(t, filepath.Join(dir, "done")), 1000)
	if code = pipeline(`cat`); code != "0" {
		t.Errorf("with no records, exit code %s: %q", code, fileLines(t, filepath.Join(dir, "errors")))
	}
}

// An interrupted consumer commits what its reader still acknowledges.
func TestInterruptedConsumerWaitsForAcknowledgements(t *testing.T) {
	t.Parallel()
	broker := serve(t, nil, "--store", t.TempDir(), "--linger", "1ms")
	runSeb(t, nil, "topic", "create", "orders", "--partitions", "3", "--server", broker.url).want(t, exitOK)
	for _, partition := range []string{"0", "1", "2"} {
		runSeb(t, strings.NewReader("a\nb\n"), "produce", "orders", "--partition", partition, "--server", broker.url).want(t, exitOK)
	}
	cmd := exec.CommandContext(t.Context(), "seb", "consume", "orders", "--consumer", "billing", "--follow", "--ack-lines", "--server", broker.url)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for range 6 {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 { // the reader learns that no more records come
		t.Fatalf("%q, %v", rest, err)
	}
	if _, err := io.WriteString(in, "\nok\n\n\n\n\n"); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // ProcessState has the result
	if code := cmd.ProcessState.ExitCode(); code != 143 || !strings.Contains(stderr.String(), "waiting for the acknowledgements of 6 records") {
		t.Errorf("exit code %d:\n%s", code, &stderr)
	}
	runSeb(t, nil, "consumer", "list", "orders", "--server", broker.url).want(t, exitOK)
	if r := runSeb(t, nil, "consumer", "list", "orders", "--server", broker.url); !strings.Contains(r.out, "billing   0    0") {
		t.Errorf("it has committed\n%s", r.out)
	}
}

// Only whole lines count, and only lines for records that were written.
func TestAcknowledgementsAreWholeLinesForRecords(t *testing.T) {
	for _, test := range []struct {
		lines string
		runs  []ackRun
		want  seb.Offsets
		err   string
	}{
		{"", nil, seb.Offsets{}, ""},
		{"", []ackRun{{0, 0, 2}}, seb.Offsets{}, "standard input ended: 0 of 2 records were acknowledged"},
		{"ok\nhalf", []ackRun{{0, 5, 7}}, seb.Offsets{0: 6}, "standard input ended: 1 of 2 records were acknowledged"},
		{"\n\n\n", []ackRun{{0, 5, 7}, {3, 1, 2}}, seb.Offsets{0: 7, 3: 2}, ""},
		{strings.Repeat("x", 100_000) + "\n\n", []ackRun{{1, 0, 1}, {1, 1, 9}}, seb.Offsets{1: 2}, "standard input ended: 2 of 9 records were acknowledged"},
		{"\n\n\n", []ackRun{{0, 5, 7}}, seb.Offsets{0: 7}, "standard input has more lines than records were written: 2"},
	} {
		a := newAcknowledgements(strings.NewReader(test.lines), false)
		for _, r := range test.runs {
			if err := a.expect(t.Context(), r.partition, r.first, r.next); err != nil {
				t.Fatal(err)
			}
		}
		if test.err == "" {
			a.finish()
		}
		got := seb.Offsets{}
		err := a.run(func(offsets seb.Offsets) error {
			for p, next := range offsets {
				got[p] = next
			}
			return nil
		})
		if fmt.Sprint(got) != fmt.Sprint(test.want) || (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
			t.Errorf("%.20q for %v: %v, %v", test.lines, test.runs, got, err)
		}
	}
}

// A commit that is refused ends the reading, also of a topic that is followed.
func TestConsumerThatIsMovedEndsTheReading(t *testing.T) {
	t.Parallel()
	broker := serve(t, nil, "--store", t.TempDir(), "--linger", "1ms")
	runSeb(t, strings.NewReader("a\nb\n"), "produce", "orders", "--server", broker.url).want(t, exitOK)
	in, acks := io.Pipe()
	records, out := io.Pipe()
	go func() {
		lines := bufio.NewReader(records)
		_, _ = lines.ReadString('\n') // the records have come
		runSeb(t, nil, "consumer", "reset", "orders", "billing", "--from", "latest", "--server", broker.url).want(t, exitOK)
		_, _ = io.WriteString(acks, "\n")
		_, _ = io.Copy(io.Discard, lines)
	}()
	var stderr bytes.Buffer
	code := run(t.Context(), []string{"consume", "orders", "--consumer", "billing", "--follow", "--ack-lines", "--server", broker.url}, streams{in, out, &stderr})
	if code != exitRefused || !strings.Contains(stderr.String(), "position_conflict") {
		t.Errorf("exit code %d:\n%s", code, &stderr)
	}
	runSeb(t, nil, "consume", "orders", "--ack-lines", "--server", broker.url).want(t, exitUsage, "--ack-lines needs --consumer")
}
