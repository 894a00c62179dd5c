package format

import (
	"encoding/binary"
	"testing"
)

func goldenRetention() *Commit {
	return &Commit{
		Created: goldenTime, Cluster: goldenCluster, Seq: 9, Nonce: goldenNonce, Prev: hashOf(0xdd), Time: goldenTime,
		Entries: []Entry{
			&TopicConfigured{Topic: 3, Config: TopicConfig{RetentionMS: 604_800_000, RetentionBytes: 1 << 40}},
			&QueuesPassed{Topic: 3, PastQueues: true},
			&QueuesPassed{Topic: 1 << 40},
		},
	}
}

func TestGoldenRetentionEntries(t *testing.T) {
	file := golden(t, "commit.retention.golden")
	want := goldenRetention()
	requireBytes(t, EncodeCommit(want), file)
	got, err := DecodeCommit(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)

	body := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 3), 1)
	requireBytes(t, (&QueuesPassed{Topic: 3, PastQueues: true}).append(nil), body)
	body[8] = 2
	bad := goldenRetention()
	bad.Entries[1] = &cutEntry{entryQueuesPassed, body}
	if _, err := DecodeCommit(EncodeCommit(bad)); err == nil {
		t.Error("an entry with unknown flags is read")
	}
}
