package httpapi

import (
	"fmt"
	"html"
	"net/http"
	"strings"
)

const typeHTML = "text/html; charset=utf-8"

// The front page. It loads nothing, so its policy allows nothing but its own style.
const (
	frontPagePolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	frontPage       = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Seb</title>
<style>body { font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem; color-scheme: light dark }</style>
<h1>Seb, the Simple Event Broker</h1>
<p>This is the HTTP API of a broker%s: an event log and queues whose only durable state is a bucket.</p>
<p>The broker is <strong>%s</strong>.</p>
<ul>
<li><a href="https://github.com/simple-event-broker/seb/tree/main/docs">Documentation</a></li>
<li><a href="openapi.yaml">openapi.yaml</a>: all requests of the API</li>
<li><a href="v1/topics">v1/topics</a>: the topics, as JSON</li>
%s<li><a href="readyz">readyz</a>: whether the broker is ready, for load balancers</li>
</ul>
</html>
`
	metricsItem = "<li><a href=\"metrics\">metrics</a>: for Prometheus</li>\n"
)

// getPage answers people who open the address of the broker in a browser. Other clients get what they get at
// any path that does not exist, so that a program with a wrong path does not take the page for success.
func (h *Handler) getPage(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	w.Header().Add("Vary", "Accept")
	if quality, at := qualityOf(strings.Join(r.Header.Values("Accept"), ","), "text/html"); quality == 0 || at.specificity < 2 {
		return errNoRoute(r)
	}
	state := "ready"
	if err := h.broker.Status().Err; err != nil {
		state = "not ready: " + WithoutSecrets(problemOf(err).Detail)
	}
	version := ""
	if h.version != "" {
		version = ", version " + h.version
	}
	metrics := ""
	if h.declared["/metrics"] != nil {
		metrics = metricsItem
	}
	w.Header().Set("Content-Security-Policy", frontPagePolicy)
	page := fmt.Sprintf(frontPage, html.EscapeString(version), html.EscapeString(state), metrics)
	return writeBody(w, http.StatusOK, typeHTML, []byte(page))
}
