package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// evil has text that controls a terminal: it sets the title, begins a sequence by one control character or
// one byte, rings, returns, changes the direction of text, and erases the screen.
const evil = "\x1b]0;owned\x07 \u009b31m \x9b31m \r\b \u202e \x1b[2J ü\ttab"

const evilShown = `\x1b]0;owned\x07 \u009b31m \x9b31m \x0d\x08 \u202e \x1b[2J ü` + "\ttab"

func TestConsumeShowsControlCharactersEscapedOnATerminal(t *testing.T) {
	b := serve(t, nil, "--store", "memory:")
	runSeb(t, strings.NewReader("key="+evil+"\n"), "produce", "orders", "--server", b.url, "--key-separator", "=").want(t, exitOK)
	for name, args := range map[string][]string{
		"line": nil, "key": {"--key-separator", "="}, "raw": {"--format", "raw"}, "binary": {"--format", "binary"}, "json": {"--format", "json"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"consume", "orders", "--server", b.url}, args...)
			got, code := onTerminal(t, nil, nil, args...)
			if code != exitOK || strings.ContainsAny(got, "\x1b\a\b\x00\u009b\u202e") {
				t.Errorf("exit code %d, %q", code, got)
			}
			if name == "line" && got != evilShown+"\r\n" || name == "key" && got != "key="+evilShown+"\r\n" || name == "raw" && got != evilShown {
				t.Errorf("it shows %q", got)
			}
			asIs, _ := onTerminal(t, nil, nil, append(args, "--raw")...)
			piped := runSeb(t, nil, args...)
			if piped.want(t, exitOK); strings.ReplaceAll(piped.out, "\n", "\r\n") != asIs {
				t.Errorf("--raw writes %q, a pipe gets %q", asIs, piped.out)
			}
			if name == "line" && piped.out != evil+"\n" {
				t.Errorf("a pipe gets %q", piped.out)
			}
		})
	}
}

// Text of servers is escaped on a terminal: it may hold names that anybody has given, or be forged.
func TestTextOfServersIsShownEscapedOnATerminal(t *testing.T) {
	text, err := json.Marshal("a\x1b]0;owned\x07\u009b\r\x1b[K\x1b[2J\x1b[32mb")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/bad") || strings.HasPrefix(r.URL.Path, "/metrics") {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"code":"forbidden","detail":` + string(text) + `,"hint":` + string(text) + `}`))
			return
		}
		_, _ = w.Write([]byte(strings.ReplaceAll(`{"topics":[{"name":X,"partitions":[{}],"config":{"retention":X}}],"keys":[{"id":1,"name":X,"scopes":[X],"topics":[X]}],
			"queues":[{"name":X,"owner":X}],"consumers":[{"name":X}],"messages":[{"reason":X,"key":X,"value":X}],"name":X,"url":X,"stopped":X,"failing":X,"headers":[X]}`, "X", string(text))))
	}))
	defer server.Close()
	for _, command := range []string{
		"topic list", "topic show a", "topic show bad", "key list", "queue list a", "queue show a b", "queue dead a b", "queue push show a b",
		"consumer list a", "consumer show a b", "consume bad", "produce bad", "work a bad -- true", "top --once", "bill", "topic list --output json",
	} {
		got, _ := onTerminal(t, []string{"NO_COLOR=1"}, nil, append(strings.Fields(command), "--server", server.URL)...)
		if strings.ContainsAny(strings.ReplaceAll(got, "\r\n", "\n"), "\x1b\a\u009b\r") || got == "" {
			t.Errorf("%s shows %q", command, got)
		}
	}
}
