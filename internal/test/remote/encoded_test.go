package remote_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/internal/test/kit"
)

// Records that are read in a form can be appended in that form, and are the same.
func TestEncodedRecordsAreCopied(t *testing.T) {
	b := open(t)
	c := newClient(t, client.Options{Servers: []string{serve(t, b)}})
	kit.MustAppend(t, b, "orders", "one", "", "three")
	f, err := c.FetchEncoded(t.Context(), "orders", 0, seb.At(1), seb.FetchOptions{}, client.Values, make([]byte, 0, 8))
	if err != nil {
		t.Fatal(err)
	}
	if f.First != 1 || f.Next != 3 || f.Start != 0 || f.End != 3 || f.TopicTag == "" {
		t.Errorf("%+v", f)
	}
	if _, err := c.AppendEncoded(t.Context(), "copy", client.Values, f.Body); err != nil {
		t.Fatal(err)
	}
	kit.WantValues(t, b, "copy", "", "three")
	if f, err = c.FetchEncoded(t.Context(), "orders", 0, seb.Earliest, seb.FetchOptions{Limit: 2}, client.Lines, nil); err != nil {
		t.Fatal(err)
	}
	var lines [][]byte
	for offset, line := range f.Each() {
		if offset != seb.Offset(len(lines)) || !bytes.HasPrefix(line, []byte(`{"partition":0,`)) {
			t.Errorf("%d: %s", offset, line)
		}
		lines = append(lines, line)
	}
	list := slices.Concat([]byte(`{"records":[`), []byte(`{"value":"a","key":"k"},{"value":"b"}`), []byte("]}"))
	if a, err := c.AppendEncoded(t.Context(), "list", client.List, list, seb.IfOffset(0), seb.ToPartition(0)); err != nil || a.Count != 2 || len(lines) != 2 {
		t.Errorf("%+v, %v, %d lines", a, err, len(lines))
	}
	kit.WantValues(t, b, "list", "a", "b")
}

// A topic with the name of a deleted topic has another tag.
func TestTagsTellTopicsApart(t *testing.T) {
	b := open(t)
	c := newClient(t, client.Options{Servers: []string{serve(t, b)}})
	kit.MustAppend(t, b, "orders", "a")
	topic, tag, err := c.TaggedTopic(t.Context(), "orders")
	if err != nil || topic.Name != "orders" || tag != b.TopicTag(topic.ID) {
		t.Fatalf("%+v, %q, %v", topic, tag, err)
	}
	if err := c.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	kit.MustAppend(t, b, "orders", "b")
	_, err = c.FetchEncoded(t.Context(), "orders", 0, seb.Earliest, seb.FetchOptions{TopicTag: tag}, client.Values, nil)
	kit.WantCode(t, err, seb.CodeTopicRecreated)
}

// A broker warns if a queue still names the deleted topic as its dead-letter topic.
func TestWarningsOfBrokersAreReported(t *testing.T) {
	b := open(t)
	var warnings []string
	c := newClient(t, client.Options{Servers: []string{serve(t, b)}, OnWarning: func(w string) { warnings = append(warnings, w) }})
	kit.MustAppend(t, b, "orders", "a")
	kit.MustAppend(t, b, "dead", "a")
	if _, _, err := c.Queue("orders", "mail").Set(t.Context(), seb.QueueUpdate{DeadLetterTopic: new("dead")}, seb.Earliest); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteTopic(t.Context(), "dead"); err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "queue mail of orders") {
		t.Errorf("%q", warnings)
	}
}

func TestOperatorsAskForTheBillAndPeersAndSignURLs(t *testing.T) {
	b := open(t)
	_, secret, err := b.CreateKey(t.Context(), seb.KeyOptions{Name: "ops", Scopes: seb.ScopeAdmin})
	if err != nil {
		t.Fatal(err)
	}
	url := serve(t, b)
	c := newClient(t, client.Options{Servers: []string{url}, APIKey: secret})
	if err := c.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if text, err := c.Bill(t.Context()); err != nil || !bytes.Contains(text, []byte(`"so_far"`)) {
		t.Errorf("%s, %v", text, err)
	}
	if peers, err := c.Peers(t.Context()); err != nil || len(peers) != 0 {
		t.Errorf("a broker alone has the peers %v, %v", peers, err)
	}
	signed, err := c.SignedURL("orders", 3, seb.Last(2), time.Now().Add(time.Hour))
	if err != nil || !strings.HasPrefix(signed, url+"/v1/topics/orders/records?offset=-2&partition=3&token=") {
		t.Errorf("%s, %v", signed, err)
	}
}
