package main

import (
	"context"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

const systemdDir = "../../dist/systemd/"

// otherVariables are the variables of the environment file that are not flags of seb.
var otherVariables = []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}

// parsed returns the parsed command line with this environment.
func parsed(t *testing.T, env map[string]string, args ...string) *kong.Context {
	t.Helper()
	for name, value := range env {
		t.Setenv(name, value)
	}
	parser := newParser(t.Context(), streams{nil, io.Discard, io.Discard}, func(int) { t.Fatal("it is about to leave") })
	k, err := parser.Parse(args)
	if err != nil {
		t.Fatalf("seb %q with %v: %v", args, env, err)
	}
	return k
}

// settings returns the lines NAME=VALUE of a file, those after a # too if commented.
func settings(t *testing.T, file string, commented bool) (all [][2]string) {
	t.Helper()
	text, err := os.ReadFile(systemdDir + file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if commented {
			line = strings.TrimPrefix(line, "#")
		}
		if name, value, found := strings.Cut(line, "="); found && !strings.Contains(name, " ") && !strings.HasPrefix(line, "#") {
			all = append(all, [2]string{name, value})
		}
	}
	return all
}

func TestEnvironmentFileNamesFlagsThatThereAre(t *testing.T) {
	flags := map[string]bool{}
	for _, group := range parsed(t, nil, "serve").Selected().AllFlags(true) {
		for _, flag := range group {
			for _, env := range flag.Envs {
				flags[env] = true
			}
		}
	}
	variables := settings(t, "seb.env", true)
	if len(variables) < 10 {
		t.Fatalf("the file has %d variables", len(variables))
	}
	for _, v := range variables {
		if slices.Contains(otherVariables, v[0]) {
			continue
		}
		if !flags[v[0]] {
			t.Errorf("%s is no variable of seb serve", v[0])
			continue
		}
		t.Run(v[0]+"="+v[1], func(t *testing.T) { parsed(t, map[string]string{v[0]: v[1]}, "serve") })
	}
	active := map[string]string{}
	for _, v := range settings(t, "seb.env", false) {
		active[v[0]] = v[1]
	}
	if !maps.Equal(active, map[string]string{"SEB_STORE": "/var/lib/seb"}) {
		t.Errorf("without a change it sets %v", active)
	}
}

// unit returns the settings of seb.service; a name that repeats has all its values.
func unit(t *testing.T) map[string]string {
	t.Helper()
	u := map[string]string{}
	for _, s := range settings(t, "seb.service", false) {
		u[s[0]] = strings.TrimSpace(u[s[0]] + " " + s[1])
	}
	return u
}

func TestUnitRunsSebAndFitsIt(t *testing.T) {
	u := unit(t)
	command := strings.Fields(u["ExecStart"])
	if filepath.Base(command[0]) != "seb" {
		t.Fatalf("it starts %s", command)
	}
	flags := parsed(t, nil, command[1:]...)
	serve, ok := flags.Selected().Target.Addr().Interface().(*serveCmd)
	if !ok {
		t.Fatalf("it runs %s", flags.Command())
	}
	var memoryMax size
	if err := memoryMax.UnmarshalText([]byte(strings.Replace(u["MemoryMax"], "M", "MiB", 1))); err != nil {
		t.Fatal(err)
	}
	if need := serve.Memory + serve.StateMemory + memoryHeadroom; memoryMax <= need {
		t.Errorf("MemoryMax is %v; seb takes %v", memoryMax, need)
	}
	stop, err := time.ParseDuration(u["TimeoutStopSec"])
	if err != nil || stop <= drainTimeout+closeTimeout+answerTimeout {
		t.Errorf("TimeoutStopSec is %s; seb takes %v", u["TimeoutStopSec"], drainTimeout+closeTimeout+answerTimeout)
	}
	for name, want := range map[string]string{
		"Type": "notify", "Restart": "on-failure", "RestartPreventExitStatus": "2 3", // exitUsage, exitDamage
		"NoNewPrivileges": "yes", "ProtectSystem": "strict", "DynamicUser": "yes",
		"StateDirectory": "seb", "CacheDirectory": "seb", "EnvironmentFile": "-/etc/seb/seb.env",
		"RestrictAddressFamilies": "AF_INET AF_INET6 AF_NETLINK AF_UNIX", // pushes ask for routes by netlink
	} {
		if u[name] != want {
			t.Errorf("%s=%s, not %s", name, u[name], want)
		}
	}
}

func TestUnitIsOneForSystemd(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze here")
	}
	seb, err := exec.LookPath("seb")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(systemdDir + "seb.service")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "seb.service")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "ExecStart=/usr/local/bin/seb", "ExecStart="+seb)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"verify", "--man=no", file},
		{"security", "--offline=true", "--threshold=20", file}, // exposure 2.0, "OK"
	} {
		out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput()
		if err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
	}
}

// serve notifies the supervisor when the broker is ready, and when it stops.
func TestServeNotifies(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no sockets for datagrams here")
	}
	socket := filepath.Join(t.TempDir(), "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	heard := func(want string) {
		t.Helper()
		buf := make([]byte, 256)
		if err := conn.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if err != nil || string(buf[:n]) != want {
			t.Fatalf("%q, %v, not %q", buf[:n], err, want)
		}
	}
	b, err := launch(context.WithoutCancel(t.Context()), t.TempDir(), append(os.Environ(), "NOTIFY_SOCKET="+socket), "--store", "memory:")
	if err != nil {
		t.Fatal(err)
	}
	ownedBy(t, b)
	heard("READY=1")
	b.stopped(t)
	heard("STOPPING=1")

	// If nobody listens on the socket, the broker runs all the same, and logs it.
	b = serve(t, []string{"NOTIFY_SOCKET=" + socket + "-gone"}, "--store", "memory:")
	b.stopped(t)
	if !strings.Contains(b.stderr.String(), "notify the supervisor") {
		t.Errorf("it does not say that it can't be told:\n%s", b.stderr)
	}
}
