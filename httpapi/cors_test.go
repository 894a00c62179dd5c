package httpapi

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
)

const page, stranger = "https://example.com", "https://evil.example"

func TestPagesOfOtherOriginsChangeNothing(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{AllowOrigins: []string{page, "http://localhost:3000"}})
	s.append("orders", "a")
	for _, c := range []struct {
		name   string
		header []string
		status int
	}{
		{"a program", nil, 201},
		{"a page of ours", []string{"Origin", s.url, "Sec-Fetch-Site", "same-origin"}, 201},
		{"a page of ours in an old browser", []string{"Origin", s.url}, 201},
		{"a page that is allowed", []string{"Origin", page, "Sec-Fetch-Site", "cross-site"}, 201},
		{"another that is", []string{"Origin", "http://localhost:3000"}, 201},
		{"a stranger", []string{"Origin", stranger, "Sec-Fetch-Site", "cross-site"}, 403},
		{"a stranger in an old browser", []string{"Origin", stranger}, 403},
		{"one that looks alike", []string{"Origin", page + ".evil.example"}, 403},
		{"one of another port", []string{"Origin", page + ":8443", "Sec-Fetch-Site", "same-site"}, 403},
		{"a page without an origin", []string{"Origin", "null", "Sec-Fetch-Site", "cross-site"}, 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := s.post(ordersPath, "x", c.header...)
			if a.want(t, c.status); c.status == 403 {
				if p := a.wantProblem(t, 403, codeCrossOrigin); p.Outcome != string(seb.NotCommitted) {
					t.Errorf("outcome is %q", p.Outcome)
				}
			}
		})
	}
	if got := len(s.stored("orders", 0)); got != 6 {
		t.Errorf("%d records are stored, want 6", got)
	}
}

// A read creates its consumer if that does not exist, so it changes the log.
func TestPagesOfOtherOriginsCreateNoConsumer(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{AllowOrigins: []string{page}})
	s.append("orders", "a")
	id, records := s.follow("").begin(), consumersPath+"/c/records"
	for _, accept := range []string{"*/*", typeEvents} {
		s.get(records, "Accept", accept, "Origin", stranger, "Sec-Fetch-Site", "cross-site").wantProblem(t, 403, codeCrossOrigin)
	}
	s.get(records+"?last_event_id="+id, "Accept", typeEvents, "Origin", stranger).wantProblem(t, 403, codeCrossOrigin)
	if a := s.get(consumersPath); a.body != `{"consumers":[],"next":null}`+"\n" {
		t.Errorf("there are %s", a.body)
	}
	s.get(records, "Origin", page, "Sec-Fetch-Site", "cross-site").want(t, 200)
	s.get(records, "Origin", stranger).want(t, 200) // the browser keeps the answer from the page
}

func TestPagesThatAreAllowedSeeAnswers(t *testing.T) {
	for _, c := range []struct {
		allowed []string
		origin  string
		want    string
	}{
		{nil, page, ""},
		{[]string{page}, page, page},
		{[]string{page}, stranger, ""},
		{[]string{page}, "", ""},
		{[]string{"*"}, stranger, stranger},
		{[]string{"*"}, "null", "null"},
	} {
		s := newServer(t, seb.Options{}, Options{AllowOrigins: c.allowed})
		s.append("orders", "a")
		var header []string
		if c.origin != "" {
			header = []string{"Origin", c.origin}
		}
		answers := []answer{s.get(ordersPath, header...), s.get("/v1/none", header...)}
		follow := s.follow("", header...)
		for _, a := range append(answers, answer{Response: follow.resp}) {
			a.wantHeader(t, "Access-Control-Allow-Origin", c.want)
			if c.want != "" {
				a.wantHeader(t, "Access-Control-Expose-Headers", "*")
			}
			if c.allowed != nil && a.Header.Values("Vary")[0] != "Origin" {
				t.Errorf("caches are not told: %q", a.Header.Values("Vary"))
			}
		}
	}
}

