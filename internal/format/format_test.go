package format

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// format describes a kind of object, for tests of all kinds.
type format struct {
	name, file string
	decode     func([]byte) (any, error)
}

var formats = []format{
	{"commit", "commit.golden", func(b []byte) (any, error) { return DecodeCommit(b) }},
	{"data object", "data.golden", func(b []byte) (any, error) { return DecodeDataHead(b) }},
	{"segment", "segment.golden", func(b []byte) (any, error) { return DecodeSegmentHead(b) }},
	{"page", "page.golden", func(b []byte) (any, error) {
		_, p, err := DecodePageHead(b)
		if err == nil {
			err = p.Check(b[p.Pos:])
		}
		return &p, err
	}},
	{"checkpoint", "checkpoint.golden", func(b []byte) (any, error) { return DecodeCheckpoint(b) }},
}

// seal corrects the checksums of prologue and head, and that of a checkpoint's body.
func seal(b []byte) {
	if len(b) < PrologueSize {
		return
	}
	head := b[PrologueSize:min(len(b), PrologueSize+int(le.Uint32(b[20:])))]
	if Kind(b[18]) == KindCheckpoint && len(head) == checkpointHeadSize {
		le.PutUint32(head[64:], crc32.Checksum(b[PrologueSize+checkpointHeadSize:], castagnoli))
	}
	le.PutUint32(b[24:], crc32.Checksum(head, castagnoli))
	le.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
}

func known(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrVersion) || errors.Is(err, ErrForeign)
}

func TestEveryFlippedBitIsRefused(t *testing.T) {
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			b := golden(t, f.file)
			for i := range b {
				for bit := range 8 {
					b[i] ^= 1 << bit
					if _, err := f.decode(b); !known(err) {
						t.Fatalf("bit %d of byte %d is flipped, and the error is %v", bit, i, err)
					}
					b[i] ^= 1 << bit
				}
			}
		})
	}
}

func TestEveryTruncationIsRefused(t *testing.T) {
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			b := golden(t, f.file)
			for n := range b {
				_, err := f.decode(b[:n])
				requireIs(t, err, ErrCorrupt)
			}
		})
	}
}

// TestSealedTruncationIsRefused truncates the head and corrects the checksums.
func TestSealedTruncationIsRefused(t *testing.T) {
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			whole := golden(t, f.file)
			end := PrologueSize + int(le.Uint32(whole[20:]))
			for n := PrologueSize; n < end; n++ {
				b := slices.Concat(whole[:n], whole[end:])
				le.PutUint32(b[20:], uint32(n-PrologueSize))
				seal(b)
				_, err := f.decode(b)
				requireIs(t, err, ErrCorrupt)
			}
		})
	}
}

func TestObjectsOfOtherVersionsAndKindsAreRefused(t *testing.T) {
	for _, f := range formats {
		for _, c := range []struct {
			name   string
			change func(b []byte)
			want   error
		}{
			{"version 1", func(b []byte) { b[4] = 1 }, ErrVersion},
			{"version 3", func(b []byte) { b[4] = 3 }, ErrVersion},
			{"negative version", func(b []byte) { b[5] = 0x80 }, ErrVersion},
			{"flag", func(b []byte) { b[19] = 0x40 }, ErrVersion},
			{"next kind", func(b []byte) { b[18] = b[18]%3 + 1 }, ErrForeign},
			{"unknown kind", func(b []byte) { b[18] = 77 }, ErrForeign},
			{"magic", func(b []byte) { b[0] = 'S' }, ErrCorrupt},
			{"head of 4 GiB", func(b []byte) { le.PutUint32(b[20:], math.MaxUint32) }, ErrCorrupt},
		} {
			t.Run(f.name+", "+c.name, func(t *testing.T) {
				b := golden(t, f.file)
				c.change(b)
				le.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
				_, err := f.decode(b)
				requireIs(t, err, c.want)
			})
		}
	}
}

