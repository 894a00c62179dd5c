package change_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// entries are the entries that a change returns.
type entries []format.Entry

// cases are changes of the state that logState returns, with their entries or the text of their refusal.
type cases []struct {
	name   string
	change interface {
		Apply(d *state.Draft) ([]format.Entry, error)
	}
	want entries
	err  string
}

func (cs cases) run(t *testing.T) {
	t.Helper()
	for _, c := range cs {
		t.Run(c.name, func(t *testing.T) {
			d := logState(t).Draft(logTime)
			for range 2 { // the second time as after a lost race
				got, err := c.change.Apply(d)
				if text := textOf(err); text != c.err {
					t.Errorf("the error is %q, want %q", text, c.err)
				}
				if diff := cmp.Diff([]format.Entry(c.want), got); diff != "" {
					t.Error(diff)
				}
			}
			for _, e := range c.want {
				if err := d.Take(e); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func queueConfig() format.QueueConfig {
	return format.QueueConfig{LeaseMS: 1000, Attempts: 2, BackoffMaxMS: 2000, DeadLetterTopic: "gone"}
}

func target(url string) *format.QueuePush {
	return &format.QueuePush{URL: url, Secret: secret, TimeoutMS: 30_000, InFlight: 64, Headers: []format.PushHeader{{Name: "A", Value: "1"}}}
}

const secret = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

const logTime = 1_000_000

// logState returns the state of a small log. Topic t has 10 records in partition 0, from offset 2 on, and
// none in partition 1; topic dead has none. Consumer c of t is at offset 4. In queue q of t, offset 3 is
// done, and the first attempts of offsets 4 and 5 failed. Offset 5 is with a worker for the second and
// last attempt. Offset 6 is a dead letter. Queue pushed of t has a push target, and one attempt for each
// record.
func logState(t *testing.T) *state.State {
	t.Helper()
	s := state.New()
	err := s.Apply(&format.Commit{Seq: 1, Time: logTime, Entries: []format.Entry{
		&format.TopicCreated{ID: 1, Partitions: 2, Name: "t"},
		&format.TopicConfigured{Topic: 1, Config: format.TopicConfig{RetentionMS: 60_000}},
		&format.Batch{Topic: 1, Count: 12, Size: 1},
		&format.StartMoved{Topic: 1, Start: 2},
		&format.TopicCreated{ID: 2, Partitions: 1, Name: "dead"},
		&format.KeyCreated{ID: 1, Scopes: 1, Name: "ops", Topics: []string{"*"}},
		&format.ConsumerCreated{ID: 1, Topic: 1, Name: "c"},
		&format.PositionsMoved{Consumer: 1, Positions: []format.Position{{Offset: 4}}},
		&format.QueueSet{ID: 1, Topic: 1, Name: "q", Config: queueConfig()},
		&format.QueueOwned{Queue: 1, Epoch: 1, Windows: []format.Offset{12, 0}},
		&format.RecordsDone{Queue: 1, Runs: []format.Run{{Offset: 3, Count: 1, Number: 1}}},
		&format.RecordPutBack{Queue: 1, Attempt: format.Attempt{Offset: 4, Number: 1}, NotBefore: logTime},
		&format.RecordPutBack{Queue: 1, Attempt: format.Attempt{Offset: 5, Number: 1}, NotBefore: logTime},
		&format.RecordsAttempted{Queue: 1, Epoch: 1, Attempts: []format.Attempt{{Offset: 5, Number: 2}}},
		&format.RecordPutBack{Queue: 1, Attempt: format.Attempt{Offset: 6, Number: 1}, NotBefore: logTime, DeadLetter: true, Reason: "why"},
		&format.QueueSet{ID: 2, Topic: 1, Name: "pushed", Config: format.QueueConfig{LeaseMS: 1000, Attempts: 1}},
		&format.QueueOwned{Queue: 2, Epoch: 1, Windows: []format.Offset{12, 0}},
		&format.QueuePushSet{Queue: 2, Push: target("https://a.example/")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTopics(t *testing.T) {
	const keep = "invalid_request: topic \"t\" has 2 partitions; their number can't be reduced to 1; " +
		"keep the number, or copy the records to a new topic that has fewer partitions"
	config := format.TopicConfig{RetentionBytes: 5}
	cases{
		{"create", change.CreateTopic{Name: "u", Partitions: 3, Config: config, TopicsMax: 3}, entries{
			&format.TopicCreated{ID: 3, Partitions: 3, Name: "u"}, &format.TopicConfigured{Topic: 3, Config: config},
		}, ""},
		{"create again", change.CreateTopic{Name: "t", Partitions: 2, Config: format.TopicConfig{RetentionMS: 60_000}}, nil, ""},
		{"create again with other partitions", change.CreateTopic{Name: "t", Partitions: 1}, nil,
			`topic_exists: topic "t" exists with 2 partitions`},
		{"create again with another config", change.CreateTopic{Name: "t", Partitions: 2, Config: config}, nil,
			`topic_exists: topic "t" exists with 2 partitions, a retention of 1m0s`},
		{"create again with another retention", change.CreateTopic{Name: "dead", Partitions: 1, Config: format.TopicConfig{RetentionMS: 1}}, nil,
			`topic_exists: topic "dead" exists with one partition, no retention limit`},
		{"create too many", change.CreateTopic{Name: "u", Partitions: 1, TopicsMax: 2}, nil, "too_many_topics: there are 2 topics, which is the maximum"},
		{"delete", change.DeleteTopic{Name: "t"}, entries{&format.TopicDeleted{ID: 1}}, ""},
		{"delete nothing", change.DeleteTopic{Name: "u"}, nil, `topic_not_found: there is no topic "u"`},
		{"update", change.UpdateTopic{Name: "t", Partitions: 3, RetentionBytes: new(int64(5))}, entries{
			&format.PartitionsAdded{Topic: 1, Partitions: 3},
			&format.TopicConfigured{Topic: 1, Config: format.TopicConfig{RetentionMS: 60_000, RetentionBytes: 5}},
		}, ""},
		{"update to the same", change.UpdateTopic{Name: "t", Partitions: 2, RetentionMS: new(int64(60_000))}, nil, ""},
		{"update to fewer partitions", change.UpdateTopic{Name: "t", Partitions: 1}, nil, keep},
		{"update nothing", change.UpdateTopic{Name: "u", Partitions: 1}, nil, `topic_not_found: there is no topic "u"`},
		{"delete records", change.DeleteRecords{Topic: "t", Before: 12}, entries{&format.StartMoved{Topic: 1, Start: 12}}, ""},
		{"delete deleted records", change.DeleteRecords{Topic: "t", Before: 2}, nil, ""},
		{"delete records to come", change.DeleteRecords{Topic: "t", Before: 13}, nil,
			`offset_out_of_range: partition 0 of topic "t" holds offsets 2 to 11, and 12 comes next: 13 is outside; ` +
				"give the first offset to keep: 2 keeps all records, 12 keeps none"},
		{"delete records of no partition", change.DeleteRecords{Topic: "t", Partition: 2}, nil,
			`partition_not_found: topic "t" has no partition 2, only 0 to 1`},
	}.run(t)
}

func TestKeys(t *testing.T) {
	key := format.KeyCreated{Scopes: 1, Name: "new", Topics: []string{"t"}}
	created := key
	created.ID = 2
	cases{
		{"create", change.CreateKey{Key: key, KeysMax: 2}, entries{&created}, ""},
		{"create another of that name", change.CreateKey{Key: format.KeyCreated{Name: "ops"}, KeysMax: 2}, nil,
			`key_exists: API key "ops" already exists, with id 1; choose another name, or revoke that key first`},
		{"create too many", change.CreateKey{Key: key, KeysMax: 1}, nil,
			"too_many_keys: there are 1 API keys, which is the maximum; revoke keys that are no longer needed"},
		{"revoke", &change.RevokeKey{ID: 1}, entries{&format.KeyRevoked{ID: 1}}, ""},
		{"revoke nothing", &change.RevokeKey{ID: 2}, nil,
			"key_not_found: there is no API key 2; it was revoked or never created; list the keys to see which exist"},
	}.run(t)

	x := &change.RevokeKey{ID: 1}
	if _, err := x.Apply(logState(t).Draft(logTime)); err != nil || x.Key.Name != "ops" {
		t.Errorf("revoked %+v, %v", x.Key, err)
	}
	x.ID = 2
	if _, err := x.Apply(logState(t).Draft(logTime)); err == nil || x.Key.ID != 0 {
		t.Errorf("revoked %+v", x.Key)
	}
}

func TestFirstKeyIsForAdmin(t *testing.T) {
	x := change.CreateKey{Key: format.KeyCreated{Scopes: 1, Name: "new", Topics: []string{"t"}}, KeysMax: 1}
	_, err := x.Apply(state.New().Draft(logTime))
	const want = "invalid_request: the first API key must have the scope admin, for all topics; " +
		"once a key exists, every request needs one, even to create another key: create an admin key first"
	if textOf(err) != want {
		t.Error(err)
	}
	x.AdminForAll = true
	if got, err := x.Apply(state.New().Draft(logTime)); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestSessions(t *testing.T) {
	cases{
		{"name", change.NameSession{Session: format.SessionKey{1}}, entries{&format.SessionNamed{Session: format.SessionKey{1}}}, ""},
	}.run(t)
}

func TestConsumers(t *testing.T) {
	setting := func(name string, most int) change.ConsumerSetting {
		return change.ConsumerSetting{ConsumerName: change.ConsumerName{Topic: "t", Consumer: name}, ConsumersMax: most}
	}
	move := func(x change.MoveConsumer) *change.MoveConsumer {
		x.ConsumerName = change.ConsumerName{Topic: "t", Consumer: "c"}
		return &x
	}
	at := func(offsets ...format.Offset) (ps []format.Position) {
		for p, offset := range offsets {
			ps = append(ps, format.Position{Partition: format.Partition(p), Offset: offset})
		}
		return ps
	}
	moved := func(offsets ...format.Offset) entries {
		return entries{&format.PositionsMoved{Consumer: 1, Positions: at(offsets...)}}
	}
	created := func(offsets ...format.Offset) entries {
		return entries{&format.ConsumerCreated{ID: 2, Topic: 1, Name: "new"}, &format.PositionsMoved{Consumer: 2, Positions: at(offsets...)}}
	}
	const outside = `offset_out_of_range: partition 0 of topic "t" holds offsets 2 to 11, and 12 comes next: `
	cases{
		{"create", change.CreateConsumer{ConsumerSetting: setting("new", 2)}, created(2, 0), ""},
		{"create again", change.CreateConsumer{ConsumerSetting: setting("c", 0)}, nil, ""},
		{"create too many", change.CreateConsumer{ConsumerSetting: setting("new", 1)}, nil, "too_many_consumers: there are 1 consumers, which is the maximum"},
		{"create in no topic", change.CreateConsumer{}, nil, `topic_not_found: there is no topic ""`},
		{"delete", change.DeleteConsumer{ConsumerName: setting("c", 0).ConsumerName}, entries{&format.ConsumerDeleted{ID: 1}}, ""},
		{"delete nothing", change.DeleteConsumer{ConsumerName: setting("new", 0).ConsumerName}, nil,
			`consumer_not_found: topic "t" has no consumer "new"`},
		{"delete in no topic", change.DeleteConsumer{ConsumerName: change.ConsumerName{Topic: "u"}}, nil, `topic_not_found: there is no topic "u"`},

		{"reset to the start", change.ResetConsumer{ConsumerSetting: setting("c", 0)}, moved(2, 0), ""},
		{"reset to the end", change.ResetConsumer{ConsumerSetting: setting("new", 2), From: change.Position{FromEnd: true}}, created(12, 0), ""},
		{"reset before the end", change.ResetConsumer{ConsumerSetting: setting("c", 0), From: change.Position{Offset: -3, FromEnd: true}}, moved(9, 0), ""},
		{"reset far before the end", change.ResetConsumer{ConsumerSetting: setting("c", 0), From: change.Position{Offset: -30, FromEnd: true}}, moved(2, 0), ""},
		{"reset behind the end", change.ResetConsumer{ConsumerSetting: setting("c", 0), From: change.Position{Offset: 13}}, nil,
			outside + "13 is outside; use earliest, latest, or an offset from 2 to 12"},
		{"reset to an offset", change.ResetConsumer{ConsumerSetting: setting("c", 0), From: change.Position{Offset: 5, Exact: true}}, nil,
			"invalid_request: can't begin at offset 5 in each of 2 partitions; name the partitions and their offsets"},
		{"reset to a time", change.ResetConsumer{ConsumerSetting: setting("c", 0), TopicID: 1, Next: []format.Offset{7}}, moved(7, 0), ""},
		{"reset to a time in another topic", change.ResetConsumer{ConsumerSetting: setting("c", 0), TopicID: 2, Next: []format.Offset{7}}, nil,
			`topic_not_found: topic "t" was deleted`},
		{"reset to offsets", change.ResetConsumerTo{ConsumerSetting: setting("c", 0), Positions: at(3)}, moved(3), ""},
		{"create at offsets", change.ResetConsumerTo{ConsumerSetting: setting("new", 2), Positions: at(3)}, created(3, 0), ""},
		{"create at offsets of no partition", change.ResetConsumerTo{ConsumerSetting: setting("new", 2), Positions: at(3, 0, 0)}, nil,
			`partition_not_found: topic "t" has no partition 2, only 0 to 1`},
		{"reset to deleted offsets", change.ResetConsumerTo{ConsumerSetting: setting("c", 0), Positions: at(1)}, nil,
			outside + "1 is outside; use earliest, latest, or an offset from 2 to 12"},

		{"move", move(change.MoveConsumer{IfVersion: "1.1", Expect: at(4), To: at(1)}), moved(1), ""},
		{"move another version", move(change.MoveConsumer{IfVersion: "1.2", To: at(5)}), nil,
			`position_conflict: consumer "c" of topic "t" has version 1.1, not 1.2: another commit or reset has moved it; ` +
				"read the consumer's version again; perhaps another reader uses the same consumer"},
		{"move from elsewhere", move(change.MoveConsumer{Expect: at(5), To: at(5)}), nil,
			`position_conflict: consumer "c" of topic "t" is at offset 4 of partition 0, not at 5: another commit or reset has moved it; ` +
				"go on from the consumer's position; perhaps another reader uses the same consumer"},
		{"move from no partition", move(change.MoveConsumer{Expect: at(4, 0, 0), To: at(5)}), nil,
			`partition_not_found: topic "t" has no partition 2, only 0 to 1`},
		{"move in no partition", move(change.MoveConsumer{To: at(5, 0, 0)}), nil, `partition_not_found: topic "t" has no partition 2, only 0 to 1`},
		{"move behind the end", move(change.MoveConsumer{To: at(13)}), nil,
			outside + "13 is outside; commit the offset of the next record to read, which is one after the last record that is done"},
	}.run(t)

	x := move(change.MoveConsumer{To: at(5)})
	if _, err := x.Apply(logState(t).Draft(logTime)); err != nil || x.Version != "1.2" {
		t.Errorf("version %s, %v", x.Version, err)
	}
}

func TestQueues(t *testing.T) {
	set := func(name string, x change.SetQueue) *change.SetQueue {
		x.QueueName = change.QueueName{Topic: "t", Queue: name}
		x.Defaults = change.QueueConfig{Lease: time.Second, MaxAttempts: 2, BackoffMax: 2 * time.Second, Order: change.OrderNone}
		return &x
	}
	entry := func(id format.QueueID, name string, with func(c *format.QueueConfig)) *format.QueueSet {
		e := &format.QueueSet{ID: id, Topic: 1, Name: name, Config: queueConfig()}
		with(&e.Config)
		return e
	}
	fresh := entry(3, "new", func(c *format.QueueConfig) { c.DeadLetterTopic = "" })
	inDead := set("new", change.SetQueue{Create: true, QueuesMax: 3, From: change.Position{Offset: 1, Exact: true}})
	inDead.Topic = "dead"
	cases{
		{"create", set("new", change.SetQueue{Create: true, QueuesMax: 3}), entries{fresh, &format.QueuePurged{Queue: 3, Before: 2}}, ""},
		{"create at the end", set("new", change.SetQueue{Create: true, QueuesMax: 3, From: change.Position{FromEnd: true}}),
			entries{fresh, &format.QueuePurged{Queue: 3, Before: 12}}, ""},
		{"create at an offset", set("new", change.SetQueue{Create: true, QueuesMax: 3, From: change.Position{Offset: 5, Exact: true}}), nil,
			"invalid_request: can't begin at offset 5 in each of 2 partitions; begin at earliest or latest"},
		{"create behind the end", inDead, nil, `offset_out_of_range: partition 0 of topic "dead" holds no records; its next record gets offset 0: 1 is outside; ` +
			"use earliest, latest or 0, which all mean the next record of an empty partition"},
		{"create new", set("new", change.SetQueue{Create: true, New: true, QueuesMax: 3}), entries{fresh, &format.QueuePurged{Queue: 3, Before: 2}}, ""},
		{"create what exists", set("q", change.SetQueue{Create: true, New: true, QueuesMax: 3}), nil, `queue_exists: queue "q" of topic "t" exists`},
		{"create too many", set("new", change.SetQueue{Create: true, QueuesMax: 2}), nil, "too_many_queues: there are 2 queues, which is the maximum"},
		{"create without leave", set("new", change.SetQueue{}), nil, `queue_not_found: topic "t" has no queue "new"`},
		{"create in no topic", &change.SetQueue{Create: true}, nil, `topic_not_found: there is no topic ""`},
		{"change nothing", set("q", change.SetQueue{Update: change.QueueUpdate{Lease: new(time.Second), Order: new("none")}}), nil, ""},
		{"pause", set("q", change.SetQueue{Update: change.QueueUpdate{Paused: new(true)}}),
			entries{entry(1, "q", func(c *format.QueueConfig) { c.Paused = true })}, ""},
		{"backoff", set("q", change.SetQueue{Update: change.QueueUpdate{BackoffMin: new(3 * time.Second)}}),
			entries{entry(1, "q", func(c *format.QueueConfig) { c.BackoffMinMS, c.BackoffMaxMS = 3000, 3000 })}, ""},
		{"all values", set("q", change.SetQueue{Update: change.QueueUpdate{
			Lease: new(5 * time.Second), MaxAttempts: new(7), BackoffMin: new(time.Millisecond), BackoffMax: new(time.Minute), DeadLetterTopic: new("dead"),
		}}), entries{entry(1, "q", func(c *format.QueueConfig) {
			*c = format.QueueConfig{LeaseMS: 5000, Attempts: 7, BackoffMinMS: 1, BackoffMaxMS: 60_000, DeadLetterTopic: "dead"}
		})}, ""},
		{"short lease", set("q", change.SetQueue{Update: change.QueueUpdate{Lease: new(time.Millisecond)}}), nil,
			"invalid_request: lease is 1ms; it must be 1s to 12h, in whole milliseconds"},
		{"no attempts", set("q", change.SetQueue{Update: change.QueueUpdate{MaxAttempts: new(0)}}), nil,
			"invalid_request: max_attempts is 0; it must be 1 to 1000"},
		{"long backoff", set("q", change.SetQueue{Update: change.QueueUpdate{BackoffMax: new(25 * time.Hour)}}), nil,
			"invalid_request: backoff is 0s to 25h0m0s; each must be 0s to 24h in whole milliseconds, and the first must not be longer than the second"},
		{"order", set("q", change.SetQueue{Update: change.QueueUpdate{Order: new("key")}}), nil,
			`invalid_request: queue "q" of topic "t" has the order none, which can't change; create another queue with that order`},
		{"unknown order", set("q", change.SetQueue{Update: change.QueueUpdate{Order: new("any")}}), nil,
			`invalid_request: unknown order "any"; use none or key`},
		{"name of a dead-letter topic", set("q", change.SetQueue{Update: change.QueueUpdate{DeadLetterTopic: new("..")}}), nil,
			`invalid_request: invalid dead-letter topic name ".."; ` + change.NamesHint},
		{"own dead-letter topic", set("q", change.SetQueue{Update: change.QueueUpdate{DeadLetterTopic: new("t")}}), nil,
			`invalid_request: topic "t" can't be its own dead-letter topic; name another topic: else the queue would receive its own dead letters again`},
		{"unknown dead-letter topic", set("q", change.SetQueue{Update: change.QueueUpdate{DeadLetterTopic: new("u")}}), nil,
			`topic_not_found: there is no topic "u"; create the dead-letter topic first`},
		{"delete", change.DeleteQueue{QueueName: q}, entries{&format.QueueDeleted{ID: 1}}, ""},
		{"delete nothing", change.DeleteQueue{QueueName: change.QueueName{Topic: "t", Queue: "new"}}, nil, `queue_not_found: topic "t" has no queue "new"`},
		{"delete in no topic", change.DeleteQueue{}, nil, `topic_not_found: there is no topic ""`},
		{"purge", &change.PurgeQueue{QueueName: q}, entries{&format.QueuePurged{Queue: 1, Before: 12}}, ""},
	}.run(t)

	created, changed, purge := set("new", change.SetQueue{Create: true, QueuesMax: 3}), set("q", change.SetQueue{}), &change.PurgeQueue{QueueName: q}
	for _, x := range []interface {
		Apply(d *state.Draft) ([]format.Entry, error)
	}{created, changed, purge} {
		if _, err := x.Apply(logState(t).Draft(logTime)); err != nil {
			t.Fatal(err)
		}
	}
	if !created.Created || changed.Created || purge.Purged != 9 {
		t.Errorf("created %v and %v, purged %d", created.Created, changed.Created, purge.Purged)
	}
}

func TestPush(t *testing.T) {
	set := func(queue string, x change.SetPush) *change.SetPush {
		x.QueueName, x.Secret = change.QueueName{Topic: "t", Queue: queue}, secret
		return &x
	}
	url, queue, pushed := new("https://a.example/"), change.QueueName{Topic: "t", Queue: "q"}, change.QueueName{Topic: "t", Queue: "pushed"}
	headers := map[string]string{"A": "1"}
	stopped := target(*url)
	stopped.Stopped = "gone"
	cases{
		{"set", set("q", change.SetPush{Update: change.PushUpdate{URL: url, Headers: headers}}),
			entries{&format.QueuePushSet{Queue: 1, Push: target(*url)}}, ""},
		{"set to the same", set("pushed", change.SetPush{Update: change.PushUpdate{URL: url, Headers: headers, MaxInFlight: new(64)}}), nil, ""},
		{"set to another", set("pushed", change.SetPush{Update: change.PushUpdate{URL: new("https://b.example/"), Timeout: new(30 * time.Second)}}),
			entries{&format.QueuePushSet{Queue: 2, Push: target("https://b.example/")}}, ""},
		{"set to no URL", set("q", change.SetPush{}), nil,
			`invalid_request: url: the URL is missing; the first request for the push of a queue must have it; use a URL such as https://example.com/hooks`},
		{"set to a private network", set("q", change.SetPush{Update: change.PushUpdate{URL: new("https://10.1.2.3/"), Headers: headers},
			Allowed: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}), entries{&format.QueuePushSet{Queue: 1, Push: target("https://10.1.2.3/")}}, ""},
		{"set to a network that is not allowed", set("q", change.SetPush{Update: change.PushUpdate{URL: new("https://10.1.2.3/")}}), nil,
			"invalid_request: url: the URL's address 10.1.2.3 is not public; use a public address, or have its network allowed with --push-allow of seb serve"},
		{"remove", change.RemovePush{QueueName: pushed}, entries{&format.QueuePushSet{Queue: 2}}, ""},
		{"remove nothing", change.RemovePush{QueueName: queue}, nil, `push_not_found: queue "q" of topic "t" has no push target`},
		{"resume", &change.ResumePush{QueueName: pushed}, nil, ""},
		{"resume nothing", &change.ResumePush{QueueName: queue}, nil, `push_not_found: queue "q" of topic "t" has no push target`},
		{"stop", change.StopPush{QueueName: pushed, Target: change.TargetOf(target(*url)), Why: "gone"},
			entries{&format.QueuePushSet{Queue: 2, Push: stopped}}, ""},
		{"stop another", change.StopPush{QueueName: pushed, Target: change.TargetOf(target("https://b.example/")), Why: "gone"}, nil, ""},
	}.run(t)

	for name, want := range map[string]bool{"q": true, "pushed": false} {
		x := set(name, change.SetPush{Update: change.PushUpdate{URL: url}})
		if _, err := x.Apply(logState(t).Draft(logTime)); err != nil || x.Created != want || x.SecretIsUsed != want || x.Target.Secret != secret {
			t.Errorf("queue %s: %+v, %v", name, x, err)
		}
	}
	s := logState(t)
	if err := s.Apply(&format.Commit{Seq: 2, Time: logTime, Entries: []format.Entry{&format.QueuePushSet{Queue: 2, Push: stopped}}}); err != nil {
		t.Fatal(err)
	}
	x := &change.ResumePush{QueueName: pushed}
	got, err := x.Apply(s.Draft(logTime))
	want := []format.Entry{&format.QueuePushSet{Queue: 2, Push: target(*url)}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || x.Target.Stopped != "" || x.Target.URL != *url {
		t.Errorf("%v, %+v, %s", err, x.Target, diff)
	}
}

var q = change.QueueName{Topic: "t", Queue: "q"}

// answer is an answer to a delivery of a record of queue q in partition 0.
func answer(offset format.Offset, attempt uint32) *change.Answer {
	return &change.Answer{
		Token: fmt.Sprintf("token.%d.%d", offset, attempt), Queue: 1, Delivery: leases.Delivery{Place: leases.Place{Offset: offset}, Attempt: attempt},
	}
}

func TestAnswers(t *testing.T) {
	done := &format.RecordsDone{Queue: 1, Runs: []format.Run{{Offset: 5, Count: 1, Number: 2}, {Offset: 7, Count: 2, Number: 1}}}
	back := func(offset format.Offset, number uint32, wait time.Duration) *format.RecordPutBack {
		return &format.RecordPutBack{
			Queue: 1, Attempt: format.Attempt{Offset: offset, Number: number}, NotBefore: logTime + wait.Microseconds(), Reason: "why",
		}
	}
	nack := func(x change.NackRecords) change.NackRecords {
		x.QueueName, x.Reason = q, "why"
		return x
	}
	move := change.CommitMove{Part: "positions/0", MoveConsumer: change.MoveConsumer{
		ConsumerName: change.ConsumerName{Topic: "t", Consumer: "c"}, To: []format.Position{{Offset: 5}},
	}}
	pushed := answer(7, 1)
	pushed.Queue = 2
	wrongMove := move
	wrongMove.IfVersion = "2.1"
	moved := &format.PositionsMoved{Consumer: 1, Positions: []format.Position{{Offset: 5}}}
	ack := change.CommitAck{Part: "acks/0", QueueName: q, Answers: []*change.Answer{answer(7, 1), answer(8, 1), answer(5, 2)}}
	wrongAck := change.CommitAck{Part: "acks/0", QueueName: q, Answers: []*change.Answer{answer(7, 1), answer(3, 1)}}
	cases{
		{"ack", change.AckRecords{QueueName: q, Answers: []*change.Answer{answer(8, 1), answer(7, 1), answer(5, 2), answer(5, 1), answer(7, 1)}}, entries{done}, ""},
		{"ack in no queue", change.AckRecords{QueueName: change.QueueName{Topic: "t", Queue: "new"}}, nil, `queue_not_found: topic "t" has no queue "new"`},
		{"nack", nack(change.NackRecords{Delay: new(time.Second), Answers: []*change.Answer{answer(7, 1), answer(4, 2)}}), entries{back(7, 1, time.Second)}, ""},
		{"nack with a backoff", nack(change.NackRecords{AtLeast: time.Minute, Answers: []*change.Answer{answer(7, 1)}}), entries{back(7, 1, time.Minute)}, ""},
		{"nack the last attempt", nack(change.NackRecords{Answers: []*change.Answer{answer(5, 2)}}), nil, ""},
		{"nack the last attempt without a dead-letter topic", change.NackRecords{
			QueueName: change.QueueName{Topic: "t", Queue: "pushed"}, Delay: new(time.Second), Answers: []*change.Answer{pushed},
		}, entries{&format.RecordPutBack{Queue: 2, Attempt: format.Attempt{Offset: 7, Number: 1}, NotBefore: logTime, DeadLetter: true}}, ""},
		{"commit", &change.Commit{Moves: []change.CommitMove{move}, Acks: []change.CommitAck{ack}}, entries{moved, done}, ""},
		{"commit a wrong move", &change.Commit{Moves: []change.CommitMove{wrongMove}, Acks: []change.CommitAck{ack}}, nil,
			`position_conflict: positions/0: consumer "c" of topic "t" has version 1.1, not 2.1: another commit or reset has moved it; ` +
				"read the consumer's version again; perhaps another reader uses the same consumer"},
		{"commit a wrong token", &change.Commit{Moves: []change.CommitMove{move}, Acks: []change.CommitAck{wrongAck}}, nil,
			`lease_lost: acks/0/tokens/1: token "token.3.1" belongs to a record that is done; stop the work on this record: it may be with another worker, done, deleted, or a dead letter`},
		{"commit for no queue", &change.Commit{Acks: []change.CommitAck{{Part: "acks/0", QueueName: change.QueueName{Topic: "t"}}}}, nil,
			`queue_not_found: acks/0: topic "t" has no queue ""`},
	}.run(t)
}

func TestAnswersAreRefusedOneByOne(t *testing.T) {
	const leave = "; stop the work on this record: it may be with another worker, done, deleted, or a dead letter"
	const ofAnother = `lease_lost: token "token.7.1" belongs to another queue; send the token to the queue that handed out the record; if that queue was deleted, drop the record`
	elsewhere, deleted := answer(7, 1), answer(7, 1)
	elsewhere.Queue, deleted.Queue = 2, 9 // both are told alike: the caller may not be allowed to see the queue
	answers := []*change.Answer{answer(7, 1), answer(3, 1), answer(5, 1), answer(6, 1), answer(7, 2), answer(12, 1), elsewhere, deleted, answer(5, 2)}
	want := []string{
		"",
		`lease_lost: token "token.3.1" belongs to a record that is done` + leave,
		`lease_lost: token "token.5.1" belongs to delivery 1, and delivery 2 came later` + leave,
		`lease_lost: token "token.6.1" belongs to a dead letter` + leave,
		`lease_lost: token "token.7.2" names a delivery that the log does not have: check that the token is the one that came with the record` + leave,
		`lease_lost: token "token.12.1" names a record that the queue does not have: the record was deleted, or the token is not the one that came with the record` + leave,
		ofAnother,
		ofAnother,
		"",
	}
	s := logState(t)
	if _, err := (change.NackRecords{QueueName: q, Answers: answers}).Apply(s.Draft(logTime)); err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		if text := textOf(a.Err); text != want[i] || a.Outdated != (text != "" && a.Queue == 1) || a.TopicID != 1 {
			t.Errorf("%+v, want the error %q", a, want[i])
		}
	}
	if last := answers[8]; last.DeadLetterTopic != "gone" || last.Attempts != 2 || answers[0].DeadLetterTopic != "" {
		t.Errorf("%+v, %+v", answers[0], last)
	}

	d := s.Draft(logTime)
	got, err := change.AckRecords{QueueName: q, Answers: answers}.Apply(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range got {
		if err := d.Take(e); err != nil {
			t.Fatal(err)
		}
	}
	again := []*change.Answer{answer(7, 1)}
	got, err = change.AckRecords{QueueName: q, Answers: again}.Apply(d)
	if got != nil || err != nil || again[0].Err != nil {
		t.Errorf("acknowledged again: %v, %v, %+v", got, err, again[0])
	}
	if got, err = (&change.Commit{Acks: []change.CommitAck{{QueueName: q, Answers: again}}}).Apply(d); err == nil {
		t.Errorf("committed again: %v", got)
	}
}

func TestDeadLetters(t *testing.T) {
	dead := func(x change.DeadLetter) change.DeadLetter {
		x.QueueName, x.Reason = q, "why"
		return x
	}
	redriven := entries{&format.RecordsRedriven{Queue: 1, Offsets: []format.Offset{6}}}
	letter := entries{&format.RecordPutBack{
		Queue: 1, Attempt: format.Attempt{Offset: 5, Number: 2}, NotBefore: logTime, DeadLetter: true, Reason: "why",
	}}
	cases{
		{"by the worker", dead(change.DeadLetter{QueueID: 1, Last: answer(5, 2).Delivery}), letter, ""},
		{"by the owner", dead(change.DeadLetter{QueueID: 1, Last: answer(5, 2).Delivery, Epoch: 1}), letter, ""},
		{"by an earlier owner", dead(change.DeadLetter{QueueID: 1, Last: answer(5, 2).Delivery, Epoch: 2}), nil, dispatch.ErrNotOwner.Error()},
		{"in no queue", dead(change.DeadLetter{QueueID: 9}), nil, `queue_not_found: topic "t" has no queue "q"`},
		{"delivered again", dead(change.DeadLetter{QueueID: 1, Last: answer(5, 1).Delivery}), nil,
			"lease_lost: delivery 1 of offset 5 is no longer the last delivery"},
		{"redrive", change.Redrive{QueueName: q, Limit: 1}, redriven, ""},
		{"redrive places", change.Redrive{QueueName: q, Places: []leases.Place{{Offset: 6}, {Offset: 5}, {Offset: 6}, {Partition: -1}}}, redriven, ""},
		{"redrive in no queue", change.Redrive{QueueName: change.QueueName{Topic: "t"}}, nil, `queue_not_found: topic "t" has no queue ""`},
	}.run(t)
}

func TestExactPositionIsNotMoved(t *testing.T) {
	for _, c := range []struct {
		at   change.Position
		want format.Offset
	}{{change.Position{Offset: 1, Exact: true}, 1}, {change.Position{Offset: 1}, 2}, {change.Position{Offset: -1, FromEnd: true}, 11}} {
		if got := c.at.In(2, 12); got != c.want {
			t.Errorf("%+v is %d, want %d", c.at, got, c.want)
		}
	}
}
