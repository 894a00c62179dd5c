package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A broker that runs triggers is killed at any moment. Then each entity that signed up and did nothing within two seconds, by the
// log's time, has fired once, not before its time, and nobody else has.
func TestTriggersOfKilledBrokers(t *testing.T) {
	onStores(t, func(t *testing.T, env []string, store string) {
		args := []string{"--store", store, "--linger", "10ms", "--checkpoint-commits", "20"}
		broker := serve(t, env, args...)
		runsOn(t, env, "upgrade", "--store", store)
		post(t, broker.url+"/v1/events", `{"event":"opened","entity_id":"nobody"}`)
		request(t, http.MethodPut, broker.url+"/v1/triggers/drip", `{"from":["events"],"when":"signed_up THEN NOT used WITHIN 2s","to":"reminders"}`)
		entity := 0
		for range crashCycles(t, 6) {
			until := time.Now().Add(200*time.Millisecond + rand.N(3*time.Second))
			for time.Now().Before(until) {
				entity++
				post(t, broker.url+"/v1/events", fmt.Sprintf(`{"event":"signed_up","entity_id":"u%d"}`, entity))
				if used := rand.IntN(entity + 1); rand.IntN(2) == 0 {
					post(t, broker.url+"/v1/events", fmt.Sprintf(`{"event":"used","entity_id":"u%d"}`, max(entity-20, used)))
				}
				<-time.After(rand.N(20 * time.Millisecond))
			}
			<-time.After(rand.N(killDelayMax))
			broker.killed(t)
			broker = restart(t, broker, env, args...)
		}
		var want, got map[string]int
		for deadline := time.Now().Add(time.Minute); ; {
			post(t, broker.url+"/v1/events", `{"event":"opened","entity_id":"nobody"}`) // so that the log's time goes on
			want, got = wantReminders(t, broker.url), reminders(t, broker.url)
			if len(got) >= len(want) || time.Now().After(deadline) {
				break
			}
			<-time.After(100 * time.Millisecond)
		}
		for of := range want {
			if got[of] != 1 {
				t.Errorf("entity %s has fired %d times", of, got[of])
			}
		}
		for of := range got {
			if want[of] == 0 {
				t.Errorf("entity %s has fired, and should not have", of)
			}
		}
		t.Logf("%d of %d entities have fired", len(got), entity)
		broker.stopped(t)
	})
}

// logged is a record in the log.
type logged struct {
	Offset  int64           `json:"offset"`
	LogTime time.Time       `json:"log_time"`
	Value   json.RawMessage `json:"value_json"`
}

// allRecords returns all records of a topic, whose values are JSON.
func allRecords(t *testing.T, url, topic string) (records []logged) {
	t.Helper()
	for next := int64(0); ; {
		body := request(t, http.MethodGet, fmt.Sprintf("%s/v1/topics/%s/records?offset=%d&limit=1000&values=json", url, topic, next), "")
		if len(body) == 0 {
			return records
		}
		for dec := json.NewDecoder(bytes.NewReader(body)); dec.More(); {
			var r logged
			if err := dec.Decode(&r); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			records, next = append(records, r), r.Offset+1
		}
	}
}

// wantReminders computes from the log who has signed up, and has used nothing in the two seconds after that.
func wantReminders(t *testing.T, url string) map[string]int {
	t.Helper()
	signedUp, used := map[string]time.Time{}, map[string]time.Time{}
	var now time.Time
	for _, r := range allRecords(t, url, "events") {
		var e struct {
			Event  string `json:"event"`
			Entity string `json:"entity_id"`
		}
		if err := json.Unmarshal(r.Value, &e); err != nil {
			t.Fatal(err)
		}
		now = r.LogTime
		if e.Event == "signed_up" {
			signedUp[e.Entity] = r.LogTime
		}
		if at, signed := signedUp[e.Entity]; e.Event == "used" && signed && !r.LogTime.After(at.Add(2*time.Second)) {
			used[e.Entity] = r.LogTime
		}
	}
	want := map[string]int{}
	for of, at := range signedUp {
		if _, has := used[of]; !has && at.Add(2*time.Second).Before(now) {
			want[of] = 1
		}
	}
	return want
}

// reminders counts the firings of each entity, and checks that none was appended before it was due.
func reminders(t *testing.T, url string) map[string]int {
	t.Helper()
	got := map[string]int{}
	if !bytes.Contains(request(t, http.MethodGet, url+"/v1/topics", ""), []byte(`"reminders"`)) {
		return got
	}
	for _, r := range allRecords(t, url, "reminders") {
		var f struct {
			Entity string    `json:"entity"`
			Due    time.Time `json:"due"`
		}
		if err := json.Unmarshal(r.Value, &f); err != nil {
			t.Fatal(err)
		}
		got[f.Entity]++
		if r.LogTime.Before(f.Due) {
			t.Errorf("entity %s was due at %v, and has fired at %v", f.Entity, f.Due, r.LogTime)
		}
	}
	return got
}

func post(t *testing.T, url, body string) { t.Helper(); request(t, http.MethodPost, url, body) }

// request sends a request, which has to succeed, and returns the body of the answer.
func request(t *testing.T, method, url, body string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %s, %v", method, url, resp.Status, b, err)
	}
	return b
}
