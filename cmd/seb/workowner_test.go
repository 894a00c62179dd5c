package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// handedOut is an answer to a receive.
type handedOut struct {
	Messages []struct {
		Token   string
		Attempt int
		Value   string
	}
}

// The owner of a queue is killed while workers wait through another broker. That broker takes the queue
// over and hands out fresh records at once. It takes the answers of workers for records of the old owner,
// and hands out the other records of the old owner after one lease.
func TestKilledOwnerIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	args := []string{"--store", store, "--linger", "1ms", "--advertise", "http://127.0.0.1:0"}
	owner, other := serve(t, nil, args...), serve(t, nil, args...)
	const queue = "/v1/topics/orders/queues/mail"
	const lease = 3 * time.Second
	ask := func(to *process, method, path, body string, want int) answer {
		t.Helper()
		a := <-begin(t, method, to.url+path, body)
		if a.err != nil || a.status != want {
			t.Fatalf("%s %s: %d %s, %v", method, path, a.status, a.body, a.err)
		}
		return a
	}
	got := func(a answer) (h handedOut) {
		t.Helper()
		if err := json.Unmarshal([]byte(a.body), &h); a.err != nil || a.status != http.StatusOK || err != nil {
			t.Fatalf("%d %s: %v, %v", a.status, a.body, a.err, err)
		}
		return h
	}
	ask(owner, "PUT", "/v1/topics/orders", "", 201)
	ask(owner, "PUT", queue, fmt.Sprintf(`{"lease":%q,"backoff":"0s"}`, lease), 201)
	for _, value := range []string{"done late", "left"} {
		ask(owner, "POST", "/v1/topics/orders/records", value, 201)
	}
	out := got(ask(owner, "POST", queue+"/receive", `{"max":2,"wait":"10s"}`, 200))
	if len(out.Messages) != 2 {
		t.Fatalf("handed out are %+v", out)
	}
	waiting := begin(t, "POST", other.url+queue+"/receive", `{"wait":"20s"}`)
	underWay(t, owner, 1)
	killed := time.Now()
	owner.killed(t)
	// For the new owner, records that were appended before the takeover may be with workers already.
	for ticker := time.NewTicker(5 * time.Millisecond); !strings.Contains(ask(other, "GET", queue, "", 200).body, `"epoch":2`); {
		<-ticker.C
	}
	took := time.Since(killed)
	t.Logf("its place was taken after %v", took)
	if took > lease/2 {
		t.Errorf("its place was taken after %v", took)
	}
	ask(other, "POST", "/v1/topics/orders/records", "fresh", 201)
	if h := got(<-waiting); len(h.Messages) != 1 || h.Messages[0].Value != "fresh" || h.Messages[0].Attempt != 1 {
		t.Errorf("who waited got %+v", h)
	}
	ask(other, "POST", queue+"/ack", fmt.Sprintf(`{"tokens":[%q]}`, out.Messages[0].Token), 200)
	h := got(ask(other, "POST", queue+"/receive", `{"max":10,"wait":"20s"}`, 200))
	if took := time.Since(killed); len(h.Messages) == 0 || h.Messages[0].Value != "left" || h.Messages[0].Attempt != 2 || took < lease || took > lease+2*time.Second {
		t.Errorf("after %v came %+v", took, h)
	}
	ask(other, "POST", queue+"/ack", fmt.Sprintf(`{"tokens":[%q]}`, out.Messages[1].Token), 409)
}
