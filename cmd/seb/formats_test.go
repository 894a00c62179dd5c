package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb/client"
)

// awkward are records as consume writes them, without offsets: no key, an empty key, keys and values that
// are not text, line ends, repeated headers.
var awkward = []string{
	`{"partition":0,"timestamp":"2026-01-31T12:00:00.250Z","value":""}`,
	`{"partition":0,"timestamp":"2026-01-31T12:00:00.251Z","key":"","value":"a\nb\r\n"}`,
	`{"partition":1,"timestamp":"2025-01-31T12:00:00.000Z","key_base64":"AP+A","value_base64":"/wD+Cg=="}`,
	`{"partition":1,"timestamp":"2025-01-31T12:00:00.000Z","key":"k\u0000","value":"é \u0001 \"quoted\" <&>",` +
		`"headers":{"a":["1","2"],"b":""},"headers_base64":{"c":"gA=="}}`,
	`{"partition":2,"timestamp":"2026-01-31T12:00:00.252Z","key":"a\tb","value":"tab\tand\u2028separator"}`,
}

// keysAndValues returns the keys and values of JSON lines, in base64: what the binary format keeps.
func keysAndValues(t *testing.T, lines string) (all []string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		key, value, err := parseKeyed([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%v %s=%s", key == nil, base64.StdEncoding.EncodeToString(key), base64.StdEncoding.EncodeToString(value)))
	}
	return all
}

func TestWhatConsumeWritesProduceReadsBackToEqualRecords(t *testing.T) {
	b := serve(t, nil, "--store", "memory:", "--linger", "1ms")
	try := func(stdin string, args ...string) string {
		t.Helper()
		r := runSeb(t, strings.NewReader(stdin), append(args, "--server", b.url)...)
		r.want(t, exitOK)
		return r.out
	}
	for _, topic := range []string{"source", "copy"} {
		try("", "topic", "create", topic, "--partitions", "3")
	}
	try(strings.Join(awkward, "\n"), "produce", "source", "--format", "json")
	source := try("", "consume", "source", "--format", "json")
	var want strings.Builder
	at := map[string]int{}
	for _, line := range awkward {
		partition := line[:len(`{"partition":0,`)]
		fmt.Fprintf(&want, "%s\"offset\":%d,%s\n", partition, at[partition], line[len(partition):])
		at[partition]++
	}
	if diff := cmp.Diff(decoded(t, want.String()), decoded(t, withoutLogTimes(source))); diff != "" {
		t.Errorf("source: %s", diff)
	}

	try(source, "produce", "copy", "--format", "json")
	if got := try("", "consume", "copy", "--format", "json"); withoutLogTimes(got) != withoutLogTimes(source) || got == source {
		t.Errorf("the copy is another, or has the log times of the source: %s", cmp.Diff(source, got))
	}
	try(try("", "consume", "source", "--format", "binary"), "produce", "binary", "--format", "binary")
	got := try("", "consume", "binary", "--format", "json")
	if diff := cmp.Diff(keysAndValues(t, source), keysAndValues(t, got)); diff != "" {
		t.Errorf("binary: %s", diff)
	}
	try(source, "produce", "single", "--format", "json", "--repartition")
	got = try("", "consume", "single", "--format", "json")
	if diff := cmp.Diff(keysAndValues(t, source), keysAndValues(t, got)); diff != "" || strings.Count(got, `"partition":0`) != len(awkward) {
		t.Errorf("in one partition: %s", diff)
	}
	picture := "\x89PNG\r\n\x1a\n\x00"
	try(picture, "produce", "pictures", "--format", "raw")
	try("", "produce", "pictures", "--format", "raw")
	if got := try("", "consume", "pictures", "--format", "raw"); got != picture {
		t.Errorf("raw: %q", got)
	}
	if got := try("", "consume", "pictures", "--from", "-1", "--format", "json"); !strings.Contains(got, `"value":""`) {
		t.Errorf("an empty input is no empty record: %s", got)
	}
	lines := "k1\tv1\nno key\n\tempty key\nk2\tv\twith tab\n"
	try(lines, "produce", "keyed", "--key-separator", `\t`)
	if got := try("", "consume", "keyed", "--key-separator", "\t"); got != lines {
		t.Errorf("with keys: %q", got)
	}
	if got, want := try("", "consume", "keyed"), "v1\nno key\nempty key\nv\twith tab\n"; got != want {
		t.Errorf("without keys: %q", got)
	}
}

var logTimes = regexp.MustCompile(`,"log_time":"[^"]*"`)

// withoutLogTimes returns JSON lines of records without their log times: a copy has its own.
func withoutLogTimes(lines string) string { return logTimes.ReplaceAllString(lines, "") }

// decoded returns the values of JSON lines.
func decoded(t *testing.T, lines string) (all []any) {
	t.Helper()
	for line := range strings.Lines(lines) {
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, v)
	}
	return all
}

func TestProduceSaysWhereItsInputIsWrong(t *testing.T) {
	sized := string(appendSized(appendSized(nil, nil), []byte("abc")))
	for _, test := range []struct{ name, args, in, message string }{
		{"no JSON", "--format json", "{\"value\":\"a\"}\nhello\n", "line 2: it is not a JSON object"},
		{"no object", "--format json", "[]\n", "line 1: it is not a JSON object"},
		{"unknown field", "--format json", `{"valeu":"a"}`, `line 1: unknown field "valeu"`},
		{"two objects", "--format json", `{"value":"a"} {"value":"b"}`, "line 1: more text follows its JSON object"},
		{"cut off JSON", "--format json", `{"value":"a"`, "line 1: unexpected EOF"},
		{"cut off record", "--format binary", sized + sized[:9], "record 2: the input ends within a record"},
		{"text", "--format binary", "hello, world", "record 1: its size is 1819043176 bytes; is the input in the binary format?"},
		{"no value", "--format binary", "\xff\xff\xff\xff\xff\xff\xff\xff", "record 1: it has no value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			url := newBrokerThatAnswers(t, []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = fmt.Fprint(w, appended(1))
			}})
			args := append([]string{"produce", "orders", "--server", url}, strings.Fields(test.args)...)
			runSeb(t, strings.NewReader(test.in), args...).want(t, exitFailure, test.message)
		})
	}
}

