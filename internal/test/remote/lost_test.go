package remote_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/internal/test/kit"
)

// line is a record of partition 0 in JSON.
func line(offset int) string {
	return fmt.Sprintf(`{"partition":0,"offset":%d,"timestamp":"2026-01-31T12:00:00Z","value":"v"}`, offset)
}

// A proxy that loses a part of a body keeps the headers. If the client went on at Seb-Next-Offset, nobody would learn of
// the lost records.
func TestReadThatLacksRecordsFails(t *testing.T) {
	all := line(0) + "\n" + line(1) + "\n" + line(2) + "\n"
	for _, test := range []struct {
		name, body string
		from       seb.Position
	}{
		{"nothing", "", seb.At(0)},
		{"nothing, from earliest", "", seb.Earliest},
		{"nothing, the last three", "", seb.Last(3)},
		{"the last record alone", line(2) + "\n", seb.At(0)},
		{"the last record alone, from earliest", line(2) + "\n", seb.Earliest},
		{"the last record alone of two", line(2) + "\n", seb.Last(2)},
		{"the first records alone", line(0) + "\n" + line(1) + "\n", seb.At(0)},
		{"a gap", line(0) + "\n" + line(2) + "\n", seb.At(0)},
		{"a record twice", line(0) + "\n" + all, seb.At(0)},
		{"another order", line(1) + "\n" + line(0) + "\n" + line(2) + "\n", seb.At(0)},
		{"records before the offset", all, seb.At(1)},
		{"another partition", strings.ReplaceAll(all, `"partition":0`, `"partition":7`), seb.At(0)},
		{"one line of another partition", line(0) + "\n" + strings.ReplaceAll(line(1), `"partition":0`, `"partition":7`) + "\n" + line(2) + "\n", seb.At(0)},
	} {
		c := newClient(t, client.Options{Servers: []string{reads(t, test.body, "3", "3")}})
		if f, err := c.Fetch(t.Context(), "orders", 0, test.from, seb.FetchOptions{}); seb.CodeOf(err) != client.CodeUnexpectedResponse || len(f.Records) > 0 {
			t.Errorf("%s: %d records, %v", test.name, len(f.Records), err)
		}
		if _, err := c.FetchEncoded(t.Context(), "orders", 0, test.from, seb.FetchOptions{}, client.Lines, nil); seb.CodeOf(err) != client.CodeUnexpectedResponse {
			t.Errorf("%s: %v", test.name, err)
		}
		for r, err := range c.Read(t.Context(), "orders", 0, test.from) {
			if err == nil {
				t.Errorf("%s: Read returns %d", test.name, r.Offset)
			}
		}
	}
	// A read without records, although there are some, would be repeated at once and without end.
	c := newClient(t, client.Options{Servers: []string{reads(t, "", "0", "3")}})
	for _, err := range c.Read(t.Context(), "orders", 0, seb.At(0)) {
		kit.WantCode(t, err, client.CodeUnexpectedResponse)
	}
}

// reads returns the URL of a server that answers each read with the same body.
func reads(t *testing.T, body, next, end string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range map[string]string{
			"Seb-Request-Id": "0123", "Seb-Topic-Id": "01234567.1", "Seb-Next-Offset": next, "Seb-Start-Offset": "0", "Seb-End-Offset": end,
			"Content-Type": "application/x-ndjson",
		} {
			w.Header().Set(name, value)
		}
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// An event that is lost, comes twice, or belongs to another partition ends a follower.
func TestStreamThatLacksRecordsFails(t *testing.T) {
	for name, offsets := range map[string][]int{"a gap": {0, 2}, "twice": {0, 0}, "the first is lost": {1}} {
		wantStreamFails(t, name, offsets, line)
	}
	for _, partition := range []string{"-1", "1024", "2000000000"} {
		wantStreamFails(t, "partition "+partition, []int{0}, func(offset int) string {
			return strings.Replace(line(offset), `"partition":0`, `"partition":`+partition, 1)
		})
	}
}

func wantStreamFails(t *testing.T, name string, offsets []int, line func(int) string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Seb-Request-Id", "0123")
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "id: 01234567.1:0\n\n")
		for _, offset := range offsets {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", line(offset))
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	c := newClient(t, client.Options{Servers: []string{server.URL}})
	f, err := c.NewFollower(t.Context(), "orders", seb.AllPartitions, seb.Earliest)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; err == nil && n < len(offsets); n++ {
		_, err = f.Next(t.Context(), seb.FetchOptions{Wait: 5 * time.Second, Limit: 1})
	}
	if seb.CodeOf(err) != client.CodeUnexpectedResponse {
		t.Errorf("%s: %v", name, err)
	}
	_ = c.Close()
}
