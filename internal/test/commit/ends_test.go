package commit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func mustCut(t *testing.T, b *seb.Broker, topics ...string) seb.Cut {
	t.Helper()
	cut, err := b.Cut(t.Context(), topics, seb.CutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cut
}

// reminder is a commit that appends a record if the topics of the cut have no further one.
func reminder(cut seb.Cut) seb.Commit {
	return seb.Commit{Ends: cut.Topics, Appends: []seb.CommitAppend{appends("reminders", "r")}}
}

func TestCutHasTheEndsAndTheLogTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b, other := open(t, store, immediate()), open(t, store, immediate())
		mustCreateTopic(t, b, "a", 3)
		mustCreateTopic(t, b, "b", 1)
		before := mustCut(t, b, "b", "a")
		if before.Topics[0].Topic != "b" || before.Topics[1].Topic != "a" || len(before.Topics[1].Ends) != 3 || before.Topics[1].Ends[2] != 0 {
			t.Errorf("the cut is %+v", before)
		}
		if _, err := b.Append(t.Context(), "a", values("x", "y"), seb.ToPartition(1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // so that the last sync of the other broker is older than StaleMax
		for name, b := range map[string]*seb.Broker{"the broker of the append": b, "another broker": other} {
			cut := mustCut(t, b, "a")
			f, err := b.Fetch(t.Context(), "a", 1, seb.Earliest, seb.FetchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if x := cut.Topics[0]; x.Ends[0] != 0 || x.Ends[1] != 2 || x.ID != f.TopicTag || x.ID != before.Topics[1].ID {
				t.Errorf("%s: %+v", name, cut)
			}
			if !cut.LogTime.Equal(f.Records[1].LogTime) || !cut.LogTime.After(before.LogTime) {
				t.Errorf("%s: the log time of the cut is %v, and that of the record in the last commit %v", name, cut.LogTime, f.Records[1].LogTime)
			}
		}
		for name, c := range map[string]struct {
			topics []string
			code   seb.Code
		}{
			"no topics":         {nil, seb.CodeInvalidRequest},
			"a topic twice":     {[]string{"a", "b", "a"}, seb.CodeInvalidRequest},
			"no such topic":     {[]string{"a", "none"}, seb.CodeTopicNotFound},
			"no name":           {[]string{""}, seb.CodeInvalidTopicName},
			"too many of them":  {make([]string, 1001), seb.CodeInvalidRequest},
			"a name of no form": {[]string{"?"}, seb.CodeInvalidTopicName},
		} {
			if cut, err := b.Cut(t.Context(), c.topics, seb.CutOptions{}); seb.CodeOf(err) != c.code || cut.Topics != nil {
				t.Errorf("%s: %+v, %v", name, cut, err)
			}
		}
	})
}

// Each of these comes between the cut and the commit.
func TestCommitWithEnds(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(t *testing.T, b *seb.Broker)
		want      seb.Code
	}{
		"nothing":                        {func(*testing.T, *seb.Broker) {}, ""},
		"a record in another topic":      {func(t *testing.T, b *seb.Broker) { mustAppend(t, b, "b", "x") }, ""},
		"a record in the last partition": {func(t *testing.T, b *seb.Broker) { appendTo(t, b, "a", 1) }, seb.CodeEndsConflict},
		"a partition": {func(t *testing.T, b *seb.Broker) {
			if _, err := b.UpdateTopic(t.Context(), "a", seb.TopicUpdate{Partitions: new(int32(3))}); err != nil {
				t.Fatal(err)
			}
		}, seb.CodeEndsConflict},
		"a topic of the same name": {func(t *testing.T, b *seb.Broker) {
			if err := b.DeleteTopic(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			mustCreateTopic(t, b, "a", 2)
			appendTo(t, b, "a", 0)
		}, seb.CodeEndsConflict},
		"a deletion": {func(t *testing.T, b *seb.Broker) {
			if err := b.DeleteTopic(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}, seb.CodeEndsConflict},
		"a trim": {func(t *testing.T, b *seb.Broker) {
			if _, err := b.DeleteRecords(t.Context(), "a", 0, 1); err != nil {
				t.Fatal(err)
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := objstore.NewMemory()
				b, other := open(t, store, immediate()), open(t, store, immediate())
				mustCreateTopic(t, b, "a", 2)
				mustCreateTopic(t, b, "b", 1)
				mustCreateTopic(t, b, "reminders", 1)
				appendTo(t, b, "a", 0)
				cut := mustCut(t, b, "a")
				test.meanwhile(t, other)
				_, err := b.Commit(t.Context(), reminder(cut)) // this broker has not read what the other one has done
				if seb.CodeOf(err) != test.want {
					t.Fatalf("the error is %v, want %q", err, test.want)
				}
				if err == nil {
					wantValues(t, b, "reminders", "r")
					return
				}
				wantPart(t, err, test.want, "ends/0")
				wantOutcome(t, err, seb.NotCommitted)
				wantValues(t, b, "reminders")
			})
		})
	}
}

func appendTo(t *testing.T, b *seb.Broker, topic string, partition int32) {
	t.Helper()
	if _, err := b.Append(t.Context(), topic, values("x"), seb.ToPartition(partition)); err != nil {
		t.Fatal(err)
	}
}

// A broker that does not know of the latest commits syncs before it refuses a commit.
func TestCommitWithEndsIsNotRefusedForWhatOnlyItsBrokerDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b, other := open(t, store, immediate()), open(t, store, immediate())
		mustCreateTopic(t, b, "reminders", 1)
		mustAppend(t, b, "a", "x")
		mustCommitAll(t, other, reminder(mustCut(t, b, "a")))
		mustAppend(t, b, "a", "y")
		c := reminder(mustCut(t, b, "a"))
		c.After = mustCut(t, b, "a").LogTime
		mustCommitAll(t, other, c)
		wantValues(t, other, "reminders", "r", "r")
	})
}

