package httpapi

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/sebprom"
)

func newKey(t testing.TB, b *seb.Broker, name string, scopes seb.Scopes, topics ...string) (seb.Key, string) {
	t.Helper()
	k, secret, err := b.CreateKey(t.Context(), seb.KeyOptions{Name: name, Scopes: scopes, Topics: topics})
	if err != nil {
		t.Fatal(err)
	}
	return k, secret
}

func bearer(key string) []string { return []string{"Authorization", "Bearer " + key} }

// example returns a path that a pattern matches.
func example(pattern string) string {
	if slices.Contains(originalPaths, pattern) {
		return pattern + "?topic-name=orders&offset=0"
	}
	if pattern == "/v1/cut" {
		return pattern + "?topic=orders"
	}
	if pattern == "/v1/events" {
		return pattern + "?topic=orders"
	}
	return strings.NewReplacer("{trigger}", "nudge", "{entity}", "42", "{topic}", "orders", "{consumer}", "billing", "{queue}", "mail", "{offset}", "0", "{id}", "77", "{name}", "n").Replace(pattern)
}

// lacking returns a scope that is not enough for a need.
func lacking(n need) seb.Scopes {
	switch {
	case n.scope == seb.ScopeRead:
		return seb.ScopeWrite
	case n.scope == seb.ScopeWrite || n.parts:
		return seb.ScopeRead
	default:
		return seb.ScopeRead | seb.ScopeWrite
	}
}

// changing returns a request to a route that changes the log if it is admitted. The log must have
// topic orders with a record, consumer billing and queue mail, and the key; token must be that of a
// record of the queue.
func changing(method, pattern string, key uint64, token string) (path, body string, header []string) {
	path = example(pattern)
	switch method + " " + pattern {
	case "PUT /v1/topics/{topic}":
		path = "/v1/topics/new"
	case "PATCH /v1/topics/{topic}":
		body = `{"partitions":9}`
	case "POST /v1/topics/{topic}/records":
		body = "x"
	case "DELETE /v1/topics/{topic}/records":
		path += "?partition=0&before=1"
	case "PUT /v1/topics/{topic}/consumers/{consumer}":
		body = `{"from":"latest"}`
	case "POST /v1/topics/{topic}/consumers/{consumer}/commit":
		body = `{"offsets":{"0":1}}`
	case "PUT /v1/topics/{topic}/queues/{queue}", "PATCH /v1/topics/{topic}/queues/{queue}":
		body = `{"lease":"1m"}`
	case "PUT /v1/topics/{topic}/queues/{queue}/push":
		body = `{"url":"https://elsewhere.example/"}`
	case queueRoute + "ack", queueRoute + "nack", queueRoute + "extend":
		body = fmt.Sprintf(`{"tokens":[%q]}`, token)
	case "POST /v1/commits":
		body = `{"positions":[{"topic":"orders","consumer":"billing","offsets":{"0":1}}],"appends":[{"topic":"orders","records":[{"value":"x"}]}]}`
	case "POST /v1/keys":
		body = `{"name":"new","scopes":["read"]}`
	case "POST /v1/events":
		body = `{"event":"paid","entity_id":"42"}`
	case "PUT /v1/triggers/{trigger}":
		body = `{"from":["orders"],"when":"A","to":"reminders"}`
	case "DELETE /v1/keys/{id}":
		path = fmt.Sprint("/v1/keys/", key)
	case "POST /records":
		body, header = formBody("[1]", "a"), []string{"Content-Type", typeForm + "; boundary=" + boundary}
	}
	return path, body, header
}

const queueRoute = "POST /v1/topics/{topic}/queues/{queue}/"

// queueFor creates queue mail in a state in which a request to the route changes the log. It returns
// the token of a record if one is leased. gone is the URL of a target that answers 410.
func (s *server) queueFor(route, gone string, ops []string) (token string) {
	s.t.Helper()
	const mail = queuesPath + "/mail"
	s.do("PUT", mail, strings.NewReader(`{"max_attempts":1}`), ops...).want(s.t, http.StatusCreated)
	switch route {
	case queueRoute + "push/resume":
		s.stopPush(gone, ops...)
	case "DELETE /v1/topics/{topic}/queues/{queue}/push":
		s.do("PUT", mail+"/push", strings.NewReader(`{"url":"https://example.com/"}`), ops...).want(s.t, http.StatusCreated)
	case queueRoute + "resume":
		s.post(mail+"/pause", "", ops...).want(s.t, http.StatusOK)
	case queueRoute + "ack", queueRoute + "nack", queueRoute + "dead/redrive":
		token = s.received("mail", "", ops...)[0].Token
	case queueRoute + "extend": // sent to a broker that does not hand out records yet
		token = s.clusterTag() + ".1/0:0.1"
	}
	if route == queueRoute+"dead/redrive" {
		s.post(mail+"/nack", fmt.Sprintf(`{"tokens":[%q]}`, token), ops...).want(s.t, http.StatusOK)
	}
	return token
}

// refusal is a credential with which a request must be refused, and the expected status.
type refusal struct {
	name   string
	header []string
	status int
}

