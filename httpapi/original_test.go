package httpapi

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/simple-event-broker/seb"
)

// exchange sends a request over a new connection, unchanged, and returns the answer.
func (s *server) exchange(request string) answer {
	s.t.Helper()
	conn, err := s.connect()
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()                  // the answer was read, or the test has failed
	go func() { _, _ = io.WriteString(conn, request) }() // fails if the server stops reading a refused body
	sent, err := http.ReadRequest(bufio.NewReader(strings.NewReader(request)))
	if err != nil {
		s.t.Fatalf("%.80q: %v", request, err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), sent)
	if err != nil {
		s.t.Fatalf("%.80q: read answer: %v", request, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%.80q: read answer: %v", request, err)
	}
	a := answer{resp, string(body)}
	s.wantDescribed(a)
	return a
}

// originalGet returns a GET as the original's client sends it. If accept is "", it has no Accept header.
func originalGet(path, accept string) string {
	if accept != "" {
		accept = "Accept: " + accept + "\r\n"
	}
	return "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1:51313\r\nUser-Agent: Go-http-client/1.1\r\n" +
		accept + "Authorization: Bearer api-key\r\nAccept-Encoding: gzip\r\n\r\n"
}

const boundary = "3c8ae5f0d4f1b6a7c2e9"

// originalPost returns an append as the original's client sends it.
func originalPost(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: 127.0.0.1:51313\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: %d\r\n"+
		"Authorization: Bearer api-key\r\nContent-Type: multipart/form-data; boundary=%s\r\nAccept-Encoding: gzip\r\n\r\n%s",
		path, len(body), boundary, body)
}

// field returns one field of a form, with the boundary before it.
func field(name, value string) string {
	return "--" + boundary + "\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
}

const formEnd = "--" + boundary + "--\r\n"

func formBody(sizes, records string) string {
	return field("sizes", sizes) + field("records", records) + formEnd
}

func (a answer) wantText(t testing.TB, status int, text string) {
	t.Helper()
	a.want(t, status)
	a.wantHeader(t, "Content-Type", "text/plain; charset=utf-8")
	if !strings.Contains(a.body, text) {
		t.Errorf("status %d says %q, want %q", status, a.body, text)
	}
}

// form returns the fields of an answer in their order, as name=value. The form
// must be complete.
func (a answer) form(t testing.TB) []string {
	t.Helper()
	mediaType, params, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil || mediaType != typeForm {
		t.Fatalf("Content-Type is %q", a.Header.Get("Content-Type"))
	}
	fields := []string{}
	for parts := multipart.NewReader(strings.NewReader(a.body), params["boundary"]); ; {
		part, err := parts.NextPart()
		if err == io.EOF { //nolint:errorlint // a wrapped io.EOF means that the form is cut off
			return fields
		}
		if err != nil {
			t.Fatalf("the form is not whole: %v: %q", err, a.body)
		}
		value, err := io.ReadAll(part)
		if err != nil {
			t.Fatal(err)
		}
		fields = append(fields, part.FormName()+"="+string(value))
	}
}

func (a answer) wantForm(t testing.TB, status int, fields ...string) {
	t.Helper()
	a.want(t, status)
	if got := a.form(t); !cmp.Equal(got, append([]string{}, fields...)) {
		t.Errorf("fields are %q, want %q", got, fields)
	}
}

func TestOriginalAppend(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	a := s.exchange(originalPost("/records?topic-name=orders", formBody("[3,0,7]", "one--"+boundary[:5])))
	a.want(t, http.StatusCreated)
	a.wantHeader(t, "Content-Type", "application/json")
	if a.body != `{"offsets":[0,1,2]}` {
		t.Errorf("answer is %s", a.body)
	}
	a = s.exchange(originalPost("/records?topic-name=orders", formBody("[ 4 ]", "\r\n\r\n")))
	if a.want(t, http.StatusCreated); a.body != `{"offsets":[3]}` {
		t.Errorf("answer is %s", a.body)
	}
	want := []string{"one", "", "--" + boundary[:5], "\r\n\r\n"}
	if got := values(s.stored("orders", 0)); !cmp.Equal(got, want) {
		t.Errorf("stored %q, want %q", got, want)
	}
	s.wantNothingReserved()
}

func TestOriginalAppendGoesToPartition0(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.do("PUT", "/v1/topics/orders", strings.NewReader(`{"partitions":4}`)).want(t, http.StatusCreated)
	for i := range 5 {
		s.exchange(originalPost("/records?topic-name=orders", formBody("[1]", fmt.Sprint(i)))).want(t, http.StatusCreated)
	}
	if got := values(s.stored("orders", 0)); !cmp.Equal(got, []string{"0", "1", "2", "3", "4"}) {
		t.Errorf("partition 0 has %q", got)
	}
}

