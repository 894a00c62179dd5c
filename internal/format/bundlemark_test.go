package format

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

func goldenBundleMark() *BundleMark {
	return &BundleMark{
		Session: SessionKey(hashOf(0x11)).ID(), Number: 3, Draw: [16]byte(goldenNonce), Seal: hashOf(0x22), Requests: 9,
		Changes: []uint32{2, 0},
		Merged:  []MergedBatch{{Index: 1, Base: 500}, {Index: 4, Base: 7}},
		Verdicts: []Verdict{
			{Request: 0, Code: VerdictAgain},
			{Request: 4, Code: VerdictReplayed},
			{Request: 8, Code: VerdictRefused, Refusal: MarkedRefusal{Code: "end_conflict", Part: "0", Detail: "d", Numbers: [2]int64{12, -1}}},
		},
	}
}

func goldenBundleMarks() *Commit {
	return &Commit{
		Created: goldenTime, Cluster: goldenCluster, Seq: 14, Nonce: goldenNonce, Prev: hashOf(0xfe), Time: goldenTime,
		Entries: []Entry{
			&WriterMark{Session: SessionID{15: 1}},
			goldenBundleMark(),
			&BundleMark{Session: SessionID{15: 2}, Number: 1, Requests: 1},
		},
	}
}

func TestGoldenCommitOfBundleMarks(t *testing.T) {
	file := golden(t, "commit.bundlemarks.golden")
	want := goldenBundleMarks()
	requireBytes(t, EncodeCommit(want), file)
	got, err := DecodeCommit(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)
	for i, entry := range []int{0, 1, 2} { // older versions skip marks, so none of them is critical
		at := PrologueSize + commitFixedSize
		for range entry {
			at += entryHeaderSize + int(le.Uint32(file[at+4:]))
		}
		if flags := le.Uint16(file[at+2:]); flags != 0 {
			t.Errorf("mark %d has the flags %#x", i, flags)
		}
	}
}

// TestBundleMarkFieldTable builds an entry only from the table in the comment of bundlemark.go.
func TestBundleMarkFieldTable(t *testing.T) {
	le := binary.LittleEndian
	var b []byte
	b = append(b, "\x02\xd4\x49\xa3\x1f\xbb\x26\x7c\x8f\x35\x2e\x99\x68\xa7\x9e\x3e"...)
	b = le.AppendUint32(le.AppendUint16(le.AppendUint16(b, 2), 0), 9)
	b = append(le.AppendUint64(b, 3), goldenNonce[:]...)
	b = append(b, strings.Repeat("\x22", 32)...)
	for _, n := range []uint32{2, 2, 3, 0, 2, 0} {
		b = le.AppendUint32(b, n)
	}
	for _, n := range []uint64{1, 500, 4, 7} {
		b = le.AppendUint64(b, n)
	}
	text := "\x0c\x00end_conflict\x01\x000\x01\x00d\x00\x00"
	for _, v := range []struct {
		request uint32
		code    uint16
		numbers [2]int64
		text    string
	}{{0, 1, [2]int64{}, ""}, {4, 2, [2]int64{}, ""}, {8, 3, [2]int64{12, -1}, text}} {
		b = le.AppendUint16(le.AppendUint16(le.AppendUint32(b, v.request), v.code), uint16(len(v.text)))
		b = le.AppendUint64(le.AppendUint64(b, uint64(v.numbers[0])), uint64(v.numbers[1]))
		b = append(le.AppendUint32(b, 0), v.text...)
	}
	requireBytes(t, goldenBundleMark().append(nil), b)
}

func TestImpossibleBundleMarksAreRefused(t *testing.T) {
	for name, change := range map[string]func(m *BundleMark){
		"no session":                 func(m *BundleMark) { m.Session = SessionID{} },
		"no number":                  func(m *BundleMark) { m.Number = 0 },
		"more changes than requests": func(m *BundleMark) { m.Requests = 1 },
		"a verdict of no request":    func(m *BundleMark) { m.Verdicts[2].Request = 9 },
		"verdicts out of order":      func(m *BundleMark) { m.Verdicts[1].Request = 0 },
		"a verdict without code":     func(m *BundleMark) { m.Verdicts[0].Code = 0 },
		"a text too long":            func(m *BundleMark) { m.Verdicts[2].Refusal.Detail = strings.Repeat("x", verdictTextMax) },
		"merged out of order":        func(m *BundleMark) { m.Merged[1].Index = 1 },
		"a negative offset":          func(m *BundleMark) { m.Merged[0].Base = -1 },
	} {
		m := goldenBundleMark()
		change(m)
		if _, err := DecodeCommit(EncodeCommit(&Commit{Seq: 1, Entries: []Entry{m}})); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	whole := goldenBundleMark().append(nil)
	for n := markFixedSize; n < len(whole); n++ {
		if m, _, err := decodeMark(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes are decoded as %+v", n, len(whole), m)
		}
	}
	if _, _, err := decodeMark(append(whole, 0)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a byte more: %v", err)
	}
}

func TestLongRefusalsAreShortened(t *testing.T) {
	long := strings.Repeat("x", 5000)
	m := goldenBundleMark()
	r := &m.Verdicts[2].Refusal
	r.Code, r.Part, r.Detail, r.Hint = long, long, long, long
	r.Shorten()
	if _, err := DecodeCommit(EncodeCommit(&Commit{Seq: 1, Entries: []Entry{m}})); err != nil {
		t.Error(err)
	}
}