// refusalsOf returns ops, the secret of a key for everything, and of, which returns every kind of
// refusal for a route's need.
func (s *server) refusalsOf(store objstore.Store) (ops string, of func(n need) []refusal) {
	s.t.Helper()
	other := openBroker(s.t, store, seb.Options{})
	_, ops = newKey(s.t, s.broker, "ops", seb.ScopeAdmin)
	secret := map[seb.Scopes]string{}
	for _, scopes := range []seb.Scopes{seb.ScopeRead, seb.ScopeWrite, seb.ScopeRead | seb.ScopeWrite} {
		_, secret[scopes] = newKey(s.t, s.broker, strings.ReplaceAll(scopes.String(), ",", "-"), scopes)
	}
	_, elsewhere := newKey(s.t, s.broker, "elsewhere", seb.ScopeAdmin, "other", "order", "orders.*")
	_, brief, err := s.broker.CreateKey(s.t.Context(), seb.KeyOptions{Name: "brief", Scopes: seb.ScopeAdmin, Expires: time.Now().Add(time.Minute)})
	if err != nil {
		s.t.Fatal(err)
	}
	revoked, revokedSecret := newKey(s.t, s.broker, "revoked", seb.ScopeAdmin)
	s.get("/v1/keys", bearer(revokedSecret)...).want(s.t, http.StatusOK)
	if _, err := other.RevokeKey(s.t.Context(), revoked.ID); err != nil {
		s.t.Fatal(err)
	}
	time.Sleep(time.Minute) // fake time
	return ops, func(n need) []refusal {
		return []refusal{
			{"no key", nil, 401},
			{"garbage", bearer("garbage"), 401},
			{"no bearer", []string{"Authorization", "Basic b3BzOm9wcw=="}, 401},
			{"two keys", append(bearer(ops), bearer(ops)...), 401},
			{"another's secret", bearer("seb_1_" + elsewhere[strings.LastIndex(elsewhere, "_")+1:]), 401},
			{"unknown", bearer("seb_99_" + ops[6:]), 401},
			{"expired", bearer(brief), 401},
			{"revoked on another broker", bearer(revokedSecret), 401},
			{"wrong scope", bearer(secret[lacking(n)]), 403},
			{"wrong topic", bearer(elsewhere), 403},
		}
	}
}

// wantRefused checks a route's answer to a request with the credential c, which must be refused, with
// three exceptions: routes for anyone, routes for any key, and the list of topics, which leaves
// out other topics instead.
func (c refusal) wantRefused(t *testing.T, a answer, pattern string, n need) {
	t.Helper()
	original := slices.Contains(originalPaths, pattern)
	want := c.status
	if original {
		want = 401 // the original's clients take 403 for success
	}
	if n.nobody || n.anyKey && c.status == 403 || pattern == "/v1/topics" && c.name == "wrong topic" {
		want = 0
	}
	refused := a.StatusCode == 401 || a.StatusCode == 403
	switch {
	case want == 0 && !refused:
	case a.StatusCode != want:
		t.Errorf("%s %s with %s: %d, want %d: %s", a.Request.Method, pattern, c.name, a.StatusCode, want, a.body)
	case original:
		a.wantHeader(t, "Content-Type", "text/plain; charset=utf-8")
	default:
		p := a.wantProblem(t, want, map[int]seb.Code{401: seb.CodeUnauthorized, 403: seb.CodeForbidden}[want])
		if p.Hint == "" || want == 401 && a.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s %s with %s: hint %q, WWW-Authenticate %q", a.Request.Method, pattern, c.name, p.Hint, a.Header.Get("WWW-Authenticate"))
		}
	}
}

// TestUnauthorisedRequestsOfEveryKindAreRefused covers every route, since it takes the routes
// from the handler. At the end each request is sent with the right key, to show that only the
// refusals kept it from being served.
func TestUnauthorisedRequestsOfEveryKindAreRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("many requests, one at a time")
	}
	store, gone := objstore.NewMemory(), newGone(t)
	var b *seb.Broker
	opts := Options{Gatherer: prometheus.NewRegistry(), Triggers: refusingTriggers(&b)}
	bubbleOn(t, store, seb.Options{PushNetworks: loopback}, opts, 0, func(t *testing.T, s *server) {
		b = s.broker
		ops, refusals := s.refusalsOf(store)
		routes := 0
		for _, pattern := range slices.Sorted(maps.Keys(s.handler.declared)) {
			for method, served := range s.handler.declared[pattern] {
				routes++
				if a := s.do("DELETE", "/v1/topics/orders", nil, bearer(ops)...); a.StatusCode != http.StatusNotFound {
					a.want(t, http.StatusNoContent)
				}
				s.append("orders", "x", bearer(ops)...)
				s.do("PUT", "/v1/topics/orders/consumers/billing", nil, bearer(ops)...).want(t, http.StatusCreated)
				token := s.queueFor(method+" "+pattern, gone, bearer(ops))
				victim, _ := newKey(t, s.broker, fmt.Sprint("victim", routes), seb.ScopeRead)
				path, body, common := changing(method, pattern, uint64(victim.ID), token)
				ask := func(method string, header ...string) answer {
					time.Sleep(attemptsInterval)
					return s.do(method, path, strings.NewReader(body), slices.Concat(common, header)...)
				}
				applied := s.broker.Status().Applied
				for _, c := range refusals(served.need) {
					a := ask(method, c.header...)
					c.wantRefused(t, a, pattern, served.need)
					if method == http.MethodGet {
						ask(http.MethodHead, c.header...).want(t, a.StatusCode)
					}
				}
				if now := s.broker.Status().Applied; now != applied {
					t.Errorf("%s %s: refused requests made %d commits", method, pattern, now-applied)
				}
				a := ask(method, bearer(ops)...)
				changed := s.broker.Status().Applied != applied
				reads := method == http.MethodGet || strings.HasPrefix(pattern, "/v1/driplang/")
				if a.StatusCode == 401 || a.StatusCode == 403 || changed == reads {
					t.Errorf("%s %s with the right key: %d %s", method, pattern, a.StatusCode, a.body)
				}
			}
		}
		if routes < 20 {
			t.Errorf("only %d routes were tried", routes)
		}
	})
}

