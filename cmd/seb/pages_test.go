package main

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/httpapi"
	"github.com/simple-event-broker/seb/objstore"
)

// A list that takes several answers is complete.
func TestListsAreFollowedToTheirEnd(t *testing.T) {
	const items = 2100 // two full answers and a part of one
	b, err := seb.Open(t.Context(), objstore.NewMemory(), seb.Options{Batching: seb.Immediate(), Limits: seb.Limits{Keys: items}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(nil)
	server.Config = httpapi.NewServer(httpapi.New(b, httpapi.Options{}), nil)
	server.Start()
	t.Cleanup(func() {
		server.Close()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	_, secret, err := b.CreateKey(t.Context(), seb.KeyOptions{Name: "ops", Scopes: seb.ScopeAdmin})
	if err != nil {
		t.Fatal(err)
	}
	for i := range items - 1 {
		if _, _, err := b.CreateKey(t.Context(), seb.KeyOptions{Name: fmt.Sprint("k", i), Scopes: seb.ScopeRead}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range items {
		if _, _, err := b.CreateTopic(t.Context(), fmt.Sprint("t", i), seb.TopicOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Consumer("t0", fmt.Sprint("c", i)).Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Queue("t0", fmt.Sprint("q", i)).Set(t.Context(), seb.QueueUpdate{}, seb.Earliest); err != nil {
			t.Fatal(err)
		}
	}
	flag := serverFlag{Server: server.URL, APIKey: secret}
	for name, run := range map[string]func(std streams) error{
		"topic list": func(std streams) error { return (&topicListCmd{serverFlag: flag}).Run(t.Context(), std) },
		"key list": func(std streams) error {
			return (&keyListCmd{keyringFlag: keyringFlag{serverFlag: flag}}).Run(t.Context(), std)
		},
		"consumer list": func(std streams) error {
			return (&consumerListCmd{serverFlag: flag, Topic: "t0"}).Run(t.Context(), std)
		},
		"queue list": func(std streams) error { return (&queueListCmd{serverFlag: flag, Topic: "t0"}).Run(t.Context(), std) },
	} {
		var out strings.Builder
		if err := run(streams{out: &out}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if lines := strings.Count(out.String(), "\n"); lines != items+1 {
			t.Errorf("%s shows %d lines, want a heading and %d", name, lines, items)
		}
	}
}
