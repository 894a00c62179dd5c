package seb_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

func TestDeletedRecordsAreGoneForReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		opts := immediate()
		b := open(t, memory, opts)
		other := open(t, memory, opts)
		mustCreateTopic(t, b, "t", 2)
		mustAppend(t, b, "t", "0", "1", "2") // one batch
		mustAppend(t, b, "t", "3")
		wantValues(t, other, "t", "0", "1", "2", "3")

		p, err := b.DeleteRecords(t.Context(), "t", 0, 2)
		if err != nil || p.Start != 2 || p.End != 4 {
			t.Fatalf("%+v, %v", p, err)
		}
		read := func(b *seb.Broker, want ...string) {
			t.Helper()
			f, err := b.Fetch(t.Context(), "t", 0, seb.Earliest, seb.FetchOptions{})
			if err != nil || len(f.Records) != len(want) || f.Next != 4 {
				t.Fatalf("from the start: %+v, %v", f, err)
			}
			for i, r := range f.Records {
				if string(r.Value) != want[i] {
					t.Errorf("offset %d holds %s", r.Offset, r.Value)
				}
			}
			if len(want) < 4 {
				_, err := b.Fetch(t.Context(), "t", 0, seb.At(0), seb.FetchOptions{})
				if e := wantError(t, err, seb.CodeOffsetOutOfRange); e.Start != seb.Offset(4-len(want)) || e.End != 4 {
					t.Errorf("%+v", e)
				}
			}
			f, err = b.Fetch(t.Context(), "t", 0, seb.Last(9), seb.FetchOptions{})
			if err != nil || len(f.Records) != len(want) {
				t.Errorf("the last nine: %+v, %v", f, err)
			}
		}
		read(b, "2", "3")
		time.Sleep(2 * time.Second) // until the last sync of the other broker is too old
		read(other, "2", "3")
		if p, err := other.DeleteRecords(t.Context(), "t", 0, 1); err != nil || p.Start != 2 {
			t.Errorf("a start that is there stays: %+v, %v", p, err)
		}
		if err := b.Close(); err != nil { // writes a checkpoint
			t.Fatal(err)
		}
		again := open(t, memory, opts)
		read(again, "2", "3")
		if p, err := again.DeleteRecords(t.Context(), "t", 0, 4); err != nil || p.Start != 4 || p.Bytes != 0 {
			t.Errorf("%+v, %v", p, err)
		}
		read(again)
		if at := mustAppend(t, again, "t", "4"); at != 4 {
			t.Errorf("appended at %d", at)
		}
	})
}

func TestDeleteRecordsRefuses(t *testing.T) {
	b := open(t, objstore.NewMemory(), seb.Options{})
	mustCreateTopic(t, b, "t", 1)
	mustAppend(t, b, "t", "0")
	for _, c := range []struct {
		topic     string
		partition int32
		before    seb.Offset
		want      seb.Code
	}{
		{"t", 0, 2, seb.CodeOffsetOutOfRange},
		{"t", 0, -1, seb.CodeOffsetOutOfRange},
		{"t", 1, 0, seb.CodePartitionNotFound},
		{"t", -1, 0, seb.CodePartitionNotFound},
		{"u", 0, 0, seb.CodeTopicNotFound},
		{"..", 0, 0, seb.CodeInvalidTopicName},
	} {
		_, err := b.DeleteRecords(t.Context(), c.topic, c.partition, c.before)
		wantCode(t, err, c.want)
	}
	wantValues(t, b, "t", "0")
}

func TestTopicConfig(t *testing.T) {
	memory := objstore.NewMemory()
	b := open(t, memory, seb.Options{})
	want := seb.TopicConfig{Retention: 7 * 24 * time.Hour, RetentionBytes: 1 << 40}
	create := func(c seb.TopicConfig) (bool, error) {
		topic, created, err := b.CreateTopic(t.Context(), "t", seb.TopicOptions{Config: c})
		if err == nil && topic.Config != want {
			t.Errorf("the config is %+v", topic.Config)
		}
		return created, err
	}
	if created, err := create(want); err != nil || !created {
		t.Fatal(created, err)
	}
	for _, c := range []seb.TopicConfig{want, {}, {Retention: want.Retention}} {
		if created, err := create(c); err != nil || created {
			t.Error(created, err)
		}
	}
	_, err := create(seb.TopicConfig{Retention: time.Hour})
	wantCode(t, err, seb.CodeTopicExists)
	if !strings.Contains(err.Error(), "partition, a retention of ") {
		t.Errorf("%v doesn't say what differs", err)
	}

	topic, err := b.UpdateTopic(t.Context(), "t", seb.TopicUpdate{Retention: new(time.Duration), Partitions: new(int32(3))})
	want.Retention = 0
	if err != nil || topic.Config != want || len(topic.Partitions) != 3 {
		t.Errorf("updated to %+v, %v", topic, err)
	}
	for _, u := range []seb.TopicUpdate{
		{Retention: new(-time.Second)}, {Retention: new(time.Microsecond)}, {RetentionBytes: new(int64(-1))}, {Partitions: new(int32(2)), RetentionBytes: new(int64(5))},
	} {
		_, err := b.UpdateTopic(t.Context(), "t", u)
		wantCode(t, err, seb.CodeInvalidRequest)
	}
	if err := b.Close(); err != nil { // writes a checkpoint
		t.Fatal(err)
	}
	topics, err := seb.Collect(open(t, memory, seb.Options{}).Topics(t.Context(), seb.ListOptions{}))
	if err != nil || !slices.ContainsFunc(topics, func(x seb.Topic) bool { return x.Name == "t" && x.Config == want }) {
		t.Errorf("after a restart: %+v, %v", topics, err)
	}
}

// A reader that waits at the end of a partition gets an error if it misses a record.
func TestFollowReportsRecordsDeletedBeforeItReadThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b, other := open(t, memory, immediate()), open(t, memory, immediate())
		mustCreateTopic(t, b, "t", 1)
		mustAppend(t, b, "t", "0")
		type met struct {
			value string
			err   error
		}
		found := make(chan met)
		go func() {
			for r, err := range b.Follow(t.Context(), "t", 0, seb.Latest) {
				found <- met{string(r.Value), err}
				return
			}
		}()
		time.Sleep(27 * time.Second) // until b syncs only every 10 s
		mustAppend(t, other, "t", "1")
		if _, err := other.DeleteRecords(t.Context(), "t", 0, 2); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, other, "t", "2")
		m := <-found
		if m.err == nil && m.value == "1" {
			return // b has synced between the append and the deletion
		}
		if e := wantError(t, m.err, seb.CodeOffsetOutOfRange); e.Start != 2 {
			t.Errorf("%q, %+v", m.value, e)
		}
	})
}