// servedTo says which callers each route serves: r, w and a are keys for topic orders with the
// scopes read, write and admin, A is a key for all topics with the scope admin, and -
// is a caller without a key. The table repeats what the handler declares, so that a change that
// weakens a route in the handler must change the table too.
var servedTo = map[string]string{
	"GET /v1/topics":                                      "r aA",
	"GET /v1/topics/{topic}":                              "r aA",
	"PUT /v1/topics/{topic}":                              "  aA",
	"PATCH /v1/topics/{topic}":                            "  aA",
	"DELETE /v1/topics/{topic}":                           "  aA",
	"GET /v1/topics/{topic}/records":                      "r aA",
	"POST /v1/topics/{topic}/records":                     " waA",
	"DELETE /v1/topics/{topic}/records":                   "  aA",
	"GET /v1/topics/{topic}/records/{offset}":             "r aA",
	"GET /v1/topics/{topic}/consumers":                    "r aA",
	"GET /v1/topics/{topic}/consumers/{consumer}":         "r aA",
	"PUT /v1/topics/{topic}/consumers/{consumer}":         "r aA",
	"DELETE /v1/topics/{topic}/consumers/{consumer}":      "r aA",
	"GET /v1/topics/{topic}/consumers/{consumer}/records": "r aA",
	"POST /v1/topics/{topic}/consumers/{consumer}/commit": "r aA",
	"GET /v1/topics/{topic}/queues":                       "r aA",
	"GET /v1/topics/{topic}/queues/{queue}":               "r aA",
	"PUT /v1/topics/{topic}/queues/{queue}":               "  aA",
	"PATCH /v1/topics/{topic}/queues/{queue}":             "  aA",
	"DELETE /v1/topics/{topic}/queues/{queue}":            "  aA",
	"GET /v1/topics/{topic}/queues/{queue}/dead":          "r aA",
	"GET /v1/topics/{topic}/queues/{queue}/receive":       "r aA",
	queueRoute + "receive":                                "r aA",
	queueRoute + "ack":                                    "r aA",
	queueRoute + "nack":                                   "r aA",
	queueRoute + "extend":                                 "r aA",
	queueRoute + "dead/redrive":                           "  aA",
	queueRoute + "pause":                                  "  aA",
	queueRoute + "resume":                                 "  aA",
	queueRoute + "purge":                                  "  aA",
	"GET /v1/topics/{topic}/queues/{queue}/push":          "  aA",
	"PUT /v1/topics/{topic}/queues/{queue}/push":          "  aA",
	"DELETE /v1/topics/{topic}/queues/{queue}/push":       "  aA",
	queueRoute + "push/resume":                            "  aA",
	"POST /v1/commits":                                    "rwaA", // the access to each part is checked: see TestEachPartOfACommitNeedsItsOwn
	"GET /v1/cut":                                         "r aA", // the access to each topic is checked: see TestCutNeedsReadForEachTopic
	"POST /v1/events":                                     " waA",
	"GET /v1/triggers":                                    "   A",
	"GET /v1/triggers/{trigger}":                          "   A",
	"PUT /v1/triggers/{trigger}":                          "   A",
	"DELETE /v1/triggers/{trigger}":                       "   A",
	"GET /v1/triggers/{trigger}/versions":                 "   A",
	"GET /v1/triggers/{trigger}/firings":                  "   A",
	"GET /v1/triggers/{trigger}/entities/{entity}":        "   A",
	"POST /v1/triggers/{trigger}/pause":                   "   A",
	"POST /v1/triggers/{trigger}/resume":                  "   A",
	"POST /v1/driplang/check":                             "rwaA",
	"POST /v1/driplang/eval":                              "rwaA",
	"POST /v1/driplang/test":                              "   A",
	"GET /v1/keys":                                        "   A",
	"POST /v1/keys":                                       "   A",
	"DELETE /v1/keys/{id}":                                "   A",
	"GET /v1/version":                                     "rwaA-",
	"GET /":                                               "rwaA-",
	"GET /livez":                                          "rwaA-",
	"GET /readyz":                                         "rwaA-",
	"GET /openapi.yaml":                                   "rwaA-",
	"GET /metrics":                                        "rwaA",
	"GET /v1/bill":                                        "rwaA",
	"GET /v1/peers":                                       "   A",
	"GET /records":                                        "r aA",
	"POST /records":                                       " waA",
	"GET /record":                                         "r aA",
	"GET /topic":                                          "r aA",
}

func TestScopesAllowWhatIsDocumented(t *testing.T) {
	var b *seb.Broker
	opts := Options{Gatherer: prometheus.NewRegistry(), Triggers: refusingTriggers(&b)}
	bubbleOn(t, objstore.NewMemory(), seb.Options{}, opts, 0, func(t *testing.T, s *server) {
		b = s.broker
		s.append("orders", "x")
		keys := map[string][]string{"-": nil}
		for _, k := range []struct {
			name   string
			scopes seb.Scopes
			topics []string
		}{{"A", seb.ScopeAdmin, nil}, {"a", seb.ScopeAdmin, []string{"orders"}}, {"r", seb.ScopeRead, []string{"orders"}}, {"w", seb.ScopeWrite, []string{"orders"}}} {
			_, secret := newKey(t, s.broker, k.name, k.scopes, k.topics...)
			keys[k.name] = bearer(secret)
		}
		for pattern, m := range s.handler.declared {
			for method := range m {
				may, listed := servedTo[method+" "+pattern]
				if !listed {
					t.Errorf("the table says nothing of %s %s", method, pattern)
				}
				for name, header := range keys {
					time.Sleep(attemptsInterval)
					a := s.do(method, example(pattern), nil, header...)
					if let := a.StatusCode != 401 && a.StatusCode != 403; let != strings.Contains(may, name) {
						t.Errorf("%s %s with the key %s: %d", method, pattern, name, a.StatusCode)
					}
				}
			}
		}
	})
}