// In every format, produce counts acknowledged and skipped records, and repeats requests, in the same way.
func TestProduceGoesOnInEveryFormat(t *testing.T) {
	const count = 5
	var binary, lines, keyed bytes.Buffer
	for i := range count {
		binary.Write(appendSized(appendSized(nil, []byte("k")), fmt.Append(nil, i)))
		fmt.Fprintf(&lines, "{\"key\":\"k\",\"value\":\"%d\"}\n", i)
		fmt.Fprintf(&keyed, "k=%d\n", i)
	}
	for _, test := range []struct{ args, in, unit string }{
		{"--format binary", binary.String(), "record"},
		{"--format json", lines.String(), "line"},
		{"--key-separator =", keyed.String(), "line"},
	} {
		t.Run(test.args, func(t *testing.T) {
			var got []string
			answer := func(status int, outcome string) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) {
					var body struct {
						Records []struct{ Key, Value string }
					}
					if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Header.Get("Content-Type") != string(client.List) {
						t.Errorf("%v in %s", err, r.Header.Get("Content-Type"))
					}
					var values string
					for _, rec := range body.Records {
						values += rec.Key + rec.Value + " "
					}
					got = append(got, values)
					if outcome != "" {
						problem(status, "store_unavailable", outcome)(w, r)
						return
					}
					_, _ = fmt.Fprint(w, appended(len(body.Records)))
				}
			}
			answers := []http.HandlerFunc{answer(201, ""), answer(503, "not_committed"), answer(201, ""), answer(503, "unknown")}
			url := newBrokerThatAnswers(t, answers)
			args := append([]string{"produce", "orders", "--server", url, "--batch-records", "1", "--no-idempotent"}, strings.Fields(test.args)...)
			runSeb(t, strings.NewReader(test.in), append(args, "--skip", "1")...).want(t, exitUnknown,
				test.unit+"s 4 to 4", "3 "+test.unit+"s are acknowledged", "--skip 3", "--skip 4")
			if want := []string{"k1 ", "k2 ", "k2 ", "k3 "}; !slices.Equal(got, want) {
				t.Errorf("requests: %q, not %q", got, want)
			}
		})
	}
}

func TestFormatFlagsThatDoNotGoTogether(t *testing.T) {
	for _, args := range []string{
		"produce t --format json --key-separator =", "consume t --format raw --key-separator =",
		"consume t --partition -1", "consume t --partition some", "produce t --partition -1",
		"consume t --format xml", "consume t --from -1h", "consume t --from 2026-02-30",
	} {
		runSeb(t, nil, strings.Fields(args)...).want(t, exitUsage)
	}
	runSeb(t, nil, "consume", "t", "--key-separator", "a\nb").want(t, exitUsage, "LF")
}

// consume --from TIME sends the time with the first request only, and offsets after that.
func TestConsumeFromATime(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for from, want := range map[string]string{
		"2026-01-31T13:00:00+01:00": "2026-01-31T12:00:00.000Z",
		"2026-01-31":                "2026-01-31T00:00:00.000Z",
		"2026-01-31T12:00:00.25Z":   "2026-01-31T12:00:00.250Z",
		"1h":                        "2026-01-31T11:00:00.000Z",
		"1h30m":                     "2026-01-31T10:30:00.000Z",
	} {
		c := consumeCmd{Partition: "all", From: from}
		c.Format = formatLine
		got, err := c.check(now)
		if err != nil || got.String() != want {
			t.Errorf("--from %s asks for %v, %v", from, got, err)
		}
	}

	f := &fakeLog{records: []string{"a", "b", "c"}, perFetch: 1}
	f.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 1 {
			return false
		}
		if q := r.URL.Query(); q.Get("time") == "" || q.Has("offset") {
			t.Errorf("it asks for %v", q)
		}
		writeFetched(w, 1, 2, 3, []string{"b"})
		return true
	}
	r := runSeb(t, nil, "consume", "orders", "--server", newFakeLog(t, f), "--from", "1h")
	r.want(t, exitOK)
	if r.out != "b\nc\n" {
		t.Errorf("records: %q", r.out)
	}
}

// If a broker refuses a byte of a request, produce names the line of the input, since the user never sees
// the request.
func TestProduceNamesTheLineAndTheByteThatTheBrokerRefused(t *testing.T) {
	broker := serve(t, nil, "--store", "memory:", "--linger", "1ms")
	for _, test := range []struct{ line, message string }{
		{`{"key":7,"value":"a"}`, "line 3: key must be a string, not a number, at byte 8"},
		{`{"partition":0, "offset":41 ,"value":"a","key":7}`, "line 3: key must be a string, not a number, at byte 48"},
		{"{\"offset\":41,\"value\":\"\xff\"}", "line 3: the JSON is not UTF-8 at byte 23"},
	} {
		in := `{"offset":39,"value":"a"}` + "\n" + `{"value":"b"}` + "\n" + test.line + "\n" + `{"value":"c"}`
		runSeb(t, strings.NewReader(in), "produce", "orders", "--format", "json", "--server", broker.url).
			want(t, exitRefused, test.message)
	}
}
