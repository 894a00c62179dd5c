package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
)

// The error for a value of a wrong type names the field, the expected form, what came, and where.
func TestErrorsForWrongTypesNameFieldFormAndValue(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	const records, queue = "/v1/topics/orders/records", "/v1/topics/orders/queues/mail"
	for _, c := range []struct{ method, path, body, want string }{
		{"PUT", "/v1/topics/orders", `{"partitions":"4"}`, `partitions must be an integer from 1 to 2147483647, not a string, at byte 14`},
		{"PUT", "/v1/topics/orders", `{"partitions":0}`, `partitions must be an integer from 1 to 2147483647, not 0, at byte 14`},
		{"PUT", "/v1/topics/orders", `{"partitions": 1.5}`, `partitions must be an integer from 1 to 2147483647, not 1.5, at byte 15`},
		{"PUT", "/v1/topics/orders", `{"config":{"retention":7}}`, `retention must be a duration such as "30s" or "7d", not a number, at byte 23`},
		{"PUT", "/v1/topics/orders", `{"config":null,"partitions":[]}`, `, not a list, at byte 28`},
		{"PUT", "/v1/topics/orders", `{"config":true}`, `config must be an object, not true, at byte 10`},
		{"PUT", "/v1/topics/orders", `[]`, `a topic must be an object, not a list, at byte 0`},
		{"PUT", "/v1/topics/orders", `nonsense`, `a topic must be an object, at byte 0`},
		{"PUT", queue, `{"lease":30}`, `lease must be a duration such as "30s" or "7d", not a number, at byte 9`},
		{"PUT", queue, `{"backoff":1}`, `backoff must be a string such as "1s..1h", not a number, at byte 11`},
		{"PUT", queue, `{"paused":"yes"}`, `paused must be true or false, not a string, at byte 10`},
		{"POST", records, `{"records":{"value":"x"}}`, `records must be a list, not an object, at byte 11`},
		{"POST", records, `{"records":["x"]}`, `record 0: a record must be an object, not a string, at byte 12`},
		{"POST", records, `{"records":[{"value":{"a":1}}]}`, `record 0: value must be a string (value_json takes any JSON), not an object, at byte 21`},
		{"POST", records, `{"records":[`, `malformed JSON at byte 12: it ends where an object should follow`},
		{"POST", records, `{"records":`, `malformed JSON at byte 11: it ends where a list should follow`},
		{"POST", records, `{"records":[{"value":`, `malformed JSON at byte 21: it ends where a string (value_json takes any JSON) should follow`},
		{"POST", records, `{"records":[{"key":42}]}`, `record 0: key must be a string, not a number, at byte 19`},
		{"POST", records, `{"records":[{"timestamp":1}]}`, `record 0: timestamp must be a time such as "2026-01-31T12:00:00Z", not a number, at byte 25`},
		{"POST", records, `{"records":[{"headers":{"a":false}}]}`, `record 0: headers: a value must be a string, not false, at byte 28`},
	} {
		header := []string{"Content-Type", typeJSON}
		if c.path == records {
			header[1] = typeRecords
		}
		a := s.do(c.method, c.path, strings.NewReader(c.body), header...)
		p := a.wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
		if !strings.HasSuffix(p.Detail, c.want) || strings.Contains(p.Detail, "int64") {
			t.Errorf("%s %s %s: the detail is\n%s, not\n%s", c.method, c.path, c.body, p.Detail, c.want)
		}
	}
}
