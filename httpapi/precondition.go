package httpapi

import (
	"net/http"
	"strings"
)

// conditions are the writes that take a condition, each with the header that has it.
var conditions = map[string]string{
	"POST /v1/topics/{topic}/consumers/{consumer}/commit": "If-Match",
	"PUT /v1/topics/{topic}/queues/{queue}":               "If-None-Match",
}

// refuseConditions refuses If-Match and If-None-Match of a write that does not take them. If this API ignored
// If-None-Match, for example, a client that means to create a consumer would reset a consumer that exists. Requests in
// the form of the original Seb, an earlier program, are outside of /v1/, and ignore conditions as that program does.
func refuseConditions(r *http.Request) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || !strings.HasPrefix(r.Pattern, "/v1/") {
		return nil
	}
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if len(r.Header[name]) > 0 && conditions[r.Method+" "+r.Pattern] != name {
			return invalid("leave this header out: a commit of positions takes If-Match, the PUT of a queue If-None-Match, and an append the parameter if_offset; the PUT of a topic does not change an existing topic, nor does that of a consumer without a body",
				"%s has no effect here", name)
		}
	}
	return nil
}
