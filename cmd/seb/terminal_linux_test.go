package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// onTerminal runs seb with a new terminal as standard output, and returns what seb showed there and its
// exit code. If begun is not nil, onTerminal calls it with the text so far until it returns true; then it
// sends Ctrl-C.
func onTerminal(t *testing.T, env []string, begun func(shown string) bool, args ...string) (shown string, code int) {
	t.Helper()
	master, terminal := openTerminal(t)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "seb", args...)
	cmd.Env = append(append(os.Environ(), "TERM=xterm", "NO_COLOR="), env...)
	cmd.Stdout, cmd.Stderr = terminal, terminal
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
		if begun != nil && begun(all.String()) {
			begun = nil
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // ProcessState has the result
	return all.String(), cmd.ProcessState.ExitCode()
}

// openTerminal returns the two ends of a terminal of 100 columns and 30 rows.
func openTerminal(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals to be had: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100})
	}
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals to be had: %v", err)
	}
	return master, terminal
}

func TestColoursAreForTerminalsThatWantThem(t *testing.T) {
	args := []string{"doctor", "--store", t.TempDir(), "--rounds", "1", "--racers", "2", "--samples", "1"}
	if shown, code := onTerminal(t, nil, nil, args...); code != exitOK || !strings.Contains(shown, "verdict: \x1b[32musable\x1b[0m") {
		t.Errorf("a terminal gets no colours, exit code %d:\n%q", code, shown)
	}
	for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
		if shown, _ := onTerminal(t, []string{env}, nil, args...); !strings.Contains(shown, "verdict: usable") {
			t.Errorf("with %s it shows\n%q", env, shown)
		}
	}
	if r := runSeb(t, io.LimitReader(nil, 0), args...); strings.Contains(r.out, "\x1b") {
		t.Errorf("a file gets\n%q", r.out)
	}
	if shown, code := onTerminal(t, nil, nil, "topic", "list", "--server", "http://127.0.0.1:1"); code != exitUnreachable ||
		!strings.HasPrefix(shown, "\x1b[1;31mseb:\x1b[0m list topics: ") {
		t.Errorf("exit code %d, %q", code, shown)
	}
}

// top goes on without the broker, until Ctrl-C.
func TestTopOnATerminal(t *testing.T) {
	b := serve(t, nil, "--store", "memory:")
	runSeb(t, strings.NewReader("a\n"), "produce", "orders", "--server", b.url).want(t, exitOK)
	shown, code := onTerminal(t, nil, func(shown string) bool {
		if strings.Contains(shown, "no response: no broker answers") || strings.Count(shown, toTopLeft) > 100 {
			return true // a request under way fails with another error than later ones
		}
		if strings.Count(shown, toTopLeft) == 2 {
			b.kill()
		}
		return false
	}, "top", "--server", b.url, "--interval", "100ms")
	if code != 130 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"\x1b[32mready\x1b[0m\x1b[K", "\norders ", "\x1b[1;31mno response: no broker answers"} {
		if !strings.Contains(shown, want) {
			t.Errorf("it does not show %q:\n%q", want, shown)
		}
	}
}

// topOnItsTerminal runs top on a new terminal that is its controlling terminal, and calls end once top has shown a
// screen. It returns what top showed, and its exit code. The terminal must then be as it was.
func topOnItsTerminal(t *testing.T, url string, end func(keys io.Writer, top *os.Process) error) (shown string, code int) {
	t.Helper()
	master, terminal := openTerminal(t)
	before, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "seb", "top", "--server", url, "--interval", "100ms")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // the terminal sends it signals
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 4096); strings.Count(shown, toTopLeft) < 2; {
		n, err := master.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		shown += string(buf[:n])
	}
	if err := end(master, cmd.Process); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, master) }() // so that top can draw; it ends with the terminal
	_ = cmd.Wait()                                     // ProcessState has the result
	after, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal was changed: %v", err)
	}
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	return shown, cmd.ProcessState.ExitCode()
}

// q leaves top, and so do Ctrl-C and Ctrl-\, with the exit codes of their signals. Ctrl-Z does nothing.
func TestTopIsLeftByAKey(t *testing.T) {
	b := serve(t, nil, "--store", "memory:")
	for keys, want := range map[string]int{"xq": exitOK, "\x03": 130, "\x1aq": exitOK, "\x1c": 131} {
		shown, code := topOnItsTerminal(t, b.url, func(typed io.Writer, _ *os.Process) error {
			_, err := io.WriteString(typed, keys)
			return err
		})
		if code != want {
			t.Errorf("%q: exit code %d", keys, code)
		}
		if lines := strings.Count(shown, "\n"); lines == 0 || strings.Count(shown, "\r\n") != lines {
			t.Errorf("%q: some lines begin where the last one ended:\n%q", keys, shown)
		}
	}
}

// A signal ends top. The terminal is then as it was.
func TestTopRestoresTheTerminalAfterASignal(t *testing.T) {
	b := serve(t, nil, "--store", "memory:")
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			continue // top inherits this, as below nohup
		}
		if _, code := topOnItsTerminal(t, b.url, func(_ io.Writer, top *os.Process) error { return top.Signal(s) }); code != exitSignal+int(s) {
			t.Errorf("%v: exit code %d", s, code)
		}
	}
}

// On a terminal, consume says what --from -N means in a topic with several partitions.
func TestLastRecordsOfSeveralPartitionsAreExplained(t *testing.T) {
	b := serve(t, nil, "--store", "memory:")
	for topic, partitions := range map[string]string{"one": "1", "three": "3"} {
		runSeb(t, nil, "topic", "create", topic, "--partitions", partitions, "--server", b.url).want(t, exitOK)
		shown, code := onTerminal(t, nil, nil, "consume", topic, "--from", "-5", "--server", b.url)
		says := strings.Contains(shown, "the last 5 records of each of the 3 partitions; records of different partitions are not sorted by time")
		if code != exitOK || says != (topic == "three") {
			t.Errorf("%s: exit code %d, %q", topic, code, shown)
		}
	}
}
