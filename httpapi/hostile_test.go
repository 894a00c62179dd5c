package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

// hostile is a request and the answer that it must get.
type hostile struct {
	name, request string
	status        int
	// code is that of the problem. It is "" if the answer is a success, or if net/http itself
	// answers, because it can't find the end of the request.
	code seb.Code
}

func get(path string, headers ...string) string { return request("GET", path, "", headers...) }

// request returns a request with a body and its Content-Length.
func request(method, path, body string, headers ...string) string {
	var lines strings.Builder
	for _, h := range headers {
		lines.WriteString(h + "\r\n")
	}
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", method, path, lines.String(), len(body), body)
}

func chunked(rest string) string { return postHead + "Transfer-Encoding: chunked\r\n\r\n" + rest }

func hostileNames() []hostile {
	const invalid, nowhere = seb.CodeInvalidRequest, codeRouteNotFound
	long := strings.Repeat("x", 250)
	return []hostile{
		{"topic name too long", request("PUT", "/v1/topics/"+long, ""), 400, seb.CodeInvalidTopicName},
		{"topic name with NUL", request("PUT", "/v1/topics/a%00b", ""), 400, seb.CodeInvalidTopicName},
		{"topic name not UTF-8", request("PUT", "/v1/topics/%ff%fe", ""), 400, seb.CodeInvalidTopicName},
		{"topic name is parent", request("PUT", "/v1/topics/%2e%2e", ""), 400, seb.CodeInvalidTopicName},
		{"topic name with encoded slash", request("PUT", "/v1/topics/a%2F..%2Fb", ""), 400, seb.CodeInvalidTopicName},
		{"append to parent", request("POST", "/v1/topics/%2e%2e/records", "x"), 400, seb.CodeInvalidTopicName},
		{"broken escape", get("/v1/topics/%zz"), 400, ""},
		{"space in the path", get("/v1/topics/a b"), 400, ""},
		{"no slash in front", get("v1/topics"), 400, ""},
		{"asterisk", get("*"), 404, nowhere},
		{"out of the tree", get("/../../../etc/passwd"), 404, codeRouteNotFound},
		{"long path", get("/" + strings.Repeat("x", 50<<10)), 404, nowhere},
		{"path too long", get("/" + strings.Repeat("x", 100<<10)), 431, ""},
		{"many parameters", get(ordersPath + "?" + strings.Repeat("a=b&", 9000)), 400, invalid},
		{"method in lower case", request("get", "/v1/topics", ""), 405, codeMethodNotAllowed},
		{"long method", request(strings.Repeat("G", 1000), "/v1/topics", ""), 405, codeMethodNotAllowed},
		{"method that is no token", request("G@T", "/v1/topics", ""), 400, ""},
		{"tunnel", "CONNECT other:443 HTTP/1.1\r\nHost: x\r\n\r\n", 404, nowhere},
		{"tunnel to a path", request("CONNECT", "/v1/topics", ""), 405, codeMethodNotAllowed},
		{"proxy request", get("http://other/v1/topics"), 200, ""},
		{"proxy request without path", get("http://other"), 404, nowhere},
	}
}

