package main

import (
	"strings"
	"testing"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/state"
)

func TestDumpKeepsSecretsOfPushToItself(t *testing.T) {
	push := &commitlog.QueuePush{
		URL: "https://example.com/hooks?token=abc", Secret: "whsec_AAAA whsec_BBBB", Stopped: "HTTP 410 Gone", TimeoutMS: 30_000, InFlight: 64,
		Headers: []commitlog.PushHeader{{Name: "Authorization", Value: "Bearer xyz"}},
	}
	items := []commitlog.Item{
		&commitlog.TopicCreated{ID: 1, Partitions: 1, Name: "orders"},
		&commitlog.QueueSet{ID: 1, Topic: 1, Name: "mail", Config: commitlog.QueueConfig{LeaseMS: 30_000, Attempts: 5}},
		&commitlog.QueuePushSet{Queue: 1}, &commitlog.QueuePushSet{Queue: 1, Push: push},
	}
	s := state.New()
	c := &commitlog.Commit{Seq: 1, Items: items}
	if err := s.Apply(c); err != nil {
		t.Fatal(err)
	}
	checkpoint := &commitlog.Checkpoint{Seq: 1, Body: s.View().Encode()}
	for name, body := range map[string][]byte{
		"log/00000000000000000001":        commitlog.EncodeCommit(c),
		"checkpoint/00000000000000000001": append(commitlog.EncodeCheckpoint(checkpoint), checkpoint.Body...),
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
