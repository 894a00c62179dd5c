package format

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
)

func goldenMarks() *Commit {
	return &Commit{
		Created: goldenTime, Cluster: goldenCluster, Seq: 13, Nonce: goldenNonce, Prev: hashOf(0xfe), Time: goldenTime,
		Entries: []Entry{
			&WriterMark{Session: SessionKey(hashOf(0x11)).ID(), Pause: 0x1234, Address: "http://10.0.0.1:51313"},
			&WriterMark{Session: SessionID{15: 1}},
		},
	}
}

func TestGoldenCommitOfMarks(t *testing.T) {
	file := golden(t, "commit.marks.golden")
	want := goldenMarks()
	requireBytes(t, EncodeCommit(want), file)
	got, err := DecodeCommit(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)
}

// TestMarkFieldTable builds the entries only from the table in the comment of marks.go. The session's id is the
// output of sha256sum for 32 bytes 0x11, cut off after 16 bytes.
func TestMarkFieldTable(t *testing.T) {
	le := binary.LittleEndian
	var b []byte
	for _, x := range []struct {
		session []byte
		pause   uint16
		address string
	}{
		{[]byte("\x02\xd4\x49\xa3\x1f\xbb\x26\x7c\x8f\x35\x2e\x99\x68\xa7\x9e\x3e"), 0x1234, "http://10.0.0.1:51313"},
		{append(make([]byte, 15), 1), 0, ""},
	} {
		b = le.AppendUint32(append(b, 34, 0, 0, 0), uint32(24+len(x.address)))
		b = append(b, x.session...)
		b = le.AppendUint16(append(b, 1, 0), x.pause)
		b = append(le.AppendUint32(b, uint32(len(x.address))), x.address...)
	}
	requireBytes(t, golden(t, "commit.marks.golden")[PrologueSize+commitFixedSize:], b)
}

func TestImpossibleMarksAreRefused(t *testing.T) {
	session := SessionID{1}
	for name, it := range map[string]Entry{
		"no session":          &WriterMark{},
		"an address too long": &WriterMark{Session: session, Address: strings.Repeat("a", WriterAddressMax+1)},
		"a byte less":         &UnknownEntry{Kind: entryMark, Body: make([]byte, markFixedSize-1)},
		"a byte more":         &UnknownEntry{Kind: entryMark, Body: append((&WriterMark{Session: session}).append(nil), 'a')},
	} {
		if _, err := DecodeCommit(EncodeCommit(&Commit{Seq: 1, Entries: []Entry{it}})); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMarksOfNewerVersionsAreKeptAsTheyAre(t *testing.T) {
	body := (&WriterMark{Session: SessionID{1}, Address: "a"}).append(nil)
	body[16] = 3 // the form
	want := []Entry{&UnknownEntry{Kind: entryMark, Body: slices.Clone(body)}}
	got, err := DecodeCommit(EncodeCommit(&Commit{Seq: 1, Entries: want}))
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got.Entries, want)
}
