package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// In a shell, hints name commands instead of HTTP requests.
func TestHintsOfRefusalsSpeakOfCommands(t *testing.T) {
	b := serve(t, nil)
	t.Setenv("SEB_SERVER", b.url)
	runSeb(t, strings.NewReader("one\n"), "produce", "orders").want(t, exitOK)
	runSeb(t, nil, "queue", "create", "orders", "mail").want(t, exitOK)
	for _, c := range []struct{ command, hint string }{
		{"topic show none", "`seb topic create TOPIC` creates the topic; `seb topic list` lists"},
		{"consume none", "`seb topic list`"},
		{"consume orders --partition 3", "`seb topic update TOPIC --partitions N` adds partitions"},
		{"consumer show orders none", "`seb consumer list TOPIC`"},
		{"queue list none", "`seb topic list`"},
		{"queue show orders none", "`seb queue create TOPIC QUEUE` creates the queue; `seb queue list TOPIC` lists"},
		{"queue pause orders none", "`seb queue create TOPIC QUEUE`"},
		{"queue purge orders none", "`seb queue list TOPIC`"},
		{"queue push set orders none https://example.com", "`seb queue list TOPIC`"},
		{"queue push show orders mail", "`seb queue push set TOPIC QUEUE URL`"},
		{"work orders none --exec true", "`seb queue create orders none`"},
		{"queue create orders other --dead-letter-topic nowhere", "create the dead-letter topic first"},
		{"queue create orders other --lease 13h", "see seb queue create --help"},
		{"queue create orders other --dead-letter-topic orders", "name another topic"},
		{"queue update orders mail --backoff 1h..1s", "see seb queue update --help"},
		{"queue update orders mail --max-attempts 0", "use an integer from 1 to 1000"},
		{"topic list --server " + b.url + "/orders", "check --server (SEB_SERVER): it must be the URL of a broker"},
	} {
		r := runSeb(t, nil, strings.Fields(c.command)...)
		r.want(t, exitRefused, "\n     ", c.hint)
		if strings.Contains(r.err, "at byte") {
			t.Errorf("%s: the error names a place in a body that the user does not see:\n%s", c.command, r.err)
		}
		if ofRequests.MatchString(r.err[strings.Index(r.err, "\n"):]) {
			t.Errorf("%s: the hint is for who types requests:\n%s", c.command, r.err)
		}
	}
	runSeb(t, nil, "key", "create", "ops", "--scope", "admin").want(t, exitOK)
	runSeb(t, nil, "topic", "list").want(t, exitRefused, "give a valid API key, as SEB_API_KEY")
}

// A broker's hint about HTTP requests is left out if no command can replace it.
func TestHintsAboutRequestsAreLeftOut(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(`{"code":"too_strange","detail":"it is","hint":"PUT /v1/less of it"}`))
	}))
	defer server.Close()
	r := runSeb(t, nil, "topic", "list", "--server", server.URL)
	if r.want(t, exitRefused); r.err != "seb: list topics: too_strange: it is\n" {
		t.Errorf("it says:\n%s", r.err)
	}
}

// Go's own errors about values of flags are for programmers.
func TestErrorsOfFlagsSayWhatTheyTake(t *testing.T) {
	for command, want := range map[string]string{
		"produce orders --deliver-at tomorrow": `invalid time "tomorrow": write a date, a time and a zone, such as 2026-01-31T12:00:00Z`,
		"serve --log-level loud":               `invalid level "loud": write debug, info, warn or error`,
	} {
		runSeb(t, nil, strings.Fields(command)...).want(t, exitUsage, want)
	}
}
