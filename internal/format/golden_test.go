package format

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The files in testdata have format version 2. They never change: a version of Seb that can't
// read them can't read existing buckets.

var (
	goldenCluster = ClusterID{0x5e, 0xb0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	goldenNonce   = Nonce{0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf}
)

const goldenTime = 1_790_000_000_123_456 // microseconds

func hashOf(b byte) (h Hash) {
	for i := range h {
		h[i] = b
	}
	return h
}

// goldenCommit has an entry of every kind, and a batch in each kind of object.
func goldenCommit() *Commit {
	return &Commit{
		Created:     goldenTime,
		Cluster:     goldenCluster,
		Seq:         7,
		Nonce:       goldenNonce,
		Prev:        hashOf(0xbb),
		Time:        goldenTime - 1,
		PayloadSize: 170,
		Data:        []DataRef{{Seq: 5, ID: 0x0102030405060708, Size: 4096}, {Seq: 6, ID: 9, Size: 300}},
		Entries: []Entry{
			&TopicCreated{ID: 3, Partitions: 4, Name: "orders.eu"},
			&Batch{Topic: 3, Partition: 1, Base: 0, MaxTime: 1_790_000_000_000, Count: 2, Pos: 0, Size: 80, CRC: 0xdeadbeef},
			&Batch{Topic: 3, Partition: 1, Base: 2, MaxTime: -1, Count: 1, Pos: 80, Size: 90, CRC: 1},
			&Batch{Topic: 1, Partition: 0, Object: 1, Base: 1 << 40, MaxTime: 1, Count: 1000, Pos: 100, Size: 3916, CRC: 2},
			&Batch{Topic: 1, Partition: 0, Object: 2, Base: 1<<40 + 1000, MaxTime: 2, Count: 1, Pos: 0, Size: 220, CRC: 3},
			&PartitionsAdded{Topic: 1, Partitions: 16},
			&TopicDeleted{ID: 2},
			&DataFloor{Seq: 4},
			&UnknownEntry{Kind: 999, Body: []byte("from the future")},
		},
	}
}

func goldenData() *DataHead {
	return &DataHead{
		Cluster:     goldenCluster,
		Ref:         DataRef{Seq: 5, ID: 0x0102030405060708, Size: 4096},
		Created:     goldenTime,
		Batches:     3,
		PayloadSize: 4096 - DataPayloadStart,
	}
}

func goldenCheckpoint() *Checkpoint {
	return &Checkpoint{Cluster: goldenCluster, Seq: 7, Hash: hashOf(0xcc), Created: goldenTime, Body: []byte("the state as of slot 7")}
}

func goldenClusterFile() Cluster {
	return Cluster{
		ID:          goldenCluster,
		Format:      2,
		DeleteDelay: Duration(24 * time.Hour),
		Margin:      Duration(time.Hour),
		Created:     time.Date(2026, 11, 21, 8, 30, 0, 0, time.UTC),
	}
}

// golden returns the bytes of a golden file of hex digits.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func requireBytes(t testing.TB, got, want []byte) {
	t.Helper()
	if string(got) != string(want) {
		t.Fatalf("encoded\n%x\nwant\n%x", got, want)
	}
}

func TestGoldenCommit(t *testing.T) {
	file := golden(t, "commit.golden")
	want := goldenCommit()
	encoded := EncodeCommit(want) // also sets PayloadStart and Hash
	requireBytes(t, encoded, file)
	got, err := DecodeCommit(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)
	if got.PayloadStart != uint32(len(file)) || got.Size() != int64(len(file))+170 {
		t.Fatalf("payload starts at %d of %d; the head has %d bytes", got.PayloadStart, got.Size(), len(file))
	}
	// The payload after the head does not change what is decoded.
	if got, err = DecodeCommit(append(file, make([]byte, 170)...)); err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)
}

func TestGoldenDataObject(t *testing.T) {
	file := golden(t, "data.golden")
	requireBytes(t, EncodeDataHead(goldenData()), file)
	got, err := DecodeDataHead(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, goldenData())
	if len(file) != DataPayloadStart {
		t.Fatalf("the payload starts at %d, not %d", len(file), DataPayloadStart)
	}
}

func TestGoldenCheckpoint(t *testing.T) {
	file := golden(t, "checkpoint.golden")
	c := goldenCheckpoint()
	requireBytes(t, append(EncodeCheckpoint(c), c.Body...), file)
	got, err := DecodeCheckpoint(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, c)
}