func TestOriginalAppendOfManyRecords(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	const count = 20_000 // the answer's offsets take several chunks
	var sizes, records, offsets strings.Builder
	for i := range count {
		value := fmt.Sprint(i)
		fmt.Fprintf(&sizes, ",%d", len(value))
		records.WriteString(value)
		fmt.Fprintf(&offsets, ",%d", i)
	}
	a := s.exchange(originalPost("/records?topic-name=orders", formBody("["+sizes.String()[1:]+"]", records.String())))
	if a.want(t, http.StatusCreated); a.body != `{"offsets":[`+offsets.String()[1:]+"]}" {
		t.Errorf("answer is %.200s…", a.body)
	}
	got := s.exchange(originalGet("/records?topic-name=orders&offset=0&max-records=20000", typeForm))
	got.wantForm(t, http.StatusOK, "sizes=["+sizes.String()[1:]+"]", "records="+records.String())
	s.wantNothingReserved()
}

// The original's client takes every status but 401, 404 and 413 for success, so refusals must
// have 401.
func TestOriginalClientsLearnThatTheyAreNotLetIn(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
	_, reader := newKey(t, s.broker, "reader", seb.ScopeRead)
	post := func(key string) answer {
		return s.exchange(strings.Replace(originalPost("/records?topic-name=orders", formBody("[1]", "a")), "api-key", key, 1))
	}
	post(ops).want(t, http.StatusCreated)
	post(reader).want(t, http.StatusUnauthorized)
	for range 2 * attemptsBurst {
		post("seb_gone").want(t, http.StatusUnauthorized)
	}
}

func TestOriginalAppendRefuses(t *testing.T) {
	s := newServer(t, seb.Options{Limits: seb.Limits{RequestBytes: 64 << 10, RecordBytes: 1 << 10}}, Options{})
	good := formBody("[1]", "a")
	for _, test := range []struct {
		name, request string
		status        int
		text          string
	}{
		{"no topic", originalPost("/records", good), 400, "topic-name"},
		{"no form", strings.Replace(originalPost("/records?topic-name=t", good), typeForm, "text/plain", 1), 400, typeForm},
		{"no boundary", strings.Replace(originalPost("/records?topic-name=t", good), "; boundary="+boundary, "", 1), 400, "boundary"},
		{"another boundary", strings.Replace(originalPost("/records?topic-name=t", good), "boundary="+boundary, "boundary=other", 1), 400, "cut off"},
		{"empty body", originalPost("/records?topic-name=t", ""), 400, "cut off"},
		{"no fields", originalPost("/records?topic-name=t", formEnd), 400, `ends before the field "sizes"`},
		{"no records", originalPost("/records?topic-name=t", field("sizes", "[1]")+formEnd), 400, `ends before the field "records"`},
		{"other order", originalPost("/records?topic-name=t", field("records", "a")+field("sizes", "[1]")+formEnd), 400, `field "records" where "sizes"`},
		{"sizes twice", originalPost("/records?topic-name=t", field("sizes", "[1]")+good), 400, `field "sizes" where "records"`},
		{"a third field", originalPost("/records?topic-name=t", field("sizes", "[1]")+field("records", "a")+field("more", "b")+formEnd), 400, `third field, "more"`},
		{"cut off at the end", originalPost("/records?topic-name=t", strings.TrimSuffix(good, formEnd)), 400, "cut off"},
		{"cut off in a value", originalPost("/records?topic-name=t", good[:len(good)-len(formEnd)-2]), 400, "cut off"},
		{"cut off in a header", originalPost("/records?topic-name=t", field("sizes", "[1]")+"--"+boundary+"\r\nContent-Dis"), 400, "cut off"},
		{"long header", originalPost("/records?topic-name=t", "--"+boundary+"\r\nX: "+strings.Repeat("x", 32<<10)+"\r\n\r\n"), 400, "headers take more"},
		{"long preamble", originalPost("/records?topic-name=t", strings.Repeat("x", 32<<10)+"\r\n"+good), 400, "malformed"},
		{"no list", originalPost("/records?topic-name=t", formBody(`{"a":1}`, "a")), 400, "must be a list"},
		{"null for sizes", originalPost("/records?topic-name=t", formBody("null", "")), 400, "must be a list"},
		{"null for a size", originalPost("/records?topic-name=t", formBody("[null]", "")), 400, "null"},
		{"empty list", originalPost("/records?topic-name=t", formBody("[]", "")), 400, "no records"},
		{"more after the list", originalPost("/records?topic-name=t", formBody("[1][1]", "a")), 400, "more text follows"},
		{"negative size", originalPost("/records?topic-name=t", formBody("[-1,2]", "a")), 400, "0 to 4294967295"},
		{"fraction", originalPost("/records?topic-name=t", formBody("[1.0]", "a")), 400, "0 to 4294967295"},
		{"size past 32 bits", originalPost("/records?topic-name=t", formBody("[4294967296]", "a")), 400, "0 to 4294967295"},
		{"sizes below", originalPost("/records?topic-name=t", formBody("[1,1]", "abc")), 400, "add up to 2 bytes"},
		{"sizes above", originalPost("/records?topic-name=t", formBody("[4294967295,4294967295]", "abc")), 400, "add up to 8589934590 bytes"},
		{"unusable name", originalPost("/records?topic-name=a%2Fb", good), 400, "not a valid topic name"},
		{"record too large", originalPost("/records?topic-name=t", formBody("[1025]", strings.Repeat("x", 1025))), 413, "1024"},
		{"body too large", originalPost("/records?topic-name=t", formBody("[65536]", strings.Repeat("x", 65536))), 413, "65536"},
		{"too many records", originalPost("/records?topic-name=t", formBody("[0"+strings.Repeat(",0", 1000)+"]", "")), 413, "records"},
		{"PUT", strings.Replace(originalPost("/records?topic-name=t", good), "POST", "PUT", 1), 405, "GET, HEAD, POST"},
		{"a single record", strings.Replace(originalPost("/record?topic-name=t", good), "/records", "/record", 1), 405, "GET, HEAD"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := s.exchange(test.request)
			a.wantText(t, test.status, test.text)
			if test.status != 405 && !strings.Contains(a.body, "not_committed") {
				t.Errorf("the outcome is missing: %q", a.body)
			}
		})
	}
	s.wantNothingReserved()
	s.get("/v1/topics/t").wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)
}

