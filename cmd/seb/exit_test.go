package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/objstore"
)

func TestExitCodeSaysWhatKindOfErrorItIs(t *testing.T) {
	refused := func(code seb.Code) error { return &seb.Error{Code: code} }
	foreign := func(status int) error {
		return &seb.Error{Code: client.CodeUnexpectedResponse, Err: client.StatusError(status)}
	}
	for _, test := range []struct {
		err  error
		code int
	}{
		{nil, exitOK},
		{errors.New("no space left on device"), exitFailure},
		{usage(errors.New("invalid --limit -1")), exitUsage},
		{refused(seb.CodeTopicNotFound), exitRefused},
		{refused(seb.CodeRecordTooLarge), exitRefused},
		{foreign(401), exitRefused},
		{refused(seb.CodeOverMemoryBudget), exitUnreachable},
		{refused(seb.CodeStoreUnavailable), exitUnreachable},
		{&seb.Error{Code: client.CodeUnexpectedResponse, RetryAfter: time.Second, Err: client.StatusError(502)}, exitUnreachable},
		{refused(seb.CodeBrokerStopped), exitDamage},
		{refused(seb.CodeDataLost), exitDamage},
		{refused("internal"), exitFailure},
		{foreign(302), exitFailure},
		{&seb.Error{Code: seb.CodeBrokerStopped}, exitDamage},
		{&seb.Error{Code: seb.CodeStoreUnusable}, exitDamage},
		{&seb.Error{Code: seb.CodeStoreUnavailable}, exitUnreachable},
		{&seb.Error{Code: seb.CodeStoreUnavailable, Outcome: seb.Unknown}, exitUnknown},
		{&seb.Error{Code: seb.CodeOverStateBudget}, exitUnreachable},
		{&seb.Error{Code: seb.CodeKeyExists, Outcome: seb.NotCommitted}, exitRefused},
		{&seb.Error{Code: client.CodeUnreachable, Err: context.DeadlineExceeded}, exitUnreachable},
		{codedError{hinted(refused(seb.CodeStoreUnavailable), ""), exitUnknown}, exitUnknown},
		{objstore.ErrNotFound, exitRefused},
		{errDamaged, exitDamage},
	} {
		err := test.err
		if err != nil {
			err = fmt.Errorf("do it: %w", err)
		}
		if code := exitCode(t.Context(), err); code != test.code {
			t.Errorf("%v ends with %d, not %d", err, code, test.code)
		}
	}
}

// A place that can't exist is refused before a broker is asked.
func TestPlaceThatCannotBeIsWrongUsage(t *testing.T) {
	for _, place := range []string{"abc", "-1:0", " ", "0:0:0"} {
		runSeb(t, nil, "queue", "dead", "orders", "mail", "--next="+place, "--server", "http://127.0.0.1:1").want(t, exitUsage, "PARTITION:OFFSET")
	}
}

// A refusal has the same exit code whether the command opens the store itself or asks a broker.
func TestRefusalsHaveOneCodeWithAndWithoutABroker(t *testing.T) {
	dir := t.TempDir()
	runSeb(t, nil, "key", "create", "ops", "--scope", "admin", "--store", dir, "--new-log").want(t, exitOK)
	runSeb(t, nil, "key", "create", "ops", "--scope", "admin", "--store", dir).want(t, exitRefused, "key_exists")
	runSeb(t, nil, "key", "revoke", "shop", "--store", dir).want(t, exitRefused, "there is no API key \"shop\"")
}

// A write that got no answer may have been carried out; a read changes nothing.
func TestUnknownOutcomesHaveTheirCode(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(hangUp))
	defer server.Close()
	for command, code := range map[string]int{
		"create orders": exitUnknown, "delete orders": exitUnknown, "update orders --partitions 2": exitUnknown,
		"trim orders --partition 0 --before 1": exitUnknown, "show orders": exitUnreachable,
	} {
		runSeb(t, nil, append(strings.Fields("topic "+command), "--server", server.URL)...).want(t, code)
	}
}

// If the outcome of creating a key or a topic is unknown, the hint names the command that lists keys or topics.
func TestUnknownOutcomesNameTheCommandThatShowsTheResult(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(hangUp))
	defer server.Close()
	runSeb(t, nil, "key", "create", "ops", "--scope", "admin", "--server", server.URL).want(t, exitUnknown, "seb key list")
	runSeb(t, nil, "topic", "create", "orders", "--server", server.URL).want(t, exitUnknown, "seb topic list")
}

// A receive whose response is lost may have leased records. One that reached no broker has leased none.
func TestReceiveWithoutResponseHasAnUnknownOutcome(t *testing.T) {
	receive := func(url string) result {
		return runSeb(t, nil, "queue", "receive", "orders", "mail", "--server", url)
	}
	lossy := httptest.NewServer(http.HandlerFunc(hangUp))
	defer lossy.Close()
	receive(lossy.URL).want(t, exitUnknown, "no response", "check with `seb queue show orders mail`")
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	defer proxy.Close()
	receive(proxy.URL).want(t, exitUnknown, "check with `seb queue show orders mail`")

	receive("http://127.0.0.1:1").want(t, exitUnreachable, "no broker answers")
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	receive(other.URL).want(t, exitRefused)
	receive("https://"+strings.TrimPrefix(other.URL, "http://")).want(t, exitUsage, "write http://")
}

