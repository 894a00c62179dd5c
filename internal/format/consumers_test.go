package format

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

func goldenConsumers() *Commit {
	return &Commit{
		Created: goldenTime, Cluster: goldenCluster, Seq: 9, Nonce: goldenNonce, Prev: hashOf(0xcc), Time: goldenTime,
		Entries: []Entry{
			&ConsumerCreated{ID: 7, Topic: 3, Name: "billing"},
			&PositionsMoved{Consumer: 7, Positions: []Position{{Partition: 0, Offset: 41}, {Partition: 5, Offset: math.MaxInt64}}},
			&ConsumerDeleted{ID: 6},
		},
	}
}

func TestGoldenCommitOfConsumers(t *testing.T) {
	file := golden(t, "commit.consumers.golden")
	want := goldenConsumers()
	requireBytes(t, EncodeCommit(want), file)
	got, err := DecodeCommit(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)
}

// TestConsumerFieldTable builds the entries only from the table in the comment of consumers.go.
func TestConsumerFieldTable(t *testing.T) {
	le := binary.LittleEndian
	var b []byte
	entry := func(kind byte, size uint32, fields ...uint64) {
		b = le.AppendUint32(append(b, kind, 0, 1, 0), size)
		for _, f := range fields {
			b = le.AppendUint64(b, f)
		}
	}
	entry(11, 16+7, 7, 3)
	b = append(b, "billing"...)
	entry(12, 8+2*16, 7, 0, 41, 5, math.MaxInt64)
	entry(13, 8, 6)
	requireBytes(t, golden(t, "commit.consumers.golden")[PrologueSize+commitFixedSize:], b)
}

func TestImpossibleConsumersAreRefused(t *testing.T) {
	entries := goldenConsumers().Entries
	for n := range 16 {
		if _, err := decodeConsumerCreated(entries[0].append(nil)[:n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes of a consumer: %v", n, err)
		}
	}
	body := entries[1].append(nil)
	for n := range body {
		if _, err := decodePositionsMoved(body[:n]); n != 8+16 && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes of positions: %v", n, err)
		}
	}
	for name, x := range map[string]*PositionsMoved{
		"none":                 {Consumer: 7},
		"before the beginning": {Positions: []Position{{Offset: -1}}},
		"partition twice":      {Positions: []Position{{Partition: 1}, {Partition: 1}}},
		"out of order":         {Positions: []Position{{Partition: 1}, {Partition: 0}}},
	} {
		if _, err := decodePositionsMoved(x.append(nil)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	body[8+4] = 1
	if _, err := decodePositionsMoved(body); !errors.Is(err, ErrCorrupt) {
		t.Errorf("reserved bytes are set: %v", err)
	}
}
