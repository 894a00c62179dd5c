package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// What to do after an unknown outcome relies on it: after AppendTimeout the broker holds no request
// that could still get into the log behind a record that a caller appends then.
func TestWritesAreAnsweredWithinTheTimeoutWhileTheStoreHangs(t *testing.T) {
	store := storetest.NewFaulty(objstore.NewMemory())
	opts := seb.Options{AppendTimeout: 2 * time.Second, Batching: seb.Immediate()}
	bubbleOn(t, store, opts, Options{}, 0, func(t *testing.T, s *server) {
		s.ownQueue(1)
		s.do("PUT", "/v1/topics/orders/consumers/c", nil).want(t, http.StatusCreated)
		token := s.received("mail", "")[0].Token
		tokens := fmt.Sprintf(`{"tokens":[%q]}`, token)
		before := s.stored("orders", 0)
		time.Sleep(2 * time.Second) // the last sync is older than StaleMax
		undo := store.On(objstore.VerbGet, "", hang)
		var wg sync.WaitGroup
		for _, x := range [][3]string{
			{"POST", "/v1/topics/orders/records", "y"},
			{"POST", "/v1/topics/orders/records?if_offset=99", "y"},
			{"POST", "/v1/topics/orders/records?partition=7", "y"},
			{"POST", "/v1/topics/new/records", "y"},
			{"POST", "/v1/commits", `{"appends":[{"topic":"orders","records":[{"value":"y"}]},{"topic":"newer","records":[{"value":"y"}]}]}`},
			{"POST", "/v1/topics/orders/consumers/c/commit", `{"offsets":{"0":1}}`},
			{"PUT", "/v1/topics/orders/consumers/d", ""},
			{"DELETE", "/v1/topics/orders/consumers/c", ""},
			{"POST", mailPath + "/ack", tokens},
			{"POST", mailPath + "/nack", tokens},
			{"PUT", queuesPath + "/other", "{}"},
			{"POST", mailPath + "/pause", ""},
			{"PUT", "/v1/topics/newest", "{}"},
			{"POST", "/v1/keys", `{"name":"k","scopes":["admin"]}`},
		} {
			wg.Go(func() {
				start := time.Now()
				a := s.do(x[0], x[1], strings.NewReader(x[2]))
				if took := time.Since(start); took > opts.AppendTimeout {
					t.Errorf("%s %s was answered with %d after %v; its timeout is %v", x[0], x[1], a.StatusCode, took, opts.AppendTimeout)
				}
				if a.StatusCode != http.StatusServiceUnavailable || outcomeOf(t, a) != seb.NotCommitted {
					t.Errorf("%s %s was answered with %d: %s", x[0], x[1], a.StatusCode, a.body)
				}
			})
		}
		wg.Wait()
		undo()
		time.Sleep(time.Minute)
		synctest.Wait()
		s.append("orders", "z")
		if got := s.stored("orders", 0); len(got) != len(before)+1 {
			t.Errorf("the topic has %q, and had %q before the outage", values(got), values(before))
		}
		if a := s.get("/v1/keys"); !strings.Contains(a.body, `"keys":[]`) {
			t.Errorf("keys: %s", a.body)
		}
	})
}

// The time in which a client sends its body is not the broker's.
func TestTimeoutDoesNotCountTheTimeOfTheBody(t *testing.T) {
	opts := seb.Options{AppendTimeout: 2 * time.Second, Batching: seb.Immediate()}
	bubble(t, opts, func(t *testing.T, s *server) {
		body, client := io.Pipe()
		go func() {
			for range 5 {
				time.Sleep(time.Second)
				_, _ = client.Write([]byte("x"))
			}
			_ = client.Close()
		}()
		s.do("POST", "/v1/topics/orders/records", body).want(t, http.StatusCreated)
	})
}
