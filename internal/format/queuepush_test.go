package format

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

func goldenPush() *Commit {
	return &Commit{
		Created: goldenTime, Cluster: goldenCluster, Seq: 11, Nonce: goldenNonce, Prev: hashOf(0xef), Time: goldenTime,
		Entries: []Entry{
			&QueuePushSet{Queue: 5, Push: &QueuePush{
				URL: "https://example.com/hooks", Secret: "whsec_AAAA", TimeoutMS: 30_000, InFlight: 64, Stopped: "HTTP 410 Gone",
				Headers: []PushHeader{{"Authorization", "Bearer x"}, {"X-Empty", ""}},
			}},
			&QueuePushSet{Queue: 6, Push: &QueuePush{URL: "h", TimeoutMS: 1, InFlight: 1}},
			&QueuePushSet{Queue: 7},
		},
	}
}

func TestGoldenCommitOfPush(t *testing.T) {
	file := golden(t, "commit.push.golden")
	want := goldenPush()
	requireBytes(t, EncodeCommit(want), file)
	got, err := DecodeCommit(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)
}

// TestPushFieldTable builds the entries only from the table in the comment of queuepush.go.
func TestPushFieldTable(t *testing.T) {
	le := binary.LittleEndian
	var b []byte
	entry := func(size uint32) { b = le.AppendUint32(append(b, 25, 0, 1, 0), size) }
	u64 := func(n uint64) { b = le.AppendUint64(b, n) }
	u32 := func(n uint32) { b = le.AppendUint32(b, n) }
	u16 := func(n uint16) { b = le.AppendUint16(b, n) }
	text := func(s string) { b = append(b, s...) }

	entry(2*8 + 2*4 + 4*2 + 25 + 10 + 13 + 2*4 + 13 + 8 + 7)
	u64(5)
	u64(30_000)
	u32(64)
	u32(2)
	u16(25)
	u16(10)
	u16(13)
	u16(0)
	text("https://example.com/hookswhsec_AAAAHTTP 410 Gone")
	u16(13)
	u16(8)
	text("AuthorizationBearer x")
	u16(7)
	u16(0)
	text("X-Empty")
	entry(2*8 + 2*4 + 4*2 + 1)
	u64(6)
	u64(1)
	u32(1)
	u32(0)
	u16(1)
	u16(0)
	u16(0)
	u16(0)
	text("h")
	entry(2*8 + 2*4 + 4*2)
	u64(7)
	b = append(b, make([]byte, 24)...)
	requireBytes(t, golden(t, "commit.push.golden")[PrologueSize+commitFixedSize:], b)
}

func TestPushEntriesThatAreCutOffAreRefused(t *testing.T) {
	for _, it := range goldenPush().Entries {
		body, decode := queueBody(it)
		for n := range body {
			if err := decode(body[:n]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%d of %d bytes: %v", n, len(body), err)
			}
		}
		if err := decode(append(slices.Clone(body), 0)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("a byte follows: %v", err)
		}
	}
}

func TestImpossiblePushEntriesAreRefused(t *testing.T) {
	for name, push := range map[string]*QueuePush{
		"a secret without URL":     {Secret: "s"},
		"a timeout without URL":    {TimeoutMS: 1},
		"requests without URL":     {InFlight: 1},
		"a header without URL":     {Headers: []PushHeader{{"A", ""}}},
		"stopped without URL":      {Stopped: "s"},
		"no timeout":               {URL: "h", InFlight: 1},
		"a timeout in the past":    {URL: "h", InFlight: 1, TimeoutMS: -1},
		"no requests":              {URL: "h", TimeoutMS: 1},
		"a header twice":           {URL: "h", InFlight: 1, TimeoutMS: 1, Headers: []PushHeader{{"A", "1"}, {"A", "2"}}},
		"headers not in order":     {URL: "h", InFlight: 1, TimeoutMS: 1, Headers: []PushHeader{{"B", "1"}, {"A", "2"}}},
		"headers without any name": {URL: "h", InFlight: 1, TimeoutMS: 1, Headers: []PushHeader{{"", "1"}, {"", "2"}}},
	} {
		body, decode := queueBody(&QueuePushSet{Queue: 1, Push: push})
		if err := decode(body); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	body, decode := queueBody(&QueuePushSet{Queue: 1})
	for at, to := range map[int]byte{20: 1, 23: 0xff, 24: 1, 26: 1, 29: 0xff, 30: 1, 31: 1} {
		bent := slices.Clone(body)
		bent[at] = to
		if err := decode(bent); !errors.Is(err, ErrCorrupt) {
			t.Errorf("byte %d bent: %v", at, err)
		}
	}
}
