package format

import (
	"encoding/binary"
	"math"
	"testing"
)

func goldenSpent() *Commit {
	return &Commit{
		Created: goldenTime, Cluster: goldenCluster, Seq: 9, Nonce: goldenNonce, Prev: hashOf(0xdd), Time: goldenTime,
		Entries: []Entry{
			&Spent{Causes: []CauseUse{
				{CauseStart, StoreUse{Creates: 8, Gets: 300, Lists: 2, Deletes: 1, SentBytes: 640, ReceivedBytes: 1 << 20}},
				{CauseAppend, StoreUse{Creates: 240, SentBytes: 1 << 30}},
				{CauseDelete, StoreUse{Deletes: math.MaxInt64}},
				{CausesMax, StoreUse{Lists: 1}},
			}},
		},
	}
}

func TestGoldenSpentEntry(t *testing.T) {
	file := golden(t, "commit.spent.golden")
	want := goldenSpent()
	requireBytes(t, EncodeCommit(want), file)
	got, err := DecodeCommit(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)
}

// TestSpentFieldTable builds an entry only from the table in the comment.
func TestSpentFieldTable(t *testing.T) {
	var b []byte
	for _, n := range []uint64{
		4, // causes
		1, 8, 300, 2, 1, 640, 1 << 20,
		1, 240, 0, 0, 0, 1 << 30, 0,
		5, 0, 0, 0, math.MaxInt64, 0, 0,
		24, 0, 0, 1, 0, 0, 0,
	} {
		b = binary.AppendUvarint(b, n)
	}
	requireBytes(t, goldenSpent().Entries[0].append(nil), b)
	for n := range b {
		c := &Commit{Seq: 1, Entries: []Entry{&cutEntry{entrySpent, b[:n]}}}
		_, err := DecodeCommit(EncodeCommit(c))
		requireIs(t, err, ErrCorrupt)
	}
}

func TestInvalidSpentEntries(t *testing.T) {
	one := StoreUse{Gets: 1}
	for name, causes := range map[string][]CauseUse{
		"no causes":        nil,
		"cause 0":          {{0, one}},
		"cause 32":         {{32, one}},
		"a cause twice":    {{CauseRead, one}, {CauseRead, one}},
		"causes fall":      {{CauseRead, one}, {CauseAppend, one}},
		"no requests":      {{CauseRead, StoreUse{}}},
		"a number below 0": {{CauseRead, StoreUse{Gets: -1}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeCommit(EncodeCommit(&Commit{Seq: 1, Entries: []Entry{&Spent{causes}}}))
			requireIs(t, err, ErrCorrupt)
		})
	}
	body := (&Spent{[]CauseUse{{CauseRead, one}}}).append(nil)
	_, err := DecodeCommit(EncodeCommit(&Commit{Seq: 1, Entries: []Entry{&cutEntry{entrySpent, append(body, 0)}}}))
	requireIs(t, err, ErrCorrupt)
}

func TestSumsOfUses(t *testing.T) {
	a, b := StoreUse{1, 2, 3, 4, 5, 6}, StoreUse{10, 20, 30, 40, 50, 60}
	if sum := a.Plus(b); sum != (StoreUse{11, 22, 33, 44, 55, 66}) || sum.Minus(a) != b {
		t.Errorf("the sum is %+v", sum)
	}
	if !b.Covers(a) || a.Covers(b) || b.Covers(StoreUse{ReceivedBytes: 61}) || !a.Covers(a) {
		t.Errorf("%+v covers %+v: %v", b, a, b.Covers(a))
	}
	if sum := (StoreUse{Gets: math.MaxInt64}).Plus(a); sum.Gets != math.MaxInt64 || sum.Creates != 1 {
		t.Errorf("the sum beyond the largest number is %+v", sum)
	}
}
