package main

import (
	"encoding/binary"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
)

// batchOf returns a batch of values.
func batchOf(values ...string) []byte {
	var b record.Builder
	for _, v := range values {
		b.Append(&record.Record{Value: []byte(v), Timestamp: 1_700_000_000_000})
	}
	return b.Finish()
}

func rowOf(batch []byte, object, pos uint32, base int64, count uint32) *format.Batch {
	return &format.Batch{
		Topic: 1, Object: object, Base: seb.Offset(base), Count: count, Pos: pos, Size: uint32(len(batch)), CRC: record.CRC(batch),
	}
}

// commitOf returns a commit of two batches: one inline, one in a data object.
func commitOf(inline, far []byte) []byte {
	c := &format.Commit{
		Seq: 7, PayloadSize: uint32(len(inline)),
		Data: []format.DataRef{{Seq: 5, ID: 0xabc, Size: uint32(format.DataPayloadStart + len(far))}},
		Entries: []format.Entry{
			&format.TopicCreated{ID: 1, Partitions: 2, Name: "orders"},
			rowOf(inline, 0, 0, 40, 2), rowOf(far, 1, 0, 42, 1),
			&format.PartitionsAdded{Topic: 1, Partitions: 3}, &format.DataFloor{Seq: 4}, &format.TopicDeleted{ID: 1},
			&format.StartMoved{Topic: 1, Partition: 2, Start: 41},
			&format.TopicConfigured{Topic: 1, Config: format.TopicConfig{RetentionMS: 3_600_000, RetentionBytes: 9}},
			&format.AppendKeyed{Topic: 1, Key: format.Digest{0xab}, Ranges: []format.KeyedRange{{Partition: 1, Count: 2, Base: 5}}},
			&format.KeyCreated{ID: 5, Name: "shop", Scopes: 3, Topics: []string{"orders.*"}, Expires: 1_700_000_000_000_000},
			&format.KeyRevoked{ID: 5},
			&format.ConsumerCreated{ID: 2, Topic: 1, Name: "billing"}, &format.ConsumerDeleted{ID: 2},
			&format.PositionsMoved{Consumer: 2, Positions: []format.Position{{Partition: 1, Offset: 43}}},
			&format.UnknownEntry{Kind: 99, Body: []byte("new")},
		},
	}
	c.Entries = append(c.Entries, queueItems()...)
	return append(format.EncodeCommit(c), inline...)
}

// queueItems has an entry of every kind that is about queues.
func queueItems() []format.Entry {
	config := format.QueueConfig{LeaseMS: 30_000, BackoffMinMS: 1000, BackoffMaxMS: 60_000, Attempts: 5, Ordered: true, Paused: true, DeadLetterTopic: "dead"}
	last := format.Attempt{Offset: 43, Number: 2}
	return []format.Entry{
		&format.QueueSet{ID: 3, Topic: 1, Name: "mail", Config: config}, &format.QueueDeleted{ID: 4},
		&format.QueueOwned{Queue: 3, Epoch: 7, Windows: []seb.Offset{0, 99}, Address: "http://b:1"}, &format.QueueReleased{Queue: 3, Epoch: 8},
		&format.WindowMoved{Queue: 3, Epoch: 9, Partition: 1, Window: 98},
		&format.RecordsAttempted{Queue: 3, Epoch: 9, Partition: 1, Attempts: []format.Attempt{last}},
		&format.RecordsDone{Queue: 3, Partition: 1, Runs: []format.Run{{Offset: 44, Count: 3, Number: 1}}},
		&format.RecordPutBack{Queue: 3, Partition: 1, Attempt: last, NotBefore: 1_700_000_000_000_000, Reason: "smtp: 451"},
		&format.RecordPutBack{Queue: 3, Partition: 2, Attempt: last, DeadLetter: true, Reason: "gone"},
		&format.RecordsRedriven{Queue: 3, Partition: 2, Offsets: []seb.Offset{43}},
		&format.QueuePurged{Queue: 3, Partition: 2, Before: 50},
		&format.RecordsDelayed{Topic: 1, Partition: 2, Offset: 51, Count: 2, Due: 1_700_000_000_000_000},
	}
}

func dataOf(batches ...[]byte) []byte {
	payload := slices.Concat(batches...)
	return append(format.EncodeDataHead(&format.DataHead{
		Ref: format.DataRef{Seq: 5, ID: 0xabc}, Batches: uint32(len(batches)), PayloadSize: uint32(len(payload)),
	}), payload...)
}