// Topics whose names begin with _seb. are for admins: other keys can do nothing with them, nor create or list them.
func TestReservedTopicsOverHTTP(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("_seb.a", "x")
	s.append("orders", "x")
	_, admin := newKey(t, s.broker, "ops", seb.ScopeAdmin)
	_, other := newKey(t, s.broker, "other", seb.ScopeRead|seb.ScopeWrite|seb.ScopeMetrics)
	commit := `{"appends":[{"topic":"_seb.a","records":[{"value":"r"}]}]}`
	for _, r := range []struct{ method, path, body string }{
		{"GET", "/v1/topics/_seb.a", ""},
		{"GET", "/v1/topics/_seb.a/records", ""},
		{"GET", "/v1/topics/_seb.a/consumers", ""},
		{"GET", "/v1/topics/_seb.a/queues", ""},
		{"GET", "/v1/cut?topic=orders&topic=_seb.a", ""},
		{"POST", "/v1/topics/_seb.a/records", "x"},
		{"POST", "/v1/commits", commit},
		{"POST", "/v1/topics/_seb.new/records", "x"},
		{"PUT", "/v1/topics/_seb.put", "{}"},
		{"DELETE", "/v1/topics/_seb.a", ""},
	} {
		s.do(r.method, r.path, strings.NewReader(r.body), bearer(other)...).wantProblem(t, http.StatusForbidden, seb.CodeForbidden)
		if a := s.do(r.method, r.path, strings.NewReader(r.body), bearer(admin)...); a.StatusCode >= 300 {
			t.Errorf("%s %s by an admin: %d %s", r.method, r.path, a.StatusCode, a.body)
		}
	}
	for secret, sees := range map[string]bool{admin: true, other: false} {
		if list := s.get("/v1/topics", bearer(secret)...); strings.Contains(list.body, "_seb.new") != sees || !strings.Contains(list.body, "orders") {
			t.Errorf("the list of topics: %s", list.body)
		}
	}
}

func TestActionThatDoesNotSayWhatItNeedsPanics(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	defer func() {
		if recover() == nil {
			t.Error("it is served to anyone")
		}
	}()
	s.handler.route("/new", methods{"GET": {act: s.handler.livez}})
}

func TestKeysOverHTTP(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.post("/v1/keys", `{"name":"shop","scopes":["read"]}`).wantProblem(t, 400, seb.CodeInvalidRequest) // with it as the first key, nobody could manage keys
	created := s.post("/v1/keys", `{"name":"ops","scopes":["admin"]}`)
	created.want(t, 201)
	var ops, shop struct {
		ID     uint64
		Key    string
		Scopes []string
		Topics []string
	}
	created.json(t, &ops)
	created.wantHeader(t, "Cache-Control", "no-store")
	if ops.ID != 1 || !strings.HasPrefix(ops.Key, "seb_1_") || fmt.Sprint(ops.Topics) != "[*]" {
		t.Fatalf("the answer is %s", created.body)
	}
	s.get("/v1/topics").wantProblem(t, 401, seb.CodeUnauthorized)
	admin := bearer(ops.Key)
	body := `{"name":"shop","scopes":["read","write"],"topics":["orders","orders.*"],"expires":"2999-01-01T00:00:00Z"}`
	a := s.post("/v1/keys", body, admin...)
	a.want(t, 201)
	a.json(t, &shop)
	s.post("/v1/keys", body, admin...).wantProblem(t, 409, seb.CodeKeyExists)
	for _, bad := range []string{
		`{}`, `[]`, `{"name":"a"}`, `{"name":"a","scopes":["root"]}`, `{"name":"a","scopes":"read"}`, `{"name":"a","scopes":[1]}`,
		`{"name":"a","scopes":["read"],"topics":["*a"]}`, `{"name":"a","scopes":["read"],"topics":[]}`, `{"name":"a","scopes":["read"],"topics":[null]}`, `{"name":"a","scopes":["read"],"expires":"soon"}`, `{"name":"a","scopes":["read"],"ttl":"1h"}`,
		`{"name":"a","scopes":["read"],"expires":"2020-01-01T00:00:00Z"}`, `{"name":"a","scopes":["read"]} x`,
	} {
		s.post("/v1/keys", bad, admin...).wantProblem(t, 400, seb.CodeInvalidRequest)
	}
	list := s.get("/v1/keys", admin...)
	list.want(t, 200)
	if strings.Contains(list.body, `"key"`) || strings.Contains(list.body, shop.Key[8:]) || !strings.Contains(list.body, `"expires":"2999-01-01T00:00:00.000Z"`) {
		t.Errorf("the list is %s", list.body)
	}
	for _, path := range []string{"/v1/topics/orders/records", "/v1/topics/orders.eu/records"} {
		s.post(path, "hello", bearer(shop.Key)...).want(t, 201)
		s.get(path, bearer(shop.Key)...).want(t, 200)
	}
	s.append("hidden", "hello", admin...)
	if topics := s.get("/v1/topics", bearer(shop.Key)...).body; strings.Contains(topics, "hidden") || !strings.Contains(topics, "orders.eu") {
		t.Errorf("the key sees %s", topics)
	}
	s.do("DELETE", "/v1/keys/2", nil, admin...).want(t, 204)
	s.do("DELETE", "/v1/keys/2", nil, admin...).wantProblem(t, 404, seb.CodeKeyNotFound)
	s.do("DELETE", "/v1/keys/shop", nil, admin...).wantProblem(t, 400, seb.CodeInvalidRequest)
	s.get("/v1/topics", bearer(shop.Key)...).wantProblem(t, 401, seb.CodeUnauthorized)
}