// A request that ends before its body commits nothing.
func TestOriginalAppendCutOffCommitsNothing(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	whole := originalPost("/records?topic-name=orders", formBody("[3,3]", "onetwo"))
	conn, err := s.connect()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, whole[:len(whole)-4]); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	s.stop()
	if _, err := s.broker.Topic(t.Context(), "orders"); seb.CodeOf(err) != seb.CodeTopicNotFound {
		t.Errorf("the topic was created: %v", err)
	}
}

func TestOriginalAppendNeedsATopicWhereNoneAreCreated(t *testing.T) {
	s := newServer(t, seb.Options{NoAutoCreate: true}, Options{})
	a := s.exchange(originalPost("/records?topic-name=orders", formBody("[1]", "a")))
	if a.wantText(t, http.StatusNotFound, ""); a.body != "topic not found" {
		t.Errorf("says %q", a.body)
	}
}

// The fields are read as they were written, whatever bytes they have.
func FuzzForm(f *testing.F) {
	f.Add([]byte(formBody("[3,0,2]", "oneab")), boundary)
	f.Add([]byte(field("sizes", "[1]")+strings.Replace(field("records", "=41"), "\r\n\r\n", "\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n", 1)+formEnd), boundary)
	f.Add([]byte("--b\nContent-Disposition: form-data; name=sizes\n\n[0]\n--b \nContent-Disposition: form-data; name=records\n\n\n--b--"), "b")
	h := newServer(f, seb.Options{}, Options{}).handler
	f.Fuzz(func(t *testing.T, body []byte, boundary string) {
		original := bytes.Clone(body)
		sizes, data, err := splitForm(body, boundary)
		if err != nil {
			if seb.CodeOf(err) != seb.CodeInvalidRequest {
				t.Fatalf("an error without code: %v", err)
			}
			return
		}
		parts := multipart.NewReader(bytes.NewReader(original), boundary)
		for _, field := range [][]byte{sizes, data} {
			part, err := parts.NextPart()
			if err != nil {
				t.Fatal(err)
			}
			if want, err := io.ReadAll(part); err != nil || !bytes.Equal(field, want) {
				t.Fatalf("field is %q, want %q, %v", field, want, err)
			}
		}
		l, err := h.sizedRecords(t.Context(), sizes, data)
		if err != nil {
			if seb.CodeOf(err) == "" {
				t.Fatalf("an error without code: %v", err)
			}
			return
		}
		defer l.free()
		if got := strings.Join(values(l.list), ""); got != string(data) || len(l.list) == 0 {
			t.Fatalf("%q became %q", data, got)
		}
	})
}
