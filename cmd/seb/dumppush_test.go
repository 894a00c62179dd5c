package main

import (
	"strings"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

func TestDumpKeepsSecretsOfPushToItself(t *testing.T) {
	push := &format.QueuePush{
		URL: "https://example.com/hooks?token=abc", Secret: "whsec_AAAA whsec_BBBB", Stopped: "HTTP 410 Gone", TimeoutMS: 30_000, InFlight: 64,
		Headers: []format.PushHeader{{Name: "Authorization", Value: "Bearer xyz"}},
	}
	items := []format.Entry{
		&format.TopicCreated{ID: 1, Partitions: 1, Name: "orders"},
		&format.QueueSet{ID: 1, Topic: 1, Name: "mail", Config: format.QueueConfig{LeaseMS: 30_000, Attempts: 5}},
		&format.QueuePushSet{Queue: 1}, &format.QueuePushSet{Queue: 1, Push: push},
	}
	s := state.New()
	c := &format.Commit{Seq: 1, Entries: items}
	if err := s.Apply(c); err != nil {
		t.Fatal(err)
	}
	checkpoint := &format.Checkpoint{Seq: 1, Body: s.View().Encode()}
	for name, body := range map[string][]byte{
		"log/00000000000000000001":        format.EncodeCommit(c),
		"checkpoint/00000000000000000001": append(format.EncodeCheckpoint(checkpoint), checkpoint.Body...),
	} {
		var out strings.Builder
		d := &dumper{printer: printer{w: &out}, records: true}
		if err := d.dump(body, name); err != nil || d.Bad > 0 {
			t.Errorf("%s: %d faults, %v\n%s", name, d.Bad, err, &out)
		}
		const want = `pushed to "https://example.com/hooks?...", at most 64 at a time, 30s each, 2 secrets, header "Authorization", stopped: "HTTP 410 Gone"`
		if !strings.Contains(out.String(), want) || strings.HasPrefix(name, "log") && !strings.Contains(out.String(), "queue 1 is pushed nowhere") {
			t.Errorf("%s: it does not show %q:\n%s", name, want, &out)
		}
		for _, secret := range []string{"AAAA", "BBBB", "xyz", "abc"} {
			if strings.Contains(out.String(), secret) {
				t.Errorf("%s: it shows %q", name, secret)
			}
		}
	}
}