// signedFor signs a read of topic for an hour.
func signedFor(t testing.TB, secret, topic string) string {
	t.Helper()
	s, err := seb.SignRead(secret, topic, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSignedURLReadsRecordsOfItsTopicAndNothingElse(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
		k, reader := newKey(t, s.broker, "reader", seb.ScopeRead, "orders")
		_, writer := newKey(t, s.broker, "writer", seb.ScopeWrite)
		s.append("orders", "hello", bearer(ops)...)
		s.append("secrets", "hush", bearer(ops)...)
		signed := signedFor(t, reader, "orders")
		ask := func(path string) answer { time.Sleep(attemptsInterval); return s.get(path) }
		a := ask("/v1/topics/orders/records?offset=earliest&token=" + signed + "&limit=1")
		a.want(t, 200)
		a.wantHeader(t, "Access-Control-Allow-Origin", "*")
		if !strings.Contains(a.body, "hello") {
			t.Errorf("it reads %q", a.body)
		}
		ask("/v1/topics/secrets/records?token="+signed).wantProblem(t, 401, seb.CodeUnauthorized)
		ask("/v1/topics/secrets/records?token="+signedFor(t, reader, "secrets")).wantProblem(t, 403, seb.CodeForbidden)
		ask("/v1/topics/orders/records?token="+signedFor(t, writer, "orders")).wantProblem(t, 403, seb.CodeForbidden)
		ask("/v1/topics/orders/records?token="+signed[1:]).wantProblem(t, 401, seb.CodeUnauthorized)
		ask("/v1/topics/orders/records?token=").wantProblem(t, 401, seb.CodeUnauthorized)
		ask("/v1/topics/orders/records/0?token="+signed).wantProblem(t, 401, seb.CodeUnauthorized)
		ask("/v1/topics/orders?token="+signed).wantProblem(t, 401, seb.CodeUnauthorized)
		s.post("/v1/topics/orders/records?token="+signed, "x").wantProblem(t, 401, seb.CodeUnauthorized)

		brief, err := seb.SignRead(reader, "orders", time.Now().Add(attemptsInterval+time.Second))
		if err != nil {
			t.Fatal(err)
		}
		ask("/v1/topics/orders/records?token="+brief).want(t, 200)
		if p := ask("/v1/topics/orders/records?token="+brief).wantProblem(t, 401, seb.CodeUnauthorized); !strings.Contains(p.Detail, "expired") {
			t.Errorf("the problem is %+v", p)
		}

		// A read that waits ends when the key is revoked, with an error that says so.
		waiting := make(chan answer)
		go func() { waiting <- s.get("/v1/topics/orders/records?offset=latest&wait=2m&token=" + signed) }()
		synctest.Wait()
		if _, err := s.broker.RevokeKey(t.Context(), k.ID); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		(<-waiting).wantProblem(t, 401, seb.CodeUnauthorized)
		if took := time.Since(began); took > time.Second {
			t.Errorf("it waited for %v", took)
		}
		ask("/v1/topics/orders/records?token="+signed).wantProblem(t, 401, seb.CodeUnauthorized)
	})
}

// A page with an invented token must not be able to read a log without keys, which only its user can reach.
func TestTokenOpensNothingToPagesWhereThereAreNoKeys(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("orders", "hello")
	a := s.get("/v1/topics/orders/records?token=madeup", "Origin", "https://elsewhere.example")
	a.want(t, 200)
	a.wantHeader(t, "Access-Control-Allow-Origin", "")
}

func TestStreamEndsWithItsKeyAndIsNotResumed(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
		k, reader := newKey(t, s.broker, "reader", seb.ScopeRead, "orders")
		_, brief, err := s.broker.CreateKey(t.Context(), seb.KeyOptions{Name: "brief", Scopes: seb.ScopeRead, Expires: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		s.append("orders", "one", bearer(ops)...)
		query := "?offset=earliest&token=" + signedFor(t, reader, "orders")
		stream, timed := s.follow(query), s.follow("?offset=latest&token="+signedFor(t, brief, "orders"))
		stream.begin()
		timed.begin()
		id := stream.want("0/0=one")[0]
		stream.resp.Body.Close()
		s.append("orders", "two", bearer(ops)...)
		stream = s.follow(query, lastEventIDHeader, id)
		stream.begin()
		stream.want("0/1=two")
		if _, err := s.broker.RevokeKey(t.Context(), k.ID); err != nil {
			t.Fatal(err)
		}
		stream.wantError(seb.CodeUnauthorized)
		s.get(ordersPath+query, "Accept", typeEvents, lastEventIDHeader, id).wantProblem(t, 401, seb.CodeUnauthorized)

		timed.want("0/1=two")
		for e := timed.next(); e.name != "error"; e = timed.next() {
			if e.data != "" {
				t.Fatalf("got %q", e.all)
			}
		}
		timed.wantEnd()
	})
}