func hostileProtocols() []hostile {
	return []hostile{
		{"HTTP/1.0", "GET /v1/topics HTTP/1.0\r\n\r\n", 200, ""},
		{"HTTP/0.9", "GET /v1/topics\r\n\r\n", 400, ""},
		{"HTTP/3.0", "GET /v1/topics HTTP/3.0\r\nHost: x\r\n\r\n", 505, ""},
		{"HTTP/2 at once", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", 404, codeRouteNotFound},
		{"HTTP/2 by upgrade", get(ordersPath, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQ"), 200, ""},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 50) + "\r\n\r\n", 400, ""},
		{"nothing but lines", "\r\n\r\n\r\n", 400, ""},
		{"no host", "GET /v1/topics HTTP/1.1\r\n\r\n", 400, ""},
		{"two hosts", get("/v1/topics", "Host: y"), 400, ""},
		{"space before the colon", get("/v1/topics", "X : y"), 400, ""},
		{"NUL in a header", get("/v1/topics", "X: a\x00b"), 400, ""},
		{"header without name", get("/v1/topics", ": y"), 400, ""},
		{"header too long", get("/v1/topics", "X: "+strings.Repeat("x", 100<<10)), 431, ""},
		{"too many headers", get("/v1/topics", strings.Repeat("X: y\r\n", 20_000)+"X: y"), 431, ""},
		{"header not UTF-8", get("/v1/topics", "X: \xff\xfe"), 200, ""},
	}
}

func hostileBodies() []hostile {
	const invalid = seb.CodeInvalidRequest
	nested := `{"records":[{"value_json":` + strings.Repeat("[", 40_000)
	return []hostile{
		{"two lengths", postHead + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc", 400, ""},
		{"the same length twice", postHead + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nab", 201, ""},
		{"negative length", postHead + "Content-Length: -1\r\n\r\nab", 400, ""},
		{"signed length", postHead + "Content-Length: +2\r\n\r\nab", 400, ""},
		{"length beyond 64 bits", postHead + "Content-Length: 99999999999999999999\r\n\r\nab", 400, ""},
		{"greatest length", postHead + "Content-Length: 9223372036854775807\r\n\r\nab", 413, seb.CodeRequestTooLarge},
		{"length and chunks", postHead + "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", 201, ""},
		{"chunks in chunks", postHead + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 501, ""},
		{"compressed chunks", postHead + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501, ""},
		{"greatest chunk", chunked("ffffffffffffffff\r\nab"), 408, codeRequestTimeout},
		{"chunk beyond 64 bits", chunked("fffffffffffffffff\r\nab"), 400, invalid},
		{"long chunk extension", chunked("2;" + strings.Repeat("x", 100_000) + "\r\nab\r\n0\r\n\r\n"), 400, invalid},
		{"many chunk extensions", chunked(strings.Repeat("1;"+strings.Repeat("x", 100)+"\r\na\r\n", 5000) + "0\r\n\r\n"), 400, invalid},
		{"trailers", chunked("2\r\nab\r\n0\r\nSeb-Key: k\r\n\r\n"), 201, ""},
		{"trailers too long", chunked("2\r\nab\r\n0\r\n" + strings.Repeat("X: y\r\n", 100_000) + "\r\n"), 400, invalid},
		{"unknown expectation", postHead + "Expect: 200-ok\r\nContent-Length: 2\r\n\r\nab", 417, ""},
		{"body of spaces", request("PUT", "/v1/topics/p", strings.Repeat(" ", 90_000)), 413, seb.CodeRequestTooLarge},
		{"nested body", request("PUT", "/v1/topics/p", strings.Repeat("[", 9000)), 400, invalid},
		{"nested record", request("POST", ordersPath, nested, "Content-Type: "+typeRecords), 400, invalid},
		{"more partitions than can be", request("PUT", "/v1/topics/p", `{"partitions":2147483648}`), 400, invalid},
		{"too many partitions", request("PUT", "/v1/topics/p", `{"partitions":2147483647}`), 400, seb.CodeTooManyPartitions},
		{"too many record headers", request("POST", ordersPath, "x", strings.Repeat("Seb-Header-A: b\r\n", 100)+"Seb-Header-A: b"), 400, seb.CodeTooManyHeaders},
	}
}

func hostileNumbers() []hostile {
	const invalid = seb.CodeInvalidRequest
	var cases []hostile
	for query, c := range map[string]struct {
		status int
		code   seb.Code
	}{
		"partition=99999999999999999999":                          {400, invalid},
		"partition=2147483648":                                    {400, invalid},
		"partition=2147483647":                                    {404, seb.CodePartitionNotFound},
		"partition=-1":                                            {400, invalid},
		"offset=9223372036854775807":                              {416, seb.CodeOffsetOutOfRange},
		"offset=9223372036854775808":                              {400, invalid},
		"offset=-9223372036854775807":                             {200, ""},
		"offset=-9223372036854775808":                             {400, invalid},
		"limit=9223372036854775807&max_bytes=9223372036854775807": {200, ""},
		"limit=9223372036854775808":                               {200, ""},
		"limit=-9223372036854775809":                              {400, invalid},
		"limit=0":                                                 {400, invalid},
		"max_bytes=-1":                                            {400, invalid},
		"wait=9999999h":                                           {400, invalid},
		"wait=1e99s":                                              {400, invalid},
		"offset=%00":                                              {400, invalid},
		"offset=%ff":                                              {400, invalid},
	} {
		cases = append(cases, hostile{query, get(ordersPath + "?" + query), c.status, c.code})
	}
	for _, offset := range []string{"-1", "18446744073709551616", "0x0", "%00"} {
		cases = append(cases, hostile{"record " + offset, get(ordersPath + "/" + offset), 400, invalid})
	}
	return append(cases, hostile{"last record", get(ordersPath + "/9223372036854775807"), 416, seb.CodeOffsetOutOfRange})
}

// Every request gets one answer, which says what is wrong. Afterwards no memory is held, and
// other requests are served.
func TestHostileRequestsAreAnswered(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.handler.slowLimit.stallMax = time.Second // how long the server waits for a body that never comes
	s.append("orders", "first")
	want := 1
	for _, cases := range [][]hostile{hostileNames(), hostileProtocols(), hostileBodies(), hostileNumbers()} {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) { s.wantHostile(t, c) })
			if c.status == http.StatusCreated {
				want++
			}
		}
	}
	if got := len(s.stored("orders", 0)); got != want {
		t.Errorf("%d records are stored, want %d", got, want)
	}
	s.get("/v1/topics/p").wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)
	s.wantNothingReserved()
}

func (s *server) wantHostile(t *testing.T, c hostile) {
	t.Helper()
	conn := s.dial("")
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		// The server may stop reading before the end.
		_, _ = io.WriteString(conn, c.request)
	}()
	a, closed := answerOn(t, conn)
	if c.code != "" {
		a.wantProblem(t, c.status, c.code)
	} else {
		a.want(t, c.status)
	}
	if a.StatusCode < 400 && closed && !strings.Contains(c.request, "HTTP/1.0") {
		t.Error("the connection is closed")
	}
	if !closed { // the connection can be used for another request
		if _, err := io.WriteString(conn, get("/livez")); err != nil {
			t.Fatal(err)
		}
		again, _ := answerOn(t, conn)
		again.want(t, http.StatusOK)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	<-sent
	s.get("/livez").want(t, http.StatusOK)
}

// Pipelined requests are answered in order, and the bytes after a refused body are not read
// as a request.
func TestPipelinedRequests(t *testing.T) {
	s := newServer(t, seb.Options{Limits: seb.Limits{RequestBytes: 10_000, RecordBytes: 1000}}, Options{})
	s.append("orders", "zero")
	append1, append2 := request("POST", ordersPath, "one"), request("POST", ordersPath, "two")
	large := request("POST", ordersPath, append1+strings.Repeat("x", 10_000))
	for name, c := range map[string]struct {
		sent string
		want []int
	}{
		"one after the other":    {append1 + get(ordersPath+"/0") + append2, []int{201, 200, 201, 200}},
		"after a refused body":   {get(ordersPath+"/0") + large + append1, []int{200, 413}},
		"after a broken request": {get(ordersPath+"/0") + "nonsense\r\n\r\n" + append1, []int{200, 400}},
		"inside chunks": {
			postHead + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(append1), append1),
			[]int{201, 200},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := bufio.NewReader(s.dial(c.sent + get("/livez", "Connection: close")))
			var got []int
			for {
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					break // the end, or the server has refused a broken request
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				got = append(got, resp.StatusCode)
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("answers are %v, want %v", got, c.want)
			}
		})
	}
	lines := strings.Count(append1, "\n") + 1
	if got := len(s.stored("orders", 0)); got != 3+lines {
		t.Errorf("%d records are stored, want %d: zero, one, two, and each line of what looked like a request", got, 3+lines)
	}
	s.wantNothingReserved()
}
