package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// docPorts are the ports that the pages name.
var docPorts = []string{"51313", "51314", "51315", "7070"}

// docPrologue runs first in the shell of a page: it turns on job control, as in an interactive shell, and
// defines a function that waits for a broker.
const docPrologue = `set -m
trap 'kill -9 $(jobs -p) 2>/dev/null; wait 2>/dev/null' EXIT
ready() {
	for i in $(seq 300); do
		curl -s -o /dev/null "http://127.0.0.1:$1/livez" 2>/dev/null && return
		sleep 0.1
	done
	echo "nobody serves port $1:"; cat broker.log
	return 1
}
`

const (
	commandBegins = "\x1e"
	commandFailed = "\x1f"
)

// runDoc runs a page's commands in one shell, and compares what they print.
func runDoc(t *testing.T, page string, commands []docCommand) {
	needed := []string{"bash", "curl"}
	if strings.Contains(fmt.Sprint(commands), "versitygw ") {
		needed = append(needed, "versitygw")
	}
	path := docPath(t, needed)
	ports := docPortReplacer(t)
	var script strings.Builder
	script.WriteString(docPrologue)
	for i, c := range commands {
		fmt.Fprintf(&script, "printf '%s%d\\n'\n{ %s\n} 2>&1 || { printf '%s%%d' $?; exit 1; }\n",
			commandBegins, i, shellCommand(ports, c.text), commandFailed)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", script.String())
	shell.Dir = t.TempDir()
	address := ports.Replace("127.0.0.1:51313")
	shell.Env = append(os.Environ(), "PATH="+path, "HOME="+shell.Dir, "LC_ALL=C.UTF-8", "SEB_HTTP="+address, "SEB_SERVER=http://"+address)
	// As at a terminal, where curl does not mix its progress with its output.
	if err := os.WriteFile(filepath.Join(shell.Dir, ".curlrc"), []byte("silent\nshow-error\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	shell.Stdout, shell.Stderr = &printed, &printed
	shell.WaitDelay = 5 * time.Second
	err := shell.Run()
	outputs := strings.Split(printed.String(), commandBegins)[1:]
	for i, output := range outputs {
		_, output, _ = strings.Cut(output, "\n")
		compareDoc(t, page, commands[i], ports, output)
	}
	if !t.Failed() && (err != nil || len(outputs) != len(commands)) {
		t.Errorf("%s: the shell ended with %v after %d of %d commands", page, err, len(outputs), len(commands))
	}
}

func compareDoc(t *testing.T, page string, c docCommand, ports *strings.Replacer, output string) {
	t.Helper()
	if output, code, failed := strings.Cut(output, commandFailed); failed {
		t.Errorf("%s, line %d: %s\nended with %s:\n%s", page, c.line, c.text, code, output)
		return
	}
	output = strings.ReplaceAll(output, "\r\n", "\n") // of HTTP headers
	output = strings.TrimSpace(jobNotice.ReplaceAllLiteralString(output, ""))
	if c.output != "" && !docPattern(ports.Replace(c.output)).MatchString(output) {
		t.Errorf("%s, line %d: %s\nprints\n%s\nwhere the page has\n%s", page, c.line, c.text, output, c.output)
	}
}

// jobNotice matches the shell's message, which may come at any later time, that a job was killed.
var jobNotice = regexp.MustCompile(`(?m)^bash: line \d+: +\d+ Killed .*\n?`)

var servesPort = regexp.MustCompile(`--(?:http|port) (?:\S*:)?(\d+)`)

// shellCommand returns c as the shell runs it: the output of a broker goes to a file, and the next command
// waits until the broker answers.
func shellCommand(ports *strings.Replacer, c string) string {
	c = ports.Replace(c)
	broker, background := strings.CutSuffix(c, " &")
	if !background {
		return c
	}
	port := ports.Replace("51313")
	if named := servesPort.FindStringSubmatch(broker); named != nil {
		port = named[1]
	}
	return fmt.Sprintf("%s >>broker.log 2>&1 &\nready %s", broker, port)
}

// docPortReplacer replaces the ports of the pages by free ones.
func docPortReplacer(t *testing.T) *strings.Replacer {
	t.Helper()
	var pairs []string
	for _, port := range docPorts {
		free := freePort(t)
		for slices.Contains(pairs, free) {
			free = freePort(t)
		}
		pairs = append(pairs, port, free)
	}
	return strings.NewReplacer(pairs...)
}

// docPath returns a PATH with the programs that a page needs. If one is missing, it skips the test, or
// fails it if SEB_TEST_REQUIRE is 1.
func docPath(t *testing.T, needed []string) string {
	t.Helper()
	path := os.Getenv("PATH")
	if server := os.Getenv("SEB_TEST_VERSITYGW"); server != "" {
		dir := t.TempDir() // the program's file name has a version in it
		if err := os.Symlink(server, filepath.Join(dir, "versitygw")); err != nil {
			t.Fatal(err)
		}
		path = dir + string(os.PathListSeparator) + path
	}
	for _, program := range needed {
		if _, err := exec.LookPath(program); err == nil || program == "versitygw" && path != os.Getenv("PATH") {
			continue
		}
		missing := program + " is missing, which the page's commands need"
		if program == "versitygw" {
			missing += ": run SEB_TEST_VERSITYGW=$(make --silent versitygw) go test ./cmd/seb"
		}
		if os.Getenv("SEB_TEST_REQUIRE") == "1" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	return path
}