// With a wrong scheme no request reaches the broker: the outcome is certain, and a retry can't help.
func TestWrongSchemeIsReportedAndNothingIsDone(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	secure.StartTLS()
	defer secure.Close()
	url := "https://" + strings.TrimPrefix(plain.URL, "http://")
	runSeb(t, nil, "topic", "list", "--server", url).want(t, exitUsage, "write http://")
	runSeb(t, nil, "topic", "create", "orders", "--server", url).want(t, exitUsage, "write http://")
	runSeb(t, nil, "consume", "orders", "--follow", "--server", url).want(t, exitUsage, "write http://")
	runSeb(t, strings.NewReader("x\n"), "produce", "orders", "--idempotent", "--server", url).
		want(t, exitUsage, "nothing appended", "write http://")

	// An HTTPS server may close the connection before it has read a longer request: then the outcome is
	// unknown.
	url = "http://" + strings.TrimPrefix(secure.URL, "https://")
	runSeb(t, nil, "topic", "list", "--server", url).want(t, exitUsage, "write https://")
	runSeb(t, nil, "consume", "orders", "--follow", "--server", url).want(t, exitUsage, "write https://")
}

// Ctrl-C and SIGTERM end a waiting command, with the exit code that shells expect.
func TestSignalsHaveTheirCode(t *testing.T) {
	asked := make(chan struct{}, 8)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	for signal, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "seb", "topic", "list", "--server", server.URL)
		cmd.Env = os.Environ()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-asked
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // ProcessState has the result
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%v: exit code %d, not %d", signal, got, code)
		}
	}
}

func TestExitCodesAreDocumented(t *testing.T) {
	docs, err := os.ReadFile("../../docs/trouble.md")
	if err != nil {
		t.Fatal(err)
	}
	help := runSeb(t, nil, "--help")
	for _, c := range exitCodes {
		if !strings.Contains(string(docs), fmt.Sprintf("| %d | %s |", c.code, c.meaning)) {
			t.Errorf("docs/trouble.md lacks exit code %d, %q", c.code, c.meaning)
		}
		if !strings.Contains(strings.Join(strings.Fields(help.out), " "), fmt.Sprintf("%d %s", c.code, c.meaning)) {
			t.Errorf("the help lacks exit code %d, %q:\n%s", c.code, c.meaning, help.out)
		}
	}
}

// Errors of the library are shown without the outcome: the exit code tells it, and a hint if it is unknown.
func TestErrorsOfTheLibraryAreSaidAsPeopleSayThem(t *testing.T) {
	for _, test := range []struct {
		err  *seb.Error
		want string
	}{
		{&seb.Error{Code: seb.CodeKeyExists, Detail: "there is one", Outcome: seb.NotCommitted}, "seb: create key: key_exists: there is one\n"},
		{&seb.Error{Code: seb.CodeKeyExists, Detail: "there is one", Hint: "take it", Outcome: seb.NotCommitted}, "seb: create key: key_exists: there is one\n     take it\n"},
		{&seb.Error{Code: client.CodeUnreachable, Detail: "http://a speaks HTTPS only", Hint: "write https:// in the URL of the broker"}, "seb: create key: http://a speaks HTTPS only\n     write https:// in --server or SEB_SERVER\n"},
		{&seb.Error{Code: seb.CodeStoreUnavailable, Detail: "it is away", Outcome: seb.Unknown}, "seb: create key: store_unavailable: it is away\n     the change may have been carried out: check before you try again\n"},
	} {
		var out strings.Builder
		report(&out, fmt.Errorf("create key: %w", test.err))
		if out.String() != test.want {
			t.Errorf("%v is said as %q", test.err, out.String())
		}
	}
}

// If the TLS of client and broker does not fit, the setup is wrong, as with wrong credentials for a store.
func TestTLSThatDoesNotFitIsWrongSetup(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir, "ca")
	cert, key, _ := ca.issue("server", "server", "elsewhere")
	b := serve(t, nil, "--tls-cert", cert, "--tls-key", key)
	runSeb(t, nil, "topic", "list", "--server", b.url).want(t, exitUsage, "is not trusted", "name the authority that signed its certificate with --ca")
	runSeb(t, strings.NewReader("x"), "produce", "orders", "--server", b.url).want(t, exitUsage, "is not trusted")
	runSeb(t, nil, "topic", "list", "--server", "http://"+strings.TrimPrefix(b.url, "https://")).want(t, exitUsage, "write https:// in --server")
	_, port, _ := strings.Cut(strings.TrimPrefix(b.url, "https://"), ":")
	r := runSeb(t, nil, "topic", "list", "--server", "https://localhost:"+port, "--ca", ca.file)
	r.want(t, exitUsage, "has another name", "write a name that the certificate has in --server")
	if strings.Contains(r.err, "--ca") {
		t.Errorf("the hint names --ca, which was given:\n%s", r.err)
	}
}