// A page can read every header that openapi.yaml describes, whether its origin is allowed or it has
// a signed URL.
func TestPagesSeeAllHeaders(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{AllowOrigins: []string{page}})
	_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
	s.append("orders", "a", bearer(ops)...)
	names := map[string]bool{}
	for _, item := range openDocument(t).Paths.Map() {
		for _, operation := range item.Operations() {
			for _, response := range operation.Responses.Map() {
				for _, name := range headerNames(response.Value) {
					names[name] = true
				}
			}
		}
	}
	if !names["Seb-Warning"] || !names["Retry-After"] {
		t.Fatalf("the document describes %v", slices.Sorted(maps.Keys(names)))
	}
	for _, a := range []answer{
		s.get(ordersPath, append(bearer(ops), "Origin", page)...),
		s.get(ordersPath+"?token="+signedFor(t, ops, "orders"), "Origin", stranger),
	} {
		a.want(t, 200)
		exposed := strings.Split(a.Header.Get("Access-Control-Expose-Headers"), ", ")
		for name := range names {
			if !slices.Contains(exposed, name) && !slices.Contains(exposed, "*") {
				t.Errorf("%s exposes %v, not %s", a.Request.URL.Path, exposed, name)
			}
		}
	}
}

// If a stranger's host name resolves to this machine, browsers take a page from that name for one of the
// broker's own origin.
func TestNamesThatLeadHereOpenNoLog(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{AllowOrigins: []string{page}})
	s.append("orders", "a")
	ask := func(method, host string, header ...string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, s.url+ordersPath, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Body.Close(); err != nil {
			t.Fatal(err)
		}
		return res.StatusCode
	}
	for host, good := range map[string]bool{
		"evil.example": false, "evil.example:51313": false, "127.0.0.1.evil.example": false, "example.com": true,
		"localhost:1": true, "seb.localhost:1": true, "127.0.0.1:1": true, "[::1]:1": true, "broker:51313": true,
	} {
		for method, want := range map[string]int{"GET": 200, "POST": 201} {
			if !good {
				want = 403
			}
			if got := ask(method, host); got != want {
				t.Errorf("%s to %s: %d, want %d", method, host, got, want)
			}
		}
	}
	_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
	if got := ask("POST", "broker.example", bearer(ops)...); got != 201 {
		t.Errorf("with a key any name does: %d", got)
	}
}

// The same holds for a name that resolves to another address of the visitor's network, since the
// page has the network access of its visitor.
func TestNamesThatLeadToANetworkOpenNoLog(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{AllowOrigins: []string{page}, Host: "seb.shop.example:51313"})
	s.append("orders", "a")
	for host, good := range map[string]bool{
		"evil.example": false, "evil.example:51313": false, "10.0.0.5.evil.example": false, "evil.example:80": false, "local": true, "evil.notlocal": false,
		"10.0.0.5": true, "10.0.0.5:51313": true, "[fe80::1]:51313": true, "seb:51313": true, "seb.default.svc.cluster.local": true, "SEB.Internal:1": true,
		"seb.home.arpa": true, "localhost:1": true, "example.com": true, "seb.shop.example:51313": true, "shop.example:51313": false, "": true,
	} {
		for _, local := range []string{"10.0.0.5", "203.0.113.7", "2001:db8::1", "127.0.0.1"} {
			r := httptest.NewRequestWithContext(
				context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(local), Port: 51313}), "GET", ordersPath, nil)
			r.Host = host
			w, want := httptest.NewRecorder(), 403
			if good {
				want = 200
			}
			if s.handler.ServeHTTP(w, r); w.Code != want {
				t.Errorf("%q at %s: %d, want %d", host, local, w.Code, want)
			}
		}
	}
}

func TestPreflight(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{AllowOrigins: []string{page}})
	ask := []string{"Access-Control-Request-Method", "PUT", "Access-Control-Request-Headers", "authorization,seb-key"}
	a := s.do("OPTIONS", ordersPath, nil, append(ask, "Origin", page)...)
	a.want(t, http.StatusNoContent)
	a.wantHeader(t, "Access-Control-Allow-Origin", page)
	a.wantHeader(t, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	a.wantHeader(t, "Access-Control-Allow-Headers", "authorization,seb-key")
	a.wantHeader(t, "Access-Control-Max-Age", "7200")
	refused := s.do("OPTIONS", ordersPath, nil, append(ask, "Origin", stranger)...)
	refused.wantProblem(t, http.StatusMethodNotAllowed, codeMethodNotAllowed)
	refused.wantHeader(t, "Access-Control-Allow-Origin", "")
}

func TestCheckOrigin(t *testing.T) {
	for _, good := range []string{"*", page, "http://localhost:3000", "https://[::1]:8443", "app://page"} {
		if err := CheckOrigin(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "example.com", "https://example.com/", "https://example.com/a", "https://Example.com", "null",
		"https://a@example.com", "https://example.com?x", "https://*.example.com/", "https://", "a b"} {
		if err := CheckOrigin(bad); seb.CodeOf(err) != seb.CodeInvalidRequest {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
