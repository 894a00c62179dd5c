package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/simple-event-broker/seb"
)

// keys are the secrets of the API keys that examples send.
type keys struct{ ops, dashboard string }

func newKeys(t *testing.T, b *seb.Broker) (k keys) {
	t.Helper()
	_, k.ops = newKey(t, b, "ops", seb.ScopeAdmin)
	_, k.dashboard = newKey(t, b, "dashboard", seb.ScopeRead, "orders", "payments.*")
	return k
}

// shownIn returns the credentials to add to the header or to the query of the request of an
// example.
func (k keys) shownIn(t *testing.T, name string) (header []string, query string) {
	t.Helper()
	switch name {
	case "no_key":
		return nil, ""
	case "other_scope":
		return bearer(k.dashboard), ""
	case "signed":
		return nil, "&" + tokenParameter + "=" + signedFor(t, k.dashboard, "orders")
	default:
		return bearer(k.ops), ""
	}
}

// exampleServer returns a server with the content that the examples need, with a trigger if they are about triggers.
func exampleServer(t *testing.T, path string) (*server, keys) {
	opts := Options{Version: "v1.2.3", Gatherer: prometheus.NewRegistry()}
	var s *server
	if strings.HasPrefix(path, "/v1/triggers") || strings.HasPrefix(path, "/v1/driplang/") {
		s, _ = newTriggerServer(t, opts)
		s.append("orders", "ordered")
		const nudge = `{"from":["orders"],"when":"orders THEN NOT paid WITHIN 7d","to":"reminders"}`
		s.do("PUT", "/v1/triggers/nudge", strings.NewReader(nudge)).want(t, http.StatusCreated)
		return s, newKeys(t, s.broker)
	}
	s = newServer(t, seb.Options{}, opts)
	s.do("PUT", "/v1/topics/payments", strings.NewReader(`{"partitions":2}`)).want(t, http.StatusCreated)
	s.append("orders", "ordered\npaid\nshipped\n", "Content-Type", typeNDJSON, "Idempotency-Key", "the-first-three",
		"Seb-Key", "42", "Seb-Timestamp", "2026-01-31T12:00:00.25Z", "Seb-Header-Source", "shop")
	s.do("PUT", "/v1/topics/orders/consumers/audit", strings.NewReader(`{"from":"latest"}`)).want(t, http.StatusCreated)
	s.do("PUT", "/v1/topics/orders/consumers/billing", strings.NewReader(`{"from":{"offsets":{"0":1}}}`)).want(t, http.StatusCreated)
	s.exampleQueue()
	return s, newKeys(t, s.broker)
}

// exampleQueue creates queue mail, which is pushed, in which ordered is a dead letter and paid is leased;
// and queue refunds of topic payments.
func (s *server) exampleQueue() {
	s.t.Helper()
	const mail = "/v1/topics/orders/queues/mail"
	s.do("PUT", mail, strings.NewReader(`{"max_attempts":1}`)).want(s.t, http.StatusCreated)
	got := s.received("mail", `{"max":2}`)
	s.post(mail+"/nack", fmt.Sprintf(`{"tokens":[%q],"reason":"no such address"}`, got[0].Token)).want(s.t, http.StatusOK)
	s.do("PUT", mail+"/push", strings.NewReader(`{"url":"https://example.com/hooks","headers":{"Authorization":"Bearer 1"}}`)).want(s.t, http.StatusCreated)
	s.do("PUT", mail, strings.NewReader(`{"max_attempts":5}`)).want(s.t, http.StatusOK)
	s.do("PUT", "/v1/topics/payments/queues/refunds", nil).want(s.t, http.StatusCreated)
}

// clusterShown is the bucket's tag in the tokens of examples.
const clusterShown = "0123abcd"

// asShown returns a text with clusterShown in place of the tag of the broker's bucket.
func (s *server) asShown(text string) string {
	return strings.ReplaceAll(text, s.clusterTag()+".", clusterShown+".")
}

func (s *server) clusterTag() string {
	tag, _, _ := strings.Cut(s.broker.TopicTag(1), ".")
	return tag
}

func (d *document) play(t *testing.T, method, path, name, status string, want shown) {
	s, keys := exampleServer(t, path)
	target, header, body, err := d.request(method, path, name)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.credentials(d.operation(method, path))) > 0 {
		credential, query := keys.shownIn(t, name)
		target, header = target+query, append(header, credential...)
	}
	body = strings.ReplaceAll(body, clusterShown+".", s.clusterTag()+".")
	a := s.do(method, target, strings.NewReader(body), header...)
	a.body = s.asShown(a.body)
	if strconv.Itoa(a.StatusCode) != status {
		t.Fatalf("%s %s: status %d, want %s: %s", method, target, a.StatusCode, status, a.body)
	}
	if want.mediaType != "" {
		a.wantShown(t, want)
	}
}