func checkpointOf() []byte {
	s := state.New()
	key := &format.KeyCreated{ID: 1, Name: "ops", Scopes: state.ScopeAdmin, Topics: []string{"*"}}
	topic := &format.TopicCreated{ID: 1, Partitions: 1, Name: "orders"}
	consumer := &format.ConsumerCreated{ID: 1, Topic: 1, Name: "billing"}
	config := format.QueueConfig{LeaseMS: 30_000, Attempts: 5}
	items := []format.Entry{
		key, topic, consumer, &format.Batch{Topic: 1, Count: 9, Size: 61},
		&format.RecordsDelayed{Topic: 1, Offset: 8, Count: 1, Due: 1_700_000_000_000_000},
		&format.QueueSet{ID: 1, Topic: 1, Name: "mail", Config: config}, &format.QueueSet{ID: 2, Topic: 1, Name: "idle", Config: config},
		&format.QueueSet{ID: 3, Topic: 1, Name: "left", Config: config},
		&format.QueueOwned{Queue: 1, Epoch: 1, Windows: []seb.Offset{4}}, &format.QueueOwned{Queue: 1, Epoch: 2, Windows: []seb.Offset{9}, Address: "http://b:1"},
		&format.QueueOwned{Queue: 3, Epoch: 1}, &format.QueueReleased{Queue: 3, Epoch: 1},
		&format.RecordsDone{Queue: 1, Runs: []format.Run{{Offset: 0, Count: 2, Number: 1}}},
		&format.RecordPutBack{Queue: 1, Attempt: format.Attempt{Offset: 6, Number: 1}, NotBefore: 1_700_000_000_000_000, Reason: "no"},
		&format.RecordPutBack{Queue: 1, Attempt: format.Attempt{Offset: 3, Number: 1}, DeadLetter: true, Reason: "gone"},
	}
	if err := s.Apply(&format.Commit{Seq: 1, Entries: items}); err != nil {
		panic(err)
	}
	c := &format.Checkpoint{Seq: 1, Body: s.View().Encode()}
	return append(format.EncodeCheckpoint(c), c.Body...)
}

// originalOf returns a file of the original Seb.
func originalOf(values ...string) []byte { return originalAt(0, values...) }

// originalAt is originalOf with the batch's time in microseconds since 1970.
func originalAt(micros int64, values ...string) []byte {
	b := binary.LittleEndian.AppendUint64([]byte("seb!\x01\x00"), uint64(micros))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(values)))
	b = append(b, make([]byte, 14)...)
	pos := 0
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, uint32(pos))
		pos += len(v)
	}
	return append(b, strings.Join(values, "")...)
}

func TestDumpShowsEveryKindOfObject(t *testing.T) {
	batch, far := batchOf("one", "two"), batchOf("three")
	for _, test := range []struct {
		name string
		body []byte
		want []string
	}{
		{"log/00000000000000000007", commitOf(batch, far), []string{
			"commit, version 2", "slot         7\n", "data/00000000000000000005-0000000000000abc", `topic 1 created: "orders", 2 partitions`,
			"offsets 40 to 41", "inline at 0", `40 2023-11-14T22:13:20.000Z key null value "one"`, `value "two"`, "batch: 2 records, compression none",
			"offsets 42 to 42", "in data 1 at 0", "topic 1 has 3 partitions", "below 4", "topic 1 deleted", "unknown kind 99",
			"partition 2 of topic 1 starts at 41", "the retention settings 1h0m0s and 9 bytes", "key that hashes to ab00", "partition 1: offsets 5 to 6",
			`API key 5 created: "shop", scopes 0x3, topics ["orders.*"], expires 2023-11-14T22:13:20.000000Z`, "API key 5 revoked",
			`consumer 2 of topic 1 created: "billing"`, "consumer 2 moved", "partition 1: the next offset to read is 43", "consumer 2 deleted",
			`queue 3 of topic 1 set: "mail", lease 30s, at most 5 attempts, backoff 1s to 1m0s, dead letters to "dead", ordered by key, paused`, "queue 4 deleted",
			`queue 3 is owned by "http://b:1" from here on, epoch 7`, "partition 1: fresh records below 99 may be", "queue 3 has no owner from here on, the last was of epoch 8",
			"queue 3, epoch 9, partition 1: fresh records below 98 may be", "queue 3, epoch 9, partition 1: records are handed out again", "offset 43: attempt 2",
			"queue 3, partition 1: records are done", "offsets 44 to 46 by attempt 1",
			`attempt 2 of offset 43 was put back, not to go out before 2023-11-14T22:13:20.000000Z: "smtp: 451"`, `attempt 2 of offset 43 was put back, parked: "gone"`,
			"queue 3, partition 2: parked records (dead letters) are redriven", "no work is left before 50", "partition 2 of topic 1: queues hand out offsets 51 to 52 from 2023-11-14T22:13:20.000000Z on",
		}},
		{"data/00000000000000000005-0000000000000abc", dataOf(batch, far), []string{
			"data, version 2", "begun after  slot 5\n", "2 batches", "0 at 0: ", `value "one"`, `value "three"`,
		}},
		{"checkpoint/00000000000000000001", checkpointOf(), []string{"checkpoint, version 2", "1 topics, 1 batches in 1 objects", `1: "mail", created 1970-01-01T00:00:00.000000Z, lease 30s, at most 5 attempts`,
			`owned by "http://b:1", epoch 2, last heard of`, "never owned", "without an owner, the last was of epoch 1",
			"partition 0: 7 records left, 1 of them parked; the first is 2; fresh ones below 9 may be handed out, below 4 may have been",
			`attempt 1 of offset 3, 1 of these since it was appended or redriven, parked: "gone"`, `attempt 1 of offset 6, 1 of these since it was appended or redriven, not to go out before 2023-11-14T22:13:20.000000Z: "no"`,
			"delayed      partition 0 of topic 1: offsets 8 to 8, due 2023-11-14T22:13:20.000000Z",
			`1: "billing", created`, "partition 0: the next offset to read is 0", `1: "ops", scopes 0x4`, "never expires"}},
		{"old.log", originalOf("one", "", "three"), []string{"original Seb, version 1", `0 at 0: "one"`, `1 at 3: ""`, `2 at 3: "three"`}},
	} {
		var out strings.Builder
		d := &dumper{printer: printer{w: &out}, records: true}
		if err := d.dump(test.body, test.name); err != nil || d.Bad > 0 {
			t.Errorf("%s: %d faults, %v\n%s", test.name, d.Bad, err, &out)
		}
		for _, want := range test.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: it does not show %q:\n%s", test.name, want, &out)
			}
		}
	}
}

