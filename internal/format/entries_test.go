package format

import (
	"math"
	"testing"
)

// goldenEntries returns a commit with the entries that are newer than goldenCommit.
func goldenEntries() *Commit {
	return &Commit{
		Created: goldenTime,
		Cluster: goldenCluster,
		Seq:     8,
		Nonce:   goldenNonce,
		Prev:    hashOf(0xdd),
		Time:    goldenTime,
		Entries: []Entry{
			&StartMoved{Topic: 3, Partition: 1, Start: 2},
			&TopicConfigured{Topic: 3, Config: TopicConfig{RetentionMS: 604_800_000, RetentionBytes: 1 << 30}},
			&AppendKeyed{Topic: 3, Key: Digest(goldenNonce), Print: Digest{1, 2, 3}, Ranges: []KeyedRange{
				{Partition: 0, Count: 7, Base: 0}, {Partition: 1, Count: 1, Base: 1 << 40},
			}},
		},
	}
}

func TestGoldenEntries(t *testing.T) {
	file := golden(t, "facts.golden")
	want := goldenEntries()
	requireBytes(t, EncodeCommit(want), file)
	got, err := DecodeCommit(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)
}

func TestKeyOfWhatHasNoRecords(t *testing.T) {
	want := &Commit{Seq: 1, Entries: []Entry{&AppendKeyed{Key: Digest{1}, Print: Digest{2}}}}
	got, err := DecodeCommit(EncodeCommit(want))
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)
}

func TestImpossibleEntriesAreRefused(t *testing.T) {
	const firstEntry = PrologueSize + commitFixedSize
	keyed := func(c *Commit) *AppendKeyed { return c.Entries[2].(*AppendKeyed) }
	for _, c := range []struct {
		name   string
		change func(c *Commit) // changes the commit before it is encoded
		bend   func(b []byte)  // changes the encoded bytes
	}{
		{"keyed append of no records", func(c *Commit) { keyed(c).Ranges[1].Count = 0 }, nil},
		{"keyed append before the first offset", func(c *Commit) { keyed(c).Ranges[0].Base = -1 }, nil},
		{"keyed append beyond the last offset", func(c *Commit) { keyed(c).Ranges[0].Base = math.MaxInt64 - 1 }, nil},
		{"half a range", nil, func(b []byte) { le.PutUint32(b[firstEntry+2*(8+24)+4:], 40+16+8) }},
		{"reserved bytes of a start", nil, func(b []byte) { b[firstEntry+8+12] = 1 }},
		{"start of another size", nil, func(b []byte) { le.PutUint32(b[firstEntry+4:], 16) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			commit := goldenEntries()
			if c.change != nil {
				c.change(commit)
			}
			b := EncodeCommit(commit)
			if c.bend != nil {
				c.bend(b)
				seal(b)
			}
			_, err := DecodeCommit(b)
			requireIs(t, err, ErrCorrupt)
		})
	}
}