// A record of the same commit does not count, since it has the log time of the commit: it is later than any time that the
// commit may name.
func TestRecordsOfTheSameCommitDoNotCountForEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b := open(t, faulty, immediate())
		mustCreateTopic(t, b, "reminders", 1)
		mustAppend(t, b, "a", "x")
		cut := mustCut(t, b, "a")
		c := reminder(cut)
		c.After = cut.LogTime
		release := make(chan struct{})
		faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Times(1, storetest.Hold(release)))
		blocker, err := b.AppendAsync(t.Context(), "reminders", values("v"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		record, err := b.AppendAsync(t.Context(), "a", values("y"))
		if err != nil {
			t.Fatal(err)
		}
		reminded, err := b.CommitAsync(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before := len(keys(t, memory, format.LogPrefix))
		close(release)
		for _, wait := range []func() error{
			func() error { _, err := blocker.Wait(t.Context()); return err },
			func() error { _, err := record.Wait(t.Context()); return err },
			func() error { _, err := reminded.Wait(t.Context()); return err },
		} {
			if err := wait(); err != nil {
				t.Error(err)
			}
		}
		if n := len(keys(t, memory, format.LogPrefix)) - before; n != 2 {
			t.Fatalf("the record and the commit took %d slots with the one before", n)
		}
		_, err = b.Commit(t.Context(), c)
		wantPart(t, err, seb.CodeEndsConflict, "ends/0")
	})
}

// The conditions are decided again when the slot is lost to another broker.
func TestEndsAreDecidedAgainAfterALostRace(t *testing.T) {
	for name, test := range map[string]struct {
		topic string
		want  seb.Code
	}{
		"to another topic": {"b", ""},
		"to the topic":     {"a", seb.CodeEndsConflict},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				b := open(t, faulty, immediate())
				for _, name := range []string{"a", "b", "reminders"} {
					mustCreateTopic(t, b, name, 1)
				}
				other := open(t, memory, immediate())
				release := make(chan struct{})
				faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Times(1, storetest.Hold(release)))
				pending, err := b.CommitAsync(t.Context(), reminder(mustCut(t, b, "a")))
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				mustAppend(t, other, test.topic, "x")
				close(release)
				if _, err := pending.Wait(t.Context()); seb.CodeOf(err) != test.want {
					t.Errorf("the error is %v, want %q", err, test.want)
				}
			})
		})
	}
}

// The time of a commit is the store's, or a microsecond after that of the commit before.
func TestCommitAfterATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b, other := open(t, store, immediate()), open(t, store, immediate())
		mustCreateTopic(t, b, "reminders", 1)
		deadline := mustCut(t, b, "reminders").LogTime.Add(time.Hour)
		c := seb.Commit{After: deadline, Appends: []seb.CommitAppend{appends("reminders", "r")}}
		for range 2 {
			_, err := b.Commit(t.Context(), c)
			wantPart(t, err, seb.CodeTooEarly, "after")
			wantOutcome(t, err, seb.NotCommitted)
			time.Sleep(29 * time.Minute)
		}
		time.Sleep(2*time.Minute + time.Second)
		mustCommitAll(t, other, c)
		f, err := b.Fetch(t.Context(), "reminders", 0, seb.Earliest, seb.FetchOptions{})
		if err != nil || len(f.Records) != 1 {
			t.Fatalf("%+v, %v", f, err)
		}
		if r := f.Records[0]; !r.LogTime.After(deadline) {
			t.Errorf("the record has the log time %v, not after %v", r.LogTime, deadline)
		}
	})
}

func TestConditionsAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := immediate()
		opts.Limits.CommitParts = 4
		b := open(t, objstore.NewMemory(), opts)
		mustCreateTopic(t, b, "a", 2)
		mustCreateTopic(t, b, "reminders", 1)
		cut := mustCut(t, b, "a")
		with := func(change func(x *seb.TopicCut)) func(c *seb.Commit) {
			return func(c *seb.Commit) {
				x := cut.Topics[0]
				change(&x)
				c.Ends = []seb.TopicCut{x}
			}
		}
		for name, test := range map[string]struct {
			spoil func(c *seb.Commit)
			code  seb.Code
			part  string
		}{
			"nothing to do":          {func(c *seb.Commit) { c.Appends = nil }, seb.CodeInvalidRequest, ""},
			"only a time":            {func(c *seb.Commit) { *c = seb.Commit{After: time.Unix(1, 0)} }, seb.CodeInvalidRequest, ""},
			"a topic twice":          {func(c *seb.Commit) { c.Ends = append(c.Ends[:1:1], c.Ends[0]) }, seb.CodeInvalidRequest, "ends/1"},
			"too many parts":         {func(c *seb.Commit) { c.Ends = append(c.Ends[:1:1], c.Ends[0], c.Ends[0], c.Ends[0]) }, seb.CodeRequestTooLarge, ""},
			"no id":                  {with(func(x *seb.TopicCut) { x.ID = "" }), seb.CodeInvalidRequest, "ends/0"},
			"an id without a number": {with(func(x *seb.TopicCut) { x.ID = x.ID[:9] }), seb.CodeInvalidRequest, "ends/0"},
			"the id of another log":  {with(func(x *seb.TopicCut) { x.ID = "xxxxxxxx" + x.ID[8:] }), seb.CodeEndsConflict, "ends/0"},
			"no name":                {with(func(x *seb.TopicCut) { x.Topic = "" }), seb.CodeInvalidTopicName, "ends/0"},
			"no ends":                {with(func(x *seb.TopicCut) { x.Ends = nil }), seb.CodeInvalidRequest, "ends/0"},
			"a negative end":         {with(func(x *seb.TopicCut) { x.Ends = seb.Offsets{0: 0, 1: -1} }), seb.CodeInvalidRequest, "ends/0"},
			"one partition of two":   {with(func(x *seb.TopicCut) { x.Ends = seb.Offsets{0: 0} }), seb.CodeEndsConflict, "ends/0"},
			"another topic":          {with(func(x *seb.TopicCut) { x.Topic = "reminders" }), seb.CodeEndsConflict, "ends/0"},
			"a topic of nobody":      {with(func(x *seb.TopicCut) { x.Topic = "none" }), seb.CodeEndsConflict, "ends/0"},
			"a time before 1970":     {func(c *seb.Commit) { c.After = time.Unix(-1, 0) }, seb.CodeInvalidRequest, "after"},
			"a time of no year":      {func(c *seb.Commit) { c.After = time.Unix(1<<50, 0) }, seb.CodeInvalidRequest, "after"},
			"a time yet to come":     {func(c *seb.Commit) { c.After = time.Now().Add(time.Hour) }, seb.CodeTooEarly, "after"},
		} {
			c := reminder(cut)
			test.spoil(&c)
			_, err := b.Commit(t.Context(), c)
			if seb.CodeOf(err) != test.code {
				t.Errorf("%s: %v", name, err)
				continue
			}
			wantPart(t, err, test.code, test.part)
			wantOutcome(t, err, seb.NotCommitted)
		}
		wantValues(t, b, "reminders")
		mustCommitAll(t, b, reminder(cut))
	})
}

// A retry with the idempotency key of a commit gets the first answer, although its conditions no longer hold. The key stands
// for the conditions, too.
func TestRetryOfACommitWithConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b, other := open(t, store, immediate()), open(t, store, immediate())
		mustCreateTopic(t, b, "reminders", 1)
		mustAppend(t, b, "a", "x")
		cut := mustCut(t, b, "a")
		c := reminder(cut)
		c.After = cut.LogTime
		first := mustCommitAll(t, b, c, seb.IdempotencyKey("k"))
		mustAppend(t, b, "a", "y")
		for _, b := range []*seb.Broker{b, other} {
			again := mustCommitAll(t, b, c, seb.IdempotencyKey("k"))
			if !again.Replayed || again.Appends[0].Ranges[0] != first.Appends[0].Ranges[0] {
				t.Errorf("the retry got %+v, want %+v", again, first)
			}
		}
		for name, spoil := range map[string]func(c *seb.Commit){
			"no ends":       func(c *seb.Commit) { c.Ends = nil },
			"no time":       func(c *seb.Commit) { c.After = time.Time{} },
			"no conditions": func(c *seb.Commit) { c.Ends, c.After = nil, time.Time{} },
			"another time":  func(c *seb.Commit) { c.After = c.After.Add(time.Microsecond) },
			"another end":   func(c *seb.Commit) { c.Ends = mustCut(t, b, "a").Topics },
			"another topic": func(c *seb.Commit) { c.Ends = mustCut(t, b, "reminders").Topics },
		} {
			x := c
			spoil(&x)
			if _, err := b.Commit(t.Context(), x, seb.IdempotencyKey("k")); seb.CodeOf(err) != seb.CodeIdempotencyKeyReused {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err := b.Commit(t.Context(), c, seb.IdempotencyKey("other"))
		wantPart(t, err, seb.CodeEndsConflict, "ends/0")
	})
}
