package main

import (
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Only connection and output settings of client commands come from the environment: a variable that is left
// over from something else must not change what a command does.
func TestOnlyConnectionAndOutputOfClientCommandsComeFromTheEnvironment(t *testing.T) {
	parser := newParser(t.Context(), streams{nil, io.Discard, io.Discard}, func(int) {})
	of := map[string]bool{} // the variables of all commands but serve
	for _, command := range parser.Model.Leaves(true) {
		for _, flag := range slices.Concat(command.AllFlags(true)...) {
			switch {
			case command.Name == "serve" && flag.Name != "help" && flag.Name != "version" && len(flag.Envs) == 0:
				t.Errorf("serve --%s has no variable", flag.Name)
			case command.Name != "serve":
				for _, name := range flag.Envs {
					of[name] = true
				}
			}
		}
	}
	want := "SEB_API_KEY SEB_API_KEY_FILE SEB_CA SEB_CERT SEB_CERT_KEY SEB_KEY SEB_KEY_FILE SEB_OUTPUT SEB_SERVER SEB_STATE_MEMORY SEB_STORE"
	if got := strings.Join(slices.Sorted(maps.Keys(of)), " "); got != want {
		t.Errorf("client commands take\n%s, not\n%s", got, want)
	}
}

// A variable that is meant for one command has no effect on another.
func TestVariablesOfTheDataHaveNoEffect(t *testing.T) {
	b := serve(t, nil, "--store", "memory:")
	t.Setenv("SEB_SERVER", b.url)
	for _, name := range []string{"SEB_LIMIT", "SEB_FROM", "SEB_FILE", "SEB_PARTITION", "SEB_SKIP", "SEB_KEY_SEPARATOR", "SEB_FORMAT"} {
		t.Setenv(name, "1")
	}
	runSeb(t, strings.NewReader("one\ntwo\n"), "produce", "orders").want(t, exitOK)
	if r := runSeb(t, nil, "consume", "orders"); r.code != exitOK || r.out != "one\ntwo\n" {
		t.Errorf("exit code %d, %q, %s", r.code, r.out, r.err)
	}
}

func TestServeWarnsOfUnknownVariables(t *testing.T) {
	b := serve(t, []string{
		"SEB_LINGR=1s", "SEB_FROM=latest", "SEB_PASSWORD=hush", "SEB_SERVER=http://127.0.0.1:1", "SEB_OUTPUT=text", "SEB_MESSAGE_KEY=a\nb",
		// What Kubernetes sets in each pod for services named seb and seb-http.
		"SEB_SERVICE_HOST=10.0.0.1", "SEB_SERVICE_PORT=51313", "SEB_SERVICE_PORT_HTTP=51313", "SEB_PORT=tcp://10.0.0.1:51313",
		"SEB_PORT_51313_TCP=tcp://10.0.0.1:51313", "SEB_PORT_51313_TCP_PROTO=tcp", "SEB_PORT_51313_TCP_PORT=51313", "SEB_PORT_51313_TCP_ADDR=10.0.0.1",
		"SEB_HTTP_SERVICE_HOST=10.0.0.1", "SEB_HTTP_PORT=tcp://10.0.0.1:51313",
		// What users of other programs set.
		"SEB_DATA_DIR=/data", "SEB_LISTEN=0.0.0.0:80", "SEB_WEB_PORT=80",
	}, "--store", "memory:")
	b.stopped(t)
	var warned []string
	for line := range strings.Lines(b.stderr.String()) {
		if _, rest, found := strings.Cut(line, "environment variable"); found {
			warned = append(warned, rest)
		}
	}
	want := []string{"DATA_DIR closest=SEB_STORE", "FROM closest=", "LINGR closest=SEB_LINGER", "LISTEN closest=SEB_HTTP", "PASSWORD closest=", "WEB_PORT closest="}
	for i, want := range want {
		if len(warned) != 6 || !strings.Contains(warned[i], "variable=SEB_"+want) {
			t.Fatalf("it warns of %q, not of %s", warned, want)
		}
	}
	if strings.Contains(b.stderr.String(), "hush") {
		t.Error("it logs the value")
	}
}

// Kubernetes sets SEB_PORT to a URL; a user may mean the port of the broker.
func TestServeNamesTheVariableOfThePort(t *testing.T) {
	b := serve(t, []string{"SEB_PORT=8080"}, "--store", "memory:")
	b.stopped(t)
	if !strings.Contains(b.stderr.String(), "variable=SEB_PORT closest=SEB_HTTP\n") {
		t.Errorf("it does not name SEB_HTTP:\n%s", b.stderr)
	}
}
