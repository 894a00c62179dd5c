package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/simple-event-broker/seb"
)

// The JSON of answers.
type (
	topicJSON struct {
		Name       string
		Partitions []partitionJSON
		Config     configJSON
	}
	consumerJSON struct {
		Topic, Name, Created string
		LastActivity         string `json:"last_activity"`
		Lag                  int64
		Positions            []positionJSON
	}
	positionJSON struct {
		Partition   int32
		Offset      seb.Offset
		StartOffset seb.Offset `json:"start_offset"`
		EndOffset   seb.Offset `json:"end_offset"`
		Lag, Missed int64
	}
)

// paged reads a list to its end, limit items at a time. The field known identifies an item: paged returns its
// values for each page.
func (s *server) paged(path, field, known string, limit int, header ...string) (pages []string) {
	s.t.Helper()
	after := ""
	for {
		a := s.get(fmt.Sprintf("%s?limit=%d%s", path, limit, after), header...)
		a.want(s.t, http.StatusOK)
		var answer map[string]json.RawMessage
		a.json(s.t, &answer)
		var items []map[string]any
		if err := json.Unmarshal(answer[field], &items); err != nil {
			s.t.Fatalf("%v: %s", err, a.body)
		}
		var names []string
		for _, item := range items {
			names = append(names, fmt.Sprint(item[known]))
		}
		pages = append(pages, strings.Join(names, " "))
		next := string(answer["next"])
		if next == "null" {
			return pages
		}
		after = "&after=" + strings.Trim(next, `"`)
	}
}

func TestListsArePaged(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	for _, name := range []string{"a", "d", "b", "c", "e"} {
		s.do("PUT", "/v1/topics/"+name, nil).want(t, http.StatusCreated)
		s.do("PUT", "/v1/topics/a/consumers/"+name, nil).want(t, http.StatusCreated)
		s.do("PUT", "/v1/topics/a/queues/"+name, nil).want(t, http.StatusCreated)
	}
	_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
	for i := range 4 {
		newKey(t, s.broker, fmt.Sprint("k", i), seb.ScopeRead)
	}
	for _, list := range []struct{ path, field, known, items string }{
		{"/v1/topics", "topics", "name", "a b c d e"},
		{"/v1/topics/a/consumers", "consumers", "name", "a b c d e"},
		{"/v1/topics/a/queues", "queues", "name", "a b c d e"},
		{"/v1/keys", "keys", "id", "1 2 3 4 5"},
	} {
		all := strings.Fields(list.items)
		for limit := 1; limit <= 6; limit++ {
			var want []string
			for page := range slices.Chunk(all, limit) {
				want = append(want, strings.Join(page, " "))
			}
			if got := s.paged(list.path, list.field, list.known, limit, bearer(ops)...); !slices.Equal(got, want) {
				t.Errorf("%s, %d at a time: pages %q, want %q", list.path, limit, got, want)
			}
		}
		for _, query := range []string{"limit=0", "limit=1001", "limit=x", "offset=1"} {
			s.get(list.path+"?"+query, bearer(ops)...).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
		}
	}
	s.get("/v1/keys?after=ops", bearer(ops)...).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	s.wantNothingReserved()
}

// The item after which a page begins may have been deleted.
func TestPagesContinueAfterWhatWasDeleted(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	for _, name := range []string{"a", "b", "c"} {
		s.do("PUT", "/v1/topics/"+name, nil).want(t, http.StatusCreated)
	}
	s.do("DELETE", "/v1/topics/b", nil).want(t, http.StatusNoContent)
	if a := s.get("/v1/topics?after=b"); !strings.HasPrefix(a.body, `{"topics":[{"name":"c",`) {
		t.Errorf("behind a topic that is gone: %s", a.body)
	}
}

// A page shows no topic to which the key has no access, not even as the value for the next page.
func TestPagesShowOnlyWhatTheKeyIsFor(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	for i := range 40 {
		s.do("PUT", fmt.Sprintf("/v1/topics/%s%02d", []string{"mine", "other"}[i%2], i), nil).want(t, http.StatusCreated)
	}
	newKey(t, s.broker, "ops", seb.ScopeAdmin)
	_, mine := newKey(t, s.broker, "mine", seb.ScopeRead, "mine0*", "other39")
	_, none := newKey(t, s.broker, "none", seb.ScopeRead, "none")
	if got := s.paged("/v1/topics", "topics", "name", 4, bearer(mine)...); !slices.Equal(got, []string{"mine00 mine02 mine04 mine06", "mine08 other39"}) {
		t.Errorf("pages %q", got)
	}
	if a := s.get("/v1/topics", bearer(none)...); a.body != `{"topics":[],"next":null}`+"\n" {
		t.Errorf("a key for no topic sees %s", a.body)
	}
}

// A page of topics with many partitions ends before it has limit topics.
func TestPagesAreBoundedInBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("100,000 partitions, and one request at a time")
	}
	s := newServer(t, seb.Options{Limits: seb.Limits{Partitions: 20_000}}, Options{})
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		s.do("PUT", "/v1/topics/"+name, strings.NewReader(`{"partitions":20000}`)).want(t, http.StatusCreated)
	}
	a := s.get("/v1/topics")
	var page struct {
		Topics []topicJSON
		Next   string
	}
	a.json(t, &page)
	if n := len(page.Topics); n == 5 || page.Next != page.Topics[n-1].Name || len(a.body) < pageBytes || len(a.body) > pageBytes+len(a.body)/n {
		t.Errorf("a page has %d topics in %d bytes; the next begins behind %q", n, len(a.body), page.Next)
	}
	if got := s.paged("/v1/topics", "topics", "name", 1000); strings.Join(got, " ") != "a b c d e" {
		t.Errorf("pages %q", got)
	}
	s.wantNothingReserved()
}

// While a client reads a list slowly, the memory of the current item is reserved in its share.
func TestItemOfAListIsOnTheAccountOfItsReader(t *testing.T) {
	const partitions = 4000
	bubble(t, seb.Options{Limits: seb.Limits{Partitions: partitions}}, func(t *testing.T, s *server) {
		s.createOrders(partitions)
		s.do("PUT", consumersPath+"/billing", nil).want(t, http.StatusCreated)
		for path, size := range map[string]int64{"/v1/topics": seb.PartitionBytes, consumersPath: seb.ConsumerPositionBytes} {
			conn := s.dial("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
			synctest.Wait() // the client reads nothing
			if used, _ := s.broker.ShareBytes(seb.ShareAnswers); used < partitions*size {
				t.Errorf("%s: its reader holds %d bytes of the share, want %d at least", path, used, partitions*size)
			}
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		s.wantNothingReserved()
	})
}