func TestCommitWithImpossibleFactsIsRefused(t *testing.T) {
	const firstEntry = PrologueSize + commitFixedSize + 2*dataRefSize
	batch := func(c *Commit) *Batch { return c.Entries[1].(*Batch) }
	for _, c := range []struct {
		name   string
		change func(c *Commit) // changes the commit before it is encoded
		bend   func(b []byte)  // changes the encoded bytes
		want   error
	}{
		{"batch without records", func(c *Commit) { batch(c).Count = 0 }, nil, ErrCorrupt},
		{"batch at a negative offset", func(c *Commit) { batch(c).Base = -1 }, nil, ErrCorrupt},
		{"batch beyond the last offset", func(c *Commit) { batch(c).Base = math.MaxInt64 - 1 }, nil, ErrCorrupt},
		{"batch smaller than its header", func(c *Commit) { batch(c).Size = 60 }, nil, ErrCorrupt},
		{"batch beyond the payload", func(c *Commit) { batch(c).Pos = 91 }, nil, ErrCorrupt},
		{"batch whose end overflows", func(c *Commit) { batch(c).Pos = math.MaxUint32 }, nil, ErrCorrupt},
		{"batch in a data object that is not there", func(c *Commit) { batch(c).Object = 3 }, nil, ErrCorrupt},
		{"batch beyond its data object", func(c *Commit) { c.Data[0].Size = 4095 }, nil, ErrCorrupt},
		{"data object smaller than its head", func(c *Commit) { c.Data[1].Size = 0 }, nil, ErrCorrupt},
		{"object beyond 4 GiB", func(c *Commit) { c.PayloadSize = math.MaxUint32 }, nil, ErrCorrupt},
		{"too many entries", nil, func(b []byte) { le.PutUint32(b[14:], 10) }, ErrCorrupt},
		{"too few entries", nil, func(b []byte) { le.PutUint32(b[14:], 8) }, ErrCorrupt},
		{"four billion entries", nil, func(b []byte) { le.PutUint32(b[14:], math.MaxUint32) }, ErrCorrupt},
		{"four billion data objects", nil, func(b []byte) { le.PutUint32(b[PrologueSize+84:], math.MaxUint32) }, ErrCorrupt},
		{"reserved bytes of a data object", nil, func(b []byte) { b[PrologueSize+commitFixedSize+20] = 1 }, ErrCorrupt},
		{"unknown entry flag", nil, func(b []byte) { b[firstEntry+2] |= 2 }, ErrVersion},
		{"unknown critical entry", nil, func(b []byte) { b[firstEntry+1] = 9 }, ErrVersion},
		{"entry beyond the head", nil, func(b []byte) { le.PutUint32(b[firstEntry+4:], 1<<31) }, ErrCorrupt},
		{"topic without room for its partitions", nil, func(b []byte) { le.PutUint32(b[firstEntry+4:], 11) }, ErrCorrupt},
		{"batch entry of another size", nil, func(b []byte) { b[firstEntry] = entryBatch }, ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			commit := goldenCommit()
			if c.change != nil {
				c.change(commit)
			}
			b := EncodeCommit(commit)
			if c.bend != nil {
				c.bend(b)
				seal(b)
			}
			_, err := DecodeCommit(b)
			requireIs(t, err, c.want)
		})
	}
}

func TestUnknownEntryThatIsNotCriticalSurvives(t *testing.T) {
	want := &Commit{Seq: 1, Entries: []Entry{&UnknownEntry{Kind: 777, Body: []byte{1, 2, 3}}, &UnknownEntry{Kind: 60000}, &DataFloor{Seq: 1}}}
	first := EncodeCommit(want)
	got, err := DecodeCommit(first)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)
	requireBytes(t, EncodeCommit(got), first)
}

func TestEmptyCommit(t *testing.T) {
	want := &Commit{Seq: math.MaxUint64, Time: math.MaxInt64, Created: math.MinInt64, Entries: []Entry{}}
	got, err := DecodeCommit(EncodeCommit(want))
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)
}