// wantShown checks that a has the type and the body of an example.
func (a answer) wantShown(t *testing.T, want shown) {
	t.Helper()
	got := a.Header.Get("Content-Type")
	if want.mediaType == typeForm || want.mediaType == "text/plain" {
		got, _, _ = strings.Cut(got, ";") // drops a boundary, or a charset
	}
	if want.mediaType != "*/*" && got != want.mediaType {
		t.Fatalf("Content-Type %q, want %q", got, want.mediaType)
	}
	if want.mediaType == typeForm {
		a.body = a.formAsJSON(t)
	}
	text, err := encodeExample(want.value)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(inForm(t, want.mediaType, text), inForm(t, want.mediaType, a.body)); diff != "" {
		t.Errorf("not as shown (-want +got):\n%s", diff)
	}
}

// request builds the request of an exchange.
func (d *document) request(method, path, name string) (target string, header []string, body string, err error) {
	item := d.Paths.Value(path)
	op := item.GetOperation(method)
	query := url.Values{}
	target = path
	for _, p := range slices.Concat(item.Parameters, op.Parameters) {
		example := p.Value.Examples[name]
		if example == nil && p.Value.Required {
			if example = p.Value.Examples["usual"]; example == nil {
				return "", nil, "", fmt.Errorf("parameter %s has no usual example", p.Value.Name)
			}
		}
		if example == nil {
			continue
		}
		value := fmt.Sprint(example.Value.Value)
		if list, ok := example.Value.Value.([]any); ok {
			for _, v := range list {
				query.Add(p.Value.Name, fmt.Sprint(v))
			}
			continue
		}
		switch p.Value.In {
		case "path":
			target = strings.ReplaceAll(target, "{"+p.Value.Name+"}", url.PathEscape(value))
		case "query":
			query.Set(p.Value.Name, value)
		case "header":
			header = append(header, p.Value.Name, value)
		default:
			return "", nil, "", fmt.Errorf("parameter %s is in %s", p.Value.Name, p.Value.In)
		}
	}
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	contentType, body, err := requestBody(op, name)
	if contentType != "" {
		header = append(header, "Content-Type", contentType)
	}
	return target, header, body, err
}

// requestBody returns the body of an exchange, and its content type.
func requestBody(op *openapi3.Operation, name string) (contentType, body string, err error) {
	if op.RequestBody == nil {
		return "", "", nil
	}
	for mediaType, content := range op.RequestBody.Value.Content {
		example := content.Examples[name]
		if example == nil {
			continue
		}
		if body != "" {
			return "", "", errors.New("there are two bodies of this name")
		}
		switch mediaType {
		case "*/*":
			body, err = encodeExample(example.Value.Value)
		case typeForm:
			contentType = typeForm + "; boundary=" + boundary
			body = encodeForm(example.Value.Value.(map[string]any))
		default:
			contentType = mediaType
			body, err = encodeExample(example.Value.Value)
		}
		if err != nil {
			return "", "", err
		}
	}
	return contentType, body, nil
}

// encodeForm returns a form with the fields of the original's forms.
func encodeForm(fields map[string]any) string {
	return formBody(fields[sizesField].(string), fields[recordsField].(string))
}

// formAsJSON returns the fields of a form as an object, as in examples.
func (a answer) formAsJSON(t *testing.T) string {
	t.Helper()
	fields := map[string]any{}
	for _, f := range a.form(t) {
		name, value, _ := strings.Cut(f, "=")
		fields[name] = value
	}
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// encodeExample returns a string unchanged, and anything else as JSON.
func encodeExample(value any) (string, error) {
	if text, ok := value.(string); ok {
		return text, nil
	}
	text, err := json.Marshal(value)
	return string(text), err
}

// volatile matches fields whose values differ between buckets or keys, or
// depend on the time or the format of stored objects.
var volatile = regexp.MustCompile(`"(at|cluster_id|session|applied|bytes|state_bytes|created|last_activity|leased_until|log_time|store_time|store_time_age|parked|oldest|oldest_age|received_per_second|acknowledged_per_second)":("[^"]*"|[0-9.e+-]+)|"(key)":"seb_\d+_[0-9a-f]{64}"`)

// inForm returns a body in the form in which it is compared: JSON is decoded, without volatile
// fields.
func inForm(t *testing.T, mediaType, body string) any {
	t.Helper()
	if mediaType != typeJSON && mediaType != typeForm && mediaType != "application/problem+json" {
		return withoutLogTimes(body)
	}
	var decoded any
	if err := json.Unmarshal(volatile.ReplaceAll([]byte(body), []byte(`"$1$3":null`)), &decoded); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return decoded
}