// A request that waits ends within ten seconds after another broker has revoked its key.
func TestWhatWaitsEndsWithAKeyThatWasRevokedElsewhere(t *testing.T) {
	store := objstore.NewMemory()
	bubbleOn(t, store, seb.Options{}, Options{}, 0, func(t *testing.T, s *server) {
		other := openBroker(t, store, seb.Options{})
		_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
		k, reader := newKey(t, s.broker, "reader", seb.ScopeRead)
		s.append("orders", "one", bearer(ops)...)
		stream := s.follow("?offset=latest", bearer(reader)...)
		stream.begin()
		waiting := make(chan answer)
		go func() { waiting <- s.get(ordersPath+"?offset=latest&wait=2m", bearer(reader)...) }()
		synctest.Wait()
		if _, err := other.RevokeKey(t.Context(), k.ID); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		stream.wantError(seb.CodeUnauthorized)
		(<-waiting).wantProblem(t, 401, seb.CodeUnauthorized)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("they went on for %v", took)
		}
	})
}

// The figures of a broker that has stopped are worth knowing. It checks keys by the last state
// that it knew.
func TestStoppedBrokerServesItsMetricsAndBill(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{Gatherer: prometheus.NewRegistry()})
	_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
	k, revoked := newKey(t, s.broker, "revoked", seb.ScopeAdmin)
	_, reader := newKey(t, s.broker, "reader", seb.ScopeRead, "orders")
	if _, err := s.broker.RevokeKey(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.broker.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/metrics", "/v1/bill"} {
		s.get(path, bearer(ops)...).want(t, http.StatusOK)
		s.get(path, bearer(reader)...).want(t, http.StatusOK)
		s.get(path).wantProblem(t, http.StatusUnauthorized, seb.CodeUnauthorized)
		s.get(path, bearer(revoked)...).wantProblem(t, http.StatusUnauthorized, seb.CodeUnauthorized)
		s.get(path, bearer("seb_99_"+ops[len(ops)-64:])...).wantProblem(t, http.StatusUnauthorized, seb.CodeUnauthorized)
	}
	s.get("/v1/topics", bearer(ops)...).wantProblem(t, http.StatusServiceUnavailable, seb.CodeBrokerClosed)
	s.get("/v1/keys", bearer(ops)...).wantProblem(t, http.StatusServiceUnavailable, seb.CodeBrokerClosed)
}

func TestKeyThatMayBeNewIsNotRefusedWhileTheStoreIsAway(t *testing.T) {
	store := &brokenStore{Store: objstore.NewMemory()}
	var b *seb.Broker
	s := newServerOn(t, store, seb.Options{}, Options{Gatherer: prometheus.NewRegistry(), Triggers: refusingTriggers(&b)})
	_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
	store.down.Store(true)
	defer store.down.Store(false)
	for _, path := range []string{"/v1/driplang/check", "/v1/driplang/eval"} {
		s.post(path, "{}", bearer("seb_99_"+ops[len(ops)-64:])...).wantProblem(t, http.StatusServiceUnavailable, seb.CodeStoreUnavailable)
	}
	for _, path := range []string{"/metrics", "/v1/bill"} {
		s.get(path, bearer("seb_99_"+ops[len(ops)-64:])...).wantProblem(t, http.StatusServiceUnavailable, seb.CodeStoreUnavailable)
		s.get(path, bearer(ops)...).want(t, http.StatusOK)
	}
}

// A stream that has much to catch up with never waits for records, and only a wait
// makes its broker sync.
func TestStreamThatCatchesUpSlowlyEndsWithItsKey(t *testing.T) {
	store := objstore.NewMemory()
	bubbleOn(t, store, seb.Options{}, Options{}, 0, func(t *testing.T, s *server) {
		other := openBroker(t, store, seb.Options{})
		_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
		k, reader := newKey(t, s.broker, "reader", seb.ScopeRead, "orders")
		for range 100 {
			s.append("orders", strings.Repeat("x", 256<<10), bearer(ops)...)
		}
		stream := s.follow("?offset=earliest", bearer(reader)...)
		stream.begin()
		stream.next()
		if _, err := other.RevokeKey(t.Context(), k.ID); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		e := stream.next()
		for ; e.name == ""; e = stream.next() {
			time.Sleep(time.Second)
		}
		if took := time.Since(began); took > 10*time.Second || !strings.Contains(e.data, string(seb.CodeUnauthorized)) || strings.Contains(e.data, "outcome") {
			t.Errorf("it ended after %v, with %q", took, e.all)
		}
		stream.wantEnd()
	})
}

func TestFailedAttemptsAreCountedAndSlowed(t *testing.T) {
	metrics := prometheus.NewRegistry()
	bubbleOn(t, objstore.NewMemory(), seb.Options{}, Options{Registerer: metrics}, 0, func(t *testing.T, s *server) {
		_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
		throttled := 0
		for range 30 {
			if a := s.get("/v1/topics", bearer("garbage")...); a.StatusCode == http.StatusTooManyRequests {
				a.wantProblem(t, 429, codeTooManyAttempts)
				if !a.Close {
					t.Error("the connection stays")
				}
				throttled++
			}
		}
		if throttled != 20 {
			t.Errorf("%d of 30 attempts were slowed", throttled)
		}
		s.get("/v1/topics", bearer(ops)...).want(t, 200)
		s.get("/v1/topics").want(t, 401)
		time.Sleep(3*time.Second - time.Millisecond)
		s.get("/v1/topics", bearer("garbage")...).want(t, 429)
		time.Sleep(3*time.Second + 2*time.Millisecond)
		s.get("/v1/topics", bearer("garbage")...).want(t, 401)
		s.get("/v1/topics", bearer("garbage")...).want(t, 429)
		for reason, want := range map[string]float64{refusedMissing: 1, refusedWrong: 11, refusedThrottled: 22} {
			if got := counted(t, metrics, "seb_http_access_refused_total", reason); got != want {
				t.Errorf("%s: %v are counted, want %v", reason, got, want)
			}
		}
	})
}

