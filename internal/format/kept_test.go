package format

import (
	"testing"
	"time"
)

func goldenKept() *Commit {
	return &Commit{
		Created: goldenTime, Cluster: goldenCluster, Seq: 9, Nonce: goldenNonce, Prev: hashOf(0xdd), Time: goldenTime,
		Entries: []Entry{
			&DelaySet{Delay: 30 * 24 * time.Hour},
			&Held{ID: 0xfedcba9876543210, Slot: 7, Until: goldenTime + 1},
			&Held{ID: 1, Slot: 1 << 40},
		},
	}
}

func TestGoldenKeptEntries(t *testing.T) {
	file := golden(t, "commit.kept.golden")
	want := goldenKept()
	requireBytes(t, EncodeCommit(want), file)
	got, err := DecodeCommit(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)
	for _, bad := range []Entry{&DelaySet{}, &DelaySet{-time.Hour}, &Held{ID: 1, Until: 1}, &Held{ID: 1, Slot: 1, Until: -1}} {
		c := goldenKept()
		c.Entries[0] = bad
		if _, err := DecodeCommit(EncodeCommit(c)); err == nil {
			t.Errorf("%+v is read", bad)
		}
	}
}
