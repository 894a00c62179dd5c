package format

import (
	"encoding/binary"
	"errors"
	"testing"
)

func goldenKeys() *Commit {
	k := &KeyCreated{ID: 7, Expires: goldenTime + 1, Scopes: 3, Name: "shop", Topics: []string{"orders", "orders.*"}}
	for i := range k.Salt {
		k.Salt[i] = 0x11
	}
	k.Hash, k.Public = hashOf(0x22), hashOf(0x33)
	return &Commit{
		Created: goldenTime, Cluster: goldenCluster, Seq: 8, Nonce: goldenNonce, Prev: hashOf(0xbb), Time: goldenTime,
		Entries: []Entry{k, &KeyRevoked{ID: 6}},
	}
}

func TestGoldenCommitOfKeys(t *testing.T) {
	file := golden(t, "commit.keys.golden")
	want := goldenKeys()
	requireBytes(t, EncodeCommit(want), file)
	got, err := DecodeCommit(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)
}

// TestKeyFieldTable builds the entries only from the table in the comment of keys.go.
func TestKeyFieldTable(t *testing.T) {
	le := binary.LittleEndian
	file := golden(t, "commit.keys.golden")
	var b []byte
	put := func(n int, with byte) {
		for range n {
			b = append(b, with)
		}
	}
	b = append(b, 9, 0, 1, 0)
	b = le.AppendUint32(b, 100+4+2+6+2+8)
	b = le.AppendUint64(le.AppendUint64(b, 7), goldenTime+1)
	b = append(b, 3, 0, 4, 0)
	put(16, 0x11)
	put(32, 0x22)
	put(32, 0x33)
	b = append(b, "shop\x06\x00orders\x08\x00orders.*"...)
	b = append(b, 10, 0, 1, 0, 8, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0)
	requireBytes(t, file[PrologueSize+commitFixedSize:], b)
}

func TestKeyThatIsCutOffIsRefused(t *testing.T) {
	k := goldenKeys().Entries[0]
	body := k.append(nil)
	for n := range body {
		got, err := decodeKeyCreated(body[:n])
		whole := n == keyFixedSize+len("shop") || n == keyFixedSize+len("shop")+2+len("orders")
		if whole != (err == nil) || err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d of %d bytes: %+v, %v", n, len(body), got, err)
		}
	}
}