func TestDecodedCommitKeepsNoPartOfItsObject(t *testing.T) {
	b := golden(t, "commit.golden")
	got, err := DecodeCommit(b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	want := goldenCommit()
	EncodeCommit(want)
	requireEqual(t, got, want)
}

// If two commits differ in any field, their hashes differ.
func TestHashCoversPrologueAndHead(t *testing.T) {
	seen := map[Hash]string{}
	for name, change := range map[string]func(c *Commit){
		"nothing": func(*Commit) {},
		"created": func(c *Commit) { c.Created++ },
		"cluster": func(c *Commit) { c.Cluster[0]++ },
		"seq":     func(c *Commit) { c.Seq++ },
		"nonce":   func(c *Commit) { c.Nonce[15]++ },
		"prev":    func(c *Commit) { c.Prev[31]++ },
		"time":    func(c *Commit) { c.Time++ },
		"payload": func(c *Commit) { c.PayloadSize++ },
		"data":    func(c *Commit) { c.Data[1].ID++ },
		"entry":   func(c *Commit) { c.Entries[1].(*Batch).CRC++ },
	} {
		c := goldenCommit()
		change(c)
		EncodeCommit(c)
		if other, ok := seen[c.Hash]; ok {
			t.Fatalf("%s and %s have the same hash", name, other)
		}
		seen[c.Hash] = name
	}
}

func TestDataObjectOf4GiBIsRefused(t *testing.T) {
	h := goldenData()
	h.PayloadSize = math.MaxUint32 - DataPayloadStart
	if got, err := DecodeDataHead(EncodeDataHead(h)); err != nil || got.Ref.Size != math.MaxUint32 {
		t.Fatalf("got %+v, %v", got, err)
	}
	h.PayloadSize++
	_, err := DecodeDataHead(EncodeDataHead(h))
	requireIs(t, err, ErrCorrupt)
}

func TestCheckpointOfAnotherShapeIsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		bend func(b []byte) []byte
		want error
	}{
		{"encoding", func(b []byte) []byte { b[PrologueSize+68] = 1; return b }, ErrVersion},
		{"index pages", func(b []byte) []byte { b[14] = 1; return b }, ErrVersion},
		{"longer body", func(b []byte) []byte { return append(b, 0) }, ErrCorrupt},
		{"shorter body", func(b []byte) []byte { return b[:len(b)-1] }, ErrCorrupt},
		{"size beyond all bounds", func(b []byte) []byte { b[PrologueSize+63] = 0xff; return b }, ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.bend(golden(t, "checkpoint.golden"))
			seal(b)
			_, err := DecodeCheckpoint(b)
			requireIs(t, err, c.want)
		})
	}
}

func TestClusterFileWithNonsenseIsRefused(t *testing.T) {
	const id = `"cluster_id": "5eb002030405060708090a0b0c0d0e0f"`
	for _, c := range []struct {
		name, text string
		want       error
	}{
		{"empty", ``, ErrCorrupt},
		{"not JSON", `seb`, ErrCorrupt},
		{"truncated", `{` + id, ErrCorrupt},
		{"something behind it", `{` + id + `, "format": 2, "delete_delay": "24h", "margin": "1h"} x`, ErrCorrupt},
		{"null", `null`, ErrVersion},
		{"another format", `{` + id + `, "format": 3, "delete_delay": "24h", "margin": "1h"}`, ErrVersion},
		{"no cluster", `{"format": 2, "delete_delay": "24h", "margin": "1h"}`, ErrCorrupt},
		{"short cluster id", `{"cluster_id": "5e", "format": 2, "delete_delay": "24h", "margin": "1h"}`, ErrCorrupt},
		{"cluster id of other letters", `{"cluster_id": "` + strings.Repeat("x", 32) + `", "format": 2}`, ErrCorrupt},
		{"duration without a unit", `{` + id + `, "format": 2, "delete_delay": "24", "margin": "1h"}`, ErrCorrupt},
		{"no delay", `{` + id + `, "format": 2, "margin": "0s"}`, ErrCorrupt},
		{"negative margin", `{` + id + `, "format": 2, "delete_delay": "24h", "margin": "-1h"}`, ErrCorrupt},
		{"delay below four margins", `{` + id + `, "format": 2, "delete_delay": "3h59m59.999999999s", "margin": "1h"}`, ErrCorrupt},
		{"margin whose fourfold overflows", `{` + id + `, "format": 2, "delete_delay": "24h", "margin": "1000000h"}`, ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := DecodeCluster([]byte(c.text))
			requireIs(t, err, c.want)
		})
	}
	c := goldenClusterFile()
	c.DeleteDelay = 4 * c.Margin
	b, err := EncodeCluster(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeCluster(b); err != nil {
		t.Fatalf("exactly four margins: %v", err)
	}
}