func TestGoldenClusterFile(t *testing.T) {
	file, err := os.ReadFile("testdata/seb.json.crc.golden")
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := EncodeCluster(goldenClusterFile())
	if err != nil {
		t.Fatal(err)
	}
	requireBytes(t, encoded, file)
	got, err := DecodeCluster(file)
	if err != nil {
		t.Fatal(err)
	}
	want := goldenClusterFile()
	want.Checksum = "90f1eefe"
	requireEqual(t, got, want)
}

// The first versions of Seb wrote seb.json without a checksum.
func TestGoldenClusterFileWithoutChecksum(t *testing.T) {
	file, err := os.ReadFile("testdata/seb.json.golden")
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeCluster(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, goldenClusterFile())
}

// TestCommitFieldTable builds a commit only from the tables in the comments.
func TestCommitFieldTable(t *testing.T) {
	u16, u32, u64 := binary.LittleEndian.AppendUint16, binary.LittleEndian.AppendUint32, binary.LittleEndian.AppendUint64
	entry := func(b []byte, kind, flags uint16, body []byte) []byte {
		return append(u32(u16(u16(b, kind), flags), uint32(len(body))), body...)
	}
	c := goldenCommit()

	head := append([]byte(nil), c.Cluster[:]...)
	head = u64(head, 7)
	head = append(head, c.Nonce[:]...)
	head = append(head, c.Prev[:]...)
	head = u64(head, goldenTime-1)
	head = u32(head, 170)
	head = u32(head, 2)
	head = u32(u32(u64(u64(head, 5), 0x0102030405060708), 4096), 0)
	head = u32(u32(u64(u64(head, 6), 9), 300), 0)
	head = entry(head, 2, 1, append(u32(u64(nil, 3), 4), "orders.eu"...))
	for _, it := range c.Entries[1:5] {
		x := it.(*Batch)
		body := u32(u32(u64(nil, uint64(x.Topic)), uint32(x.Partition)), x.Object)
		body = u64(u64(body, uint64(x.Base)), uint64(x.MaxTime))
		head = entry(head, 1, 1, u32(u32(u32(u32(body, x.Count), x.Pos), x.Size), x.CRC))
	}
	head = entry(head, 4, 1, u32(u64(nil, 1), 16))
	head = entry(head, 3, 1, u64(nil, 2))
	head = entry(head, 5, 1, u64(nil, 4))
	head = entry(head, 999, 0, []byte("from the future"))

	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	b := append([]byte("seb!"), 2, 0)
	b = u64(b, goldenTime)
	b = u32(b, 9) // entries
	b = append(b, 1, 0)
	b = u32(b, uint32(len(head)))
	b = u32(b, crc32.Checksum(head, castagnoli))
	b = u32(b, crc32.Checksum(b, castagnoli))
	requireBytes(t, golden(t, "commit.golden"), append(b, head...))
}

// TestDataAndCheckpointFieldTables builds a data object and a checkpoint only from the tables in
// the comments.
func TestDataAndCheckpointFieldTables(t *testing.T) {
	u32, u64 := binary.LittleEndian.AppendUint32, binary.LittleEndian.AppendUint64
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	object := func(kind byte, count uint32, head []byte) []byte {
		b := u32(u64(append([]byte("seb!"), 2, 0), goldenTime), count)
		b = u32(append(b, kind, 0), uint32(len(head)))
		b = u32(b, crc32.Checksum(head, castagnoli))
		return append(u32(b, crc32.Checksum(b, castagnoli)), head...)
	}

	data := u64(u64(append([]byte(nil), goldenCluster[:]...), 5), 0x0102030405060708)
	data = append(u32(data, 4096-80), make([]byte, 12)...)
	requireBytes(t, golden(t, "data.golden"), object(2, 3, data))

	body := "the state as of slot 7"
	checkpoint := u64(append([]byte(nil), goldenCluster[:]...), 7)
	checkpoint = append(checkpoint, strings.Repeat("\xcc", 32)...)
	checkpoint = u64(checkpoint, uint64(len(body)))
	checkpoint = u32(u32(checkpoint, crc32.Checksum([]byte(body), castagnoli)), 0)
	requireBytes(t, golden(t, "checkpoint.golden"), append(object(3, 0, checkpoint), body...))
}