// Clients behind one proxy share an address, so a client that fails must not affect the
// keys of the others.
func TestAddressThatFailedTooOftenSeesKeysAsTheyAre(t *testing.T) {
	store := objstore.NewMemory()
	bubbleOn(t, store, seb.Options{}, Options{}, 0, func(t *testing.T, s *server) {
		other := openBroker(t, store, seb.Options{})
		newKey(t, s.broker, "ops", seb.ScopeAdmin)
		old, oldSecret := newKey(t, s.broker, "old", seb.ScopeRead)
		fail := func() {
			for range 2 * attemptsBurst {
				s.get("/metrics", bearer("garbage")...)
				s.get("/v1/topics", bearer("garbage")...)
			}
		}
		time.Sleep(time.Minute)
		_, newSecret := newKey(t, other, "new", seb.ScopeRead)
		fail()
		s.get("/v1/keys", bearer(newSecret)...).wantProblem(t, 403, seb.CodeForbidden) // authenticated: the key only lacks the scope
		if _, err := other.RevokeKey(t.Context(), old.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second + time.Millisecond)
		fail()
		s.get("/v1/topics", bearer(oldSecret)...).wantProblem(t, 429, codeTooManyAttempts)
	})
}

// counted returns the value of a counter by its one label.
func counted(t testing.TB, g prometheus.Gatherer, name, label string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("there is no %s of %s", name, label)
	return 0
}

func TestAttemptsTakeBoundedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthThrottle()
		for i := range attemptsAddressesMax + 1000 {
			a.failed(attemptsOf(fmt.Sprintf("[2001:db8:%x:%x::1]:99", i>>8, i&0xff)))
		}
		if n := len(a.until); n > attemptsAddressesMax+1 {
			t.Errorf("%d addresses are held", n)
		}
		if a.left(attemptsOf("[2001:db8:ffff::1]:1")) {
			t.Error("who finds no place of its own may fail as often as it likes")
		}
		if !a.left(attemptsOf("[2001:db8::7]:1")) { // the address is in the /64 of the first one, which has failed only once
			t.Error("an address with attempts left has none")
		}
		time.Sleep(time.Minute)
		a.failed(attemptsOf("192.0.2.1:1"))
		if len(a.until) != 1 || !a.left(attemptsOf("[2001:db8:ffff::1]:1")) {
			t.Errorf("%d addresses are held after a minute", len(a.until))
		}
	})
}

func TestAdminActionsLeaveALine(t *testing.T) {
	var log logLines
	s := newServer(t, seb.Options{}, Options{Logger: log.logger()})
	var ops struct{ Key string }
	s.post("/v1/keys", `{"name":"ops","scopes":["admin"]}`, requestIDHeader, "first").json(t, &ops)
	s.do("PUT", "/v1/topics/orders", nil, append(bearer(ops.Key), requestIDHeader, "second")...).want(t, 201)
	s.do("DELETE", "/v1/topics/none", nil, append(bearer(ops.Key), requestIDHeader, "third")...).want(t, 404)
	s.do("DELETE", "/v1/keys/1", nil, append(bearer(ops.Key), requestIDHeader, "fourth")...).want(t, 204)
	s.get("/v1/keys", bearer(ops.Key)...).want(t, 401)
	type line struct {
		Msg, By, Did, Method, Path string
		RequestID                  string `json:"request_id"`
		Status                     int
	}
	var got []line
	for l := range strings.Lines(log.String()) {
		var x line
		if err := json.Unmarshal([]byte(l), &x); err != nil {
			t.Fatal(err)
		}
		if x.Msg == "audit" {
			got = append(got, x)
		}
	}
	want := []line{
		{"audit", "anyone: there are no keys", `created key 1 "ops" for admin of *`, "POST", "/v1/keys", "first", 201},
		{"audit", `key 1 "ops"`, "", "PUT", "/v1/topics/orders", "second", 201},
		{"audit", `key 1 "ops"`, "", "DELETE", "/v1/topics/none", "third", 404},
		{"audit", `key 1 "ops"`, `revoked key 1 "ops"`, "DELETE", "/v1/keys/1", "fourth", 204},
	}
	if !slices.Equal(got, want) {
		t.Errorf("the audit log is\n%+v, want\n%+v", got, want)
	}
}