// A single wrong bit could name another cluster, or let a broker trust an old answer for too
// long.
func TestEveryBitOfTheClusterFileCounts(t *testing.T) {
	file, err := os.ReadFile("testdata/seb.json.crc.golden")
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(file) * 8 {
		bent := bytes.Clone(file)
		bent[i/8] ^= 1 << (i % 8)
		if c, err := DecodeCluster(bent); err == nil {
			t.Errorf("bit %d flipped is read as %+v", i, c)
		}
	}
}

func TestDurationIsWrittenAsGoWritesIt(t *testing.T) {
	for _, d := range []time.Duration{0, 1, -time.Second, 24 * time.Hour, math.MaxInt64, math.MinInt64} {
		text, err := Duration(d).MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var got Duration
		if err := got.UnmarshalText(text); err != nil || time.Duration(got) != d {
			t.Fatalf("%v came back from %s as %v, %v", d, text, time.Duration(got), err)
		}
	}
}

func TestKeysSortAsTheirSlots(t *testing.T) {
	seqs := []Seq{0, 1, 9, 10, 99, 1 << 32, math.MaxInt64, math.MaxUint64}
	var keys []string
	for _, s := range seqs {
		key := LogKey(s)
		if got, ok := ParseSeqKey(LogPrefix, key); !ok || got != s {
			t.Fatalf("%s parses as %d, %v", key, got, ok)
		}
		keys = append(keys, key)
	}
	if !slices.IsSorted(keys) {
		t.Fatalf("keys are not in order: %q", keys)
	}
	requireEqual(t, LogKey(42), "log/00000000000000000042")
	requireEqual(t, CheckpointKey(math.MaxUint64), "checkpoint/18446744073709551615")
	requireEqual(t, DataRef{Seq: 42, ID: 0xabc}.Key(), "data/00000000000000000042-0000000000000abc")
}

func TestOnlyExactKeysAreSlots(t *testing.T) {
	for _, key := range []string{
		"", "log/", "log/1", "log/0000000000000000001", "log/000000000000000000001", "log/0000000000000000000x",
		"log/+0000000000000000001", "log/-0000000000000000001", "log/ 0000000000000000001", "log/0000000000000000_001",
		"log/00000000000000000001/", "log/00000000000000000001\n", "x/log/00000000000000000001",
		"checkpoint/00000000000000000001", "log/18446744073709551616", "log/99999999999999999999",
	} {
		if s, ok := ParseSeqKey(LogPrefix, key); ok {
			t.Errorf("%q parses as slot %d", key, s)
		}
	}
}

func TestListFromASlotBeginsWithIt(t *testing.T) {
	for _, s := range []Seq{1, 2, 10, math.MaxUint64} {
		after := AfterKey(LogPrefix, s)
		if after >= LogKey(s) || after != LogKey(s-1) {
			t.Errorf("a List from slot %d goes on after %s", s, after)
		}
	}
	requireEqual(t, AfterKey(LogPrefix, 0), "")
}

func TestNamesInMessages(t *testing.T) {
	got := fmt.Sprint(KindCommit, KindData, KindCheckpoint, Kind(9), goldenCluster, hashOf(0xab))
	want := "commit data checkpoint kind 9 5eb002030405060708090a0b0c0d0e0f " + strings.Repeat("ab", 32)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	if got := goldenNonce.Tag(); got != 0xa7a6a5a4a3a2a1a0 {
		t.Fatalf("tag is %x", got)
	}
}

func TestDataKeysHaveOneForm(t *testing.T) {
	for _, d := range []DataRef{{}, {Seq: 42, ID: 0xabc}, {Seq: math.MaxUint64, ID: math.MaxUint64}} {
		if got, ok := ParseDataKey(d.Key()); !ok || got != d {
			t.Errorf("%s is %v, %v", d.Key(), got, ok)
		}
	}
	for _, key := range []string{
		"", "data/", "data/-", "data/00000000000000000042", "data/42-0000000000000abc", "data/00000000000000000042-abc",
		"data/00000000000000000042-0000000000000ABC", "data/00000000000000000042-+000000000000abc", "data/00000000000000000042-0000000000000abc0",
		"data/99999999999999999999-0000000000000abc", "log/00000000000000000042-0000000000000abc", "x/data/00000000000000000042-0000000000000abc",
	} {
		if d, ok := ParseDataKey(key); ok {
			t.Errorf("%q is taken for %v", key, d)
		}
	}
}
