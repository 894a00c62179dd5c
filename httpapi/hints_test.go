package httpapi

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
)

// If the last part of a path below a queue or a consumer is unknown, the hint lists all valid ones.
func TestHintsBelowQueuesAndConsumersListTheRoutes(t *testing.T) {
	s := newServerWith(t, 1)
	for kind, pattern := range map[string]string{
		"queues": "/v1/topics/{topic}/queues/{queue}/", "consumers": "/v1/topics/{topic}/consumers/{consumer}/",
	} {
		for _, path := range []string{"/x/recv", "/x/", "//receive", "/x/records/3", "/x%2fy/z"} {
			p := s.get("/v1/topics/orders/"+kind+path).wantProblem(t, http.StatusNotFound, codeRouteNotFound)
			if !strings.Contains(p.Hint, "GET /v1/topics/TOPIC/"+kind+" lists all") || strings.Contains(p.Hint, "topics are under") {
				t.Errorf("%s of %s: the hint is %q", path, kind, p.Hint)
			}
			for route := range s.handler.declared {
				name, below := strings.CutPrefix(route, pattern)
				if below && !regexp.MustCompile(`[ ,]`+name+`[ ,;]`).MatchString(p.Hint) {
					t.Errorf("%s of %s: the hint does not tell of %s: %s", path, kind, name, p.Hint)
				}
			}
		}
	}
}

// The hint for a refused number or duration names the valid range.
func TestHintsNameTheRange(t *testing.T) {
	s := newServerWith(t, 1)
	const receive = "/v1/topics/orders/queues/q/receive"
	s.do("PUT", "/v1/topics/orders/queues/q", nil).want(t, http.StatusCreated)
	for request, want := range map[string]string{
		"GET " + ordersPath + "?limit=0": "from 1 on", "GET " + ordersPath + "?wait=6m": "from 0s to 5m0s", "GET /v1/topics?limit=0": "from 1 to 1000",
		"GET " + ordersPath + "?topic_id=abc": topicIDHeader,
		"POST " + receive + ` {"max":2000}`:   "from 1 to 1000", "POST " + receive + ` {"wait":"6m"}`: "0s to 5m0s", "POST " + receive + ` {"lease":"500ms"}`: "1s to 12h",
	} {
		method, rest, _ := strings.Cut(request, " ")
		path, body, _ := strings.Cut(rest, " ")
		if p := s.do(method, path, strings.NewReader(body)).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest); !strings.Contains(p.Hint, want) {
			t.Errorf("%s: the hint is %q", request, p.Hint)
		}
	}
	p := s.get(ordersPath+"?last_event_id=garbage", "Accept", typeEvents).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	if !strings.Contains(p.Detail, "last event id") || !strings.Contains(p.Hint, "id of the last event") {
		t.Errorf("of a last event id it says %+v", p)
	}
}

// The hint for a missing queue or consumer says how to create it, and how to list the existing
// ones.
func TestHintsSayHowToCreateWhatIsMissing(t *testing.T) {
	s := newServerWith(t, 1)
	const queue, consumer = "/v1/topics/orders/queues/x", "/v1/topics/orders/consumers/x"
	token := s.clusterTag() + ".1/0:0.1"
	for request, body := range map[string]string{
		"GET " + queue: "", "DELETE " + queue: "", "POST " + queue + "/receive": "", "POST " + queue + "/ack": `{"tokens":["` + token + `"]}`,
		"POST " + queue + "/pause": "", "GET " + queue + "/dead": "", "GET " + queue + "/push": "", "PUT " + queue + "/push": `{"url":"https://example.com"}`,
		"GET " + consumer: "", "DELETE " + consumer: "", "POST " + consumer + "/commit": `{"offsets":{"0":1}}`,
		"GET /v1/topics/none": "", "POST /v1/topics/none/queues/x/receive": "", "GET /v1/topics/none/consumers/x": "",
	} {
		method, path, _ := strings.Cut(request, " ")
		code, create, list := seb.CodeTopicNotFound, "PUT /v1/topics/TOPIC creates the topic", "GET /v1/topics lists all"
		switch {
		case strings.HasPrefix(path, queue):
			code, create, list = seb.CodeQueueNotFound, "PUT /v1/topics/TOPIC/queues/NAME creates the queue", "GET /v1/topics/TOPIC/queues lists"
		case strings.HasPrefix(path, consumer):
			code, create, list = seb.CodeConsumerNotFound, "PUT /v1/topics/TOPIC/consumers/NAME creates the consumer", "GET /v1/topics/TOPIC/consumers lists"
		}
		p := s.do(method, path, strings.NewReader(body)).wantProblem(t, http.StatusNotFound, code)
		if !strings.HasPrefix(p.Hint, create) || !strings.Contains(p.Hint, list) {
			t.Errorf("%s: the hint is %q", request, p.Hint)
		}
	}
}