// Every byte of an object is covered by a checksum, so that no change goes unnoticed.
func TestDumpNoticesEveryChangedByte(t *testing.T) {
	page, _, withPages := pageOf()
	for name, body := range map[string][]byte{
		pageName:                                     page,
		introductionName:                             introductionOf(),
		"checkpoint/00000000000000000003":            withPages,
		"log/00000000000000000007":                   commitOf(batchOf("one", "two"), batchOf("three")),
		"data/00000000000000000005-0000000000000abc": dataOf(batchOf("one"), batchOf("two")),
		"checkpoint/00000000000000000001":            checkpointOf(),
	} {
		for i := range body {
			changed := slices.Clone(body)
			changed[i] ^= 0x10
			d := &dumper{printer: printer{w: io.Discard}}
			if err := d.dump(changed, name); err == nil && d.Bad == 0 && !outsideOfChecksums(changed, i) {
				t.Errorf("%s: byte %d can change unnoticed", name, i)
			}
		}
		for size := range body {
			d := &dumper{printer: printer{w: io.Discard}}
			if err := d.dump(body[:size], name); err == nil && d.Bad == 0 {
				t.Errorf("%s: it can be cut to %d bytes unnoticed", name, size)
			}
		}
	}
}

// outsideOfChecksums tells whether byte i belongs to the base offset or leader
// epoch of a batch: those stand outside of its CRC, since brokers stamp them.
func outsideOfChecksums(b []byte, i int) bool {
	p, err := format.DecodePrologue(b)
	if err != nil {
		return false
	}
	for at := int(p.End()); at < len(b); {
		x, err := record.Parse(b[at:])
		if err != nil {
			return false
		}
		if in := i - at; in >= 0 && in < x.Size {
			return in < 8 || (in >= 12 && in < 16)
		}
		at += x.Size
	}
	return false
}

func TestDumpExitsWithFailureOnDamage(t *testing.T) {
	body := commitOf(batchOf("one", "two"), batchOf("three"))
	body[len(body)-1] ^= 1
	file := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	r := runSeb(t, nil, "dump", file)
	r.want(t, exitDamage, "damaged in 1 place,")
	if !strings.Contains(r.out, "BAD") || !strings.Contains(r.out, "offsets 42 to 42") {
		t.Errorf("it does not show the damage, and what stands after it:\n%s", r.out)
	}
}

func FuzzDump(f *testing.F) {
	f.Add("x", commitOf(batchOf("one", "two"), batchOf("three")))
	f.Add("x", dataOf(batchOf("one")))
	f.Add("x", checkpointOf())
	page, _, _ := pageOf()
	f.Add("x", page)
	f.Add(introductionName, introductionOf())
	f.Add("x", originalOf("one", "two"))
	f.Add("seb.json", []byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, name string, body []byte) {
		d := &dumper{printer: printer{w: io.Discard}, records: true}
		err := d.dump(body, name)
		c, decodeErr := format.DecodeCommit(body)
		if path.Base(name) == format.ClusterKey || decodeErr != nil {
			return // any answer is right, as long as dump returns
		}
		if err != nil {
			t.Fatalf("a commit can't be shown: %v", err)
		}
		if sound := soundCommit(c, body); d.Bad == 0 && !sound {
			t.Fatalf("a damaged commit is shown as a sound one")
		}
	})
}

// soundCommit tells whether a commit has the size that its head says, and its batches are as its entries
// say.
func soundCommit(c *format.Commit, object []byte) bool {
	if c.Size() != int64(len(object)) {
		return false
	}
	for _, item := range c.Entries {
		row, ok := item.(*format.Batch)
		if !ok || row.Object > 0 {
			continue
		}
		b := object[c.PayloadStart:][row.Pos:][:row.Size]
		if x, err := record.Check(b, record.Limits{}); err != nil || x.CRC != row.CRC || x.Count != int(row.Count) {
			return false
		}
	}
	return true
}
