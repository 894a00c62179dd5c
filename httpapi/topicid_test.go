package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// All answers about a topic have the same id. Another topic of the same name has a different
// id.
func TestAnswersNameTheTopicThatTheyAreOf(t *testing.T) {
	s := newServerWith(t, 2)
	id := s.get("/v1/topics/orders").Header.Get(topicIDHeader)
	if id == "" {
		t.Fatal("a topic has no id")
	}
	for _, accept := range []string{typeNDJSON, typeJSON, typeBatch} {
		s.get(ordersPath+"?topic_id="+id, "Accept", accept).wantHeader(t, topicIDHeader, id)
		s.get(ordersPath+"?offset=latest", "Accept", accept).wantHeader(t, topicIDHeader, id)
	}
	one := s.get(ordersPath + "/1")
	one.wantHeader(t, topicIDHeader, id)
	again := s.get(ordersPath+"/1", "If-None-Match", one.Header.Get("ETag"))
	again.want(t, http.StatusNotModified)
	again.wantHeader(t, topicIDHeader, id)
	s.do("HEAD", ordersPath, nil).wantHeader(t, topicIDHeader, id)
	s.do("PUT", "/v1/topics/orders", nil).wantHeader(t, topicIDHeader, id)
	s.do("PATCH", "/v1/topics/orders", strings.NewReader(`{"partitions":2}`)).wantHeader(t, topicIDHeader, id)
	f := s.follow("")
	event := f.begin()
	if got := f.resp.Header.Get(topicIDHeader); got != id || !strings.HasPrefix(event, id+":") {
		t.Errorf("a stream's id is %q, its events' are like %q, the topic's is %q", got, event, id)
	}

	s.do("DELETE", "/v1/topics/orders", nil).want(t, http.StatusNoContent)
	s.get(ordersPath+"?topic_id="+id).wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)
	s.append("orders", "new")
	if now := s.get(ordersPath).Header.Get(topicIDHeader); now == id || now == "" {
		t.Errorf("the id of another topic is %q, as was that of the first", now)
	}
	for _, query := range []string{"", "&offset=1", "&offset=2", "&offset=latest", "&partition=9"} {
		p := s.get(ordersPath+"?topic_id="+id+query).wantProblem(t, http.StatusGone, seb.CodeTopicRecreated)
		if p.Outcome != "" || p.Hint == "" {
			t.Errorf("%s: %+v", query, p)
		}
	}
	for _, malformed := range []string{"0", "abc", id + ".1", strings.Repeat("x", 4000), "%00"} {
		s.get(ordersPath+"?topic_id="+malformed).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	}
	for _, wrong := range []string{id + "1", "00000000" + id[8:]} {
		s.get(ordersPath+"?topic_id="+wrong).wantProblem(t, http.StatusGone, seb.CodeTopicRecreated)
	}
	s.get(ordersPath+"?topic_id=").want(t, http.StatusOK) // as the command seb sends it before it knows the id
	s.get(ordersPath+"?topic_id="+id, "Accept", typeEvents).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
}

// A read waits for a record of one topic. It ends even if the sync that shows the deletion also shows another
// topic with the same name.
func TestReadThatWaitsEndsWithItsTopic(t *testing.T) {
	memory := objstore.NewMemory()
	bubbleOn(t, memory, seb.Options{}, Options{}, 0, func(t *testing.T, s *server) {
		s.append("orders", "a")
		other, err := seb.Open(t.Context(), memory, seb.Options{Batching: seb.Immediate()})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		got := make(chan answer)
		go func() { got <- s.get(ordersPath + "?offset=latest&wait=1m") }()
		synctest.Wait()
		if err := other.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Append(t.Context(), "orders", []seb.Record{{Value: []byte("b")}, {Value: []byte("c")}}); err != nil {
			t.Fatal(err)
		}
		a := <-got
		if a.StatusCode == http.StatusNotFound { // the read was woken before the second commit was applied
			a.wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)
			return
		}
		a.wantProblem(t, http.StatusGone, seb.CodeTopicRecreated)
	})
}
