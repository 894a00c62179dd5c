package format

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

func goldenSessions() *Commit {
	return &Commit{
		Created: goldenTime, Cluster: goldenCluster, Seq: 12, Nonce: goldenNonce, Prev: hashOf(0xfe), Time: goldenTime,
		Entries: []Entry{
			&SessionNamed{Session: SessionKey(hashOf(0x11))},
			&SessionNamed{Session: SessionKey(hashOf(0x22)), Queue: 5, Epoch: 1 << 40},
		},
	}
}

func TestGoldenCommitOfSessions(t *testing.T) {
	file := golden(t, "commit.sessions.golden")
	want := goldenSessions()
	requireBytes(t, EncodeCommit(want), file)
	got, err := DecodeCommit(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)
}

// TestSessionFieldTable builds the entries only from the table in the comment of sessions.go.
func TestSessionFieldTable(t *testing.T) {
	le := binary.LittleEndian
	var b []byte
	for _, x := range []struct {
		key          byte
		queue, epoch uint64
	}{{0x11, 0, 0}, {0x22, 5, 1 << 40}} {
		b = le.AppendUint32(append(b, 26, 0, 0, 0), 48)
		b = append(b, slices.Repeat([]byte{x.key}, 32)...)
		b = le.AppendUint64(le.AppendUint64(b, x.queue), x.epoch)
	}
	requireBytes(t, golden(t, "commit.sessions.golden")[PrologueSize+commitFixedSize:], b)
}

func TestImpossibleSessionsAreRefused(t *testing.T) {
	for name, it := range map[string]*SessionNamed{
		"no key":           {},
		"queue, no epoch":  {Session: SessionKey{1}, Queue: 1},
		"epoch of nothing": {Session: SessionKey{1}, Epoch: 1},
	} {
		if _, err := DecodeCommit(EncodeCommit(&Commit{Seq: 1, Entries: []Entry{it}})); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := EncodeCommit(&Commit{Seq: 1, Entries: []Entry{&UnknownEntry{Kind: entrySessionNamed, Body: make([]byte, sessionNamedSize-1)}}})
	if _, err := DecodeCommit(b); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a byte less: %v", err)
	}
}
