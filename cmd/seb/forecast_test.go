package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// A log whose state has taken half of its memory in three days: doctor, the greeting of serve, and its log say when
// appends will be refused.
func TestForecastOfTheStateIsTold(t *testing.T) {
	dir := t.TempDir()
	store, err := objstore.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	broker, err := seb.Open(t.Context(), store, seb.Options{WallClock: func() time.Time { return time.Now().Add(-3 * 24 * time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Close(); err != nil {
		t.Fatal(err)
	}
	if broker, err = seb.Open(t.Context(), store, seb.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"one", "two", "three", "four", "five", "six", "seven"} {
		if _, _, err := broker.CreateTopic(t.Context(), topic, seb.TopicOptions{Partitions: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	if err := broker.Close(); err != nil {
		t.Fatal(err)
	}

	const want = "; at the present rate, appends are refused in 2 days"
	p := serve(t, nil, "--store", dir, "--state-memory", "1MiB")
	p.stopped(t)
	if !strings.Contains(p.stdout.String(), want) {
		t.Errorf("serve says\n%s", p.stdout)
	}
	if !strings.Contains(p.stderr.String(), " days_left=2.") {
		t.Errorf("serve logs\n%s", p.stderr)
	}
	r := runSeb(t, nil, "doctor", "--store", dir, "--rounds", "1", "--racers", "2", "--samples", "1", "--state-memory", "1MiB")
	if !strings.Contains(r.out, want) {
		t.Errorf("doctor says\n%s%s", r.out, r.err)
	}
	r = runSeb(t, nil, "doctor", "--store", dir, "--rounds", "1", "--racers", "2", "--samples", "1", "--state-memory", "1MiB", "--output", "json")
	var found struct {
		State struct {
			DaysLeft float64 `json:"days_left"`
		}
	}
	if err := json.Unmarshal([]byte(r.out), &found); err != nil || found.State.DaysLeft < 1.5 || found.State.DaysLeft > 4.5 {
		t.Errorf("doctor finds %v days left, %v:\n%s", found.State.DaysLeft, err, r.out)
	}
}
