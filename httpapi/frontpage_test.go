package httpapi

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/simple-event-broker/seb"
)

const browserAccept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// A browser gets a page that says what this is, and whose links lead somewhere. Programs get what they get at
// any unknown path.
func TestFrontPageIsForBrowsers(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{Version: "v1.2.3+<dirty>", Gatherer: prometheus.NewRegistry()})
	_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
	a := s.get("/", "Accept", browserAccept) // without a key
	a.want(t, http.StatusOK)
	a.wantHeader(t, "Content-Type", "text/html; charset=utf-8")
	for _, want := range []string{"Simple Event Broker", "of a broker, version v1.2.3+&lt;dirty&gt;: ", "<strong>ready</strong>", "/docs\""} {
		if !strings.Contains(a.body, want) {
			t.Errorf("the page does not have %q:\n%s", want, a.body)
		}
	}
	links := regexp.MustCompile(`href="([a-z0-9./]+)"`).FindAllStringSubmatch(a.body, -1)
	for _, link := range links {
		s.get("/"+link[1], bearer(ops)...).want(t, http.StatusOK)
	}
	if len(links) != 4 {
		t.Errorf("the page has %d links to the broker", len(links))
	}
	for _, accept := range []string{"", "*/*", "text/*", typeJSON, "text/html;q=0"} {
		s.get("/", "Accept", accept).wantProblem(t, http.StatusNotFound, codeRouteNotFound)
	}
	s.post("/", "x", "Accept", browserAccept).wantProblem(t, http.StatusMethodNotAllowed, codeMethodNotAllowed)
}

func TestFrontPageSaysWhyABrokerIsNotReady(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	if err := s.broker.Close(); err != nil {
		t.Fatal(err)
	}
	a := s.get("/", "Accept", browserAccept)
	a.want(t, http.StatusOK)
	if !strings.Contains(a.body, "<strong>not ready: ") || !strings.Contains(a.body, "of a broker: ") || strings.Contains(a.body, "metrics") {
		t.Errorf("the page is\n%s", a.body)
	}
}