// Only the answer that creates a key has its secret. No line of the log has it, about a
// request or an audited action, and no metric, no object of the bucket, and no other
// answer.
func TestSecretsAreInNoLogLineMetricObjectOrAnswer(t *testing.T) {
	store := objstore.NewMemory()
	var log logLines
	metrics := prometheus.NewRegistry()
	s := serve(t, openBroker(t, store, seb.Options{Logger: log.logger(), CheckpointCommits: 1}),
		Options{Logger: log.logger(), Registerer: metrics, Gatherer: metrics})
	metrics.MustRegister(sebprom.NewCollector(s.broker.Metrics))
	create := func(name, scope string, header ...string) string {
		var k struct{ Key string }
		a := s.post("/v1/keys", `{"name":"`+name+`","scopes":["`+scope+`"]}`, header...)
		a.want(t, http.StatusCreated)
		a.json(t, &k)
		return k.Key
	}
	ops := create("ops", "admin")
	gone, page := create("gone", "read", bearer(ops)...), create("page", "read", bearer(ops)...)
	s.append("orders", "hello", bearer(ops)...)
	s.do("DELETE", "/v1/keys/2", nil, bearer(ops)...).want(t, http.StatusNoContent)
	signed := signedFor(t, page, "orders")

	var answers bytes.Buffer
	keep := func(a answer) {
		answers.WriteString(a.body)
		if err := a.Header.Write(&answers); err != nil {
			t.Fatal(err)
		}
	}
	for _, secret := range []string{ops, gone, page, ops + "0"} {
		for _, path := range []string{"/v1/topics", "/v1/keys", "/nowhere", "/v1/topics/orders/records?offset=-1", "/topic?topic-name=orders", "/metrics"} {
			keep(s.get(path, bearer(secret)...))
			keep(s.get(path, "Authorization", secret))
			keep(s.do("PATCH", path, nil, bearer(secret)...))
		}
		keep(s.get("/v1/topics/orders/records?wait=oops&token="+signed, bearer(secret)...))
		s.do("DELETE", "/v1/keys/"+secret, nil, bearer(ops)...).want(t, http.StatusBadRequest) // the secret in place of the key's id
	}
	keep(s.get("/v1/topics", bearer("seb_9_"+ops[6:])...)) // an unknown id, for which the broker syncs
	for _, path := range []string{"/v1/topics/orders/records", "/v1/topics/none/records", "/v1/topics/orders", "/v1/keys"} {
		keep(s.get(path + "?token=" + signed))
		keep(s.get(path + "?token=" + signed + "&x=%zz"))
		keep(s.get(path + "?%zz&token=" + signed))
	}
	keep(s.get("/metrics", bearer(ops)...))
	s.stop() // waits until all handlers have written their log lines
	if err := s.broker.Close(); err != nil {
		t.Fatal(err)
	}
	places := objectsOf(t, store)
	named := 0
	for _, object := range places {
		named += bytes.Count(object, []byte("page"))
	}
	places["the log"], places["the answers"] = []byte(log.String()), answers.Bytes()
	for where, sign := range map[string]string{
		"the log": `"did":"revoked key 2`, "the answers": "seb_http_access_refused_total", "seb.json": "cluster",
	} {
		if named < 2 || !bytes.Contains(places[where], []byte(sign)) {
			t.Fatalf("the test looks in the wrong places: %v, without %q in %s", slices.Collect(maps.Keys(places)), sign, where)
		}
	}
	for where, b := range places {
		for _, secret := range []string{ops[6:], gone[6:], page[6:], signed, signed[23:], bitsOf(t, ops), bitsOf(t, gone), bitsOf(t, page)} {
			if bytes.Contains(b, []byte(secret[:16])) || bytes.Contains(b, []byte(secret[len(secret)-16:])) {
				t.Errorf("%s: a secret is there", where)
			}
		}
	}
}

// bitsOf returns the bytes that the hex digits of a key's secret encode.
func bitsOf(t *testing.T, secret string) string {
	t.Helper()
	b, err := hex.DecodeString(secret[strings.LastIndex(secret, "_")+1:])
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// objectsOf returns all objects of a store by key.
func objectsOf(t *testing.T, store objstore.Store) map[string][]byte {
	t.Helper()
	page, err := store.List(t.Context(), "", "", 1000)
	if err != nil || page.More {
		t.Fatal(page.More, err)
	}
	all := map[string][]byte{}
	for _, key := range page.Keys {
		o, err := store.Get(t.Context(), key, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		all[key] = o.Body
	}
	return all
}

func FuzzKeyOptions(f *testing.F) {
	f.Add([]byte(`{"name":"shop","scopes":["read","write"],"topics":["orders.*"],"expires":"2999-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"name":null,"scopes":null,"topics":[null],"expires":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		o, err := parseKeyOptions(body)
		if err != nil {
			if seb.CodeOf(err) != seb.CodeInvalidRequest {
				t.Fatalf("the error is %v", err)
			}
			return
		}
		if !json.Valid(body) || o.Scopes > seb.ScopeRead|seb.ScopeWrite|seb.ScopeAdmin {
			t.Fatalf("%q was read as %+v", body, o)
		}
	})
}

// A caller with an API key may believe that the log is protected.
func TestKeyForALogWithoutKeysGetsAWarning(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	for _, test := range []struct {
		path string
		key  string
		want bool
	}{
		{"/v1/topics", "anything", true}, {"/v1/topics/none", "anything", true}, {"/v1/bill", "anything", true},
		{"/v1/topics", "", false}, {"/v1/version", "anything", false},
	} {
		var headers []string
		if test.key != "" {
			headers = bearer(test.key)
		}
		got := s.get(test.path, headers...).Header.Values(warningHeader)
		if want := test.want; (len(got) == 1 && got[0] == uncheckedWarning) != want || !want && len(got) > 0 {
			t.Errorf("%s with the key %q: %q", test.path, test.key, got)
		}
	}
	_, key := newKey(t, s.broker, "ops", seb.ScopeAdmin)
	if got := s.get("/v1/topics", bearer(key)...).Header.Values(warningHeader); len(got) > 0 {
		t.Errorf("with a valid key: %q", got)
	}
}
