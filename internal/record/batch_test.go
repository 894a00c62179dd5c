package record

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// golden is a batch that was written by hand, field by field.
const golden = "0000000000000000" + // base offset
	"0000006b" + // length: 119 - 12
	"00000000" + // leader epoch
	"02" + // magic
	"fe21afd9" + // CRC-32C of all that follows
	"0000" + // attributes
	"00000002" + // last offset delta
	"000000000000000a" + // base timestamp 10
	"000000000000000c" + // max timestamp 12
	"ffffffffffffffff" + "ffff" + "ffffffff" + // no producer
	"00000003" + // count
	// record 0: 16 bytes; time +0, offset +0, key "k", value "hello", header "h" = "v"
	"20" + "00" + "00" + "00" + "02" + "6b" + "0a" + "68656c6c6f" + "02" + "02" + "68" + "02" + "76" + // one header
	// record 1: 6 bytes; time +2, offset +1, null key, empty value
	"0c" + "00" + "04" + "02" + "01" + "00" + "00" +
	// record 2: 33 bytes; time -3, offset +2, empty key, null value, headers "a" = null and 20 bytes named "bb"
	"42" + "00" + "05" + "04" + "00" + "01" + "04" +
	"02" + "61" + "01" +
	"04" + "6262" + "28" + "3031323334353637383930313233343536373839"

func goldenRecords() []Record {
	return []Record{
		{Key: []byte("k"), Value: []byte("hello"), Headers: []Header{{"h", []byte("v")}}, Timestamp: 10, Offset: 0},
		{Value: []byte{}, Timestamp: 12, Offset: 1},
		{
			Key: []byte{}, Timestamp: 7, Offset: 2,
			Headers: []Header{{"a", nil}, {"bb", []byte("01234567890123456789")}},
		},
	}
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// build returns a batch of the records rs, compressed by c.
func build(t testing.TB, c Codec, rs []Record) []byte {
	t.Helper()
	var b Builder
	for i := range rs {
		b.Append(&rs[i])
	}
	p, err := b.FinishWith(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// read returns all records of the batch p.
func read(t testing.TB, p []byte, base int64) []Record {
	t.Helper()
	x, err := Parse(p)
	if err != nil {
		t.Fatal(err)
	}
	var rs []Record
	for r, err := range x.Records(p, base, Limits{}) {
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
	return rs
}

// reseal corrects length and CRC of p.
func reseal(p []byte) []byte {
	binary.BigEndian.PutUint32(p[lengthAt:], uint32(len(p)-lengthEnd))
	binary.BigEndian.PutUint32(p[crcAt:], crc32.Checksum(p[attributesAt:], castagnoli))
	return p
}

func TestGoldenBatch(t *testing.T) {
	want := unhex(t, golden)
	if got := build(t, None, goldenRecords()); !slices.Equal(got, want) {
		t.Fatalf("built\n%x, want\n%x", got, want)
	}
	x, err := Check(want, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	wantHeader := Batch{
		Size: 119, CRC: 0xfe21afd9, Count: 3, Span: 3, BaseTimestamp: 10, MaxTimestamp: 12,
		ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1,
	}
	if diff := cmp.Diff(wantHeader, x); diff != "" {
		t.Fatal(diff)
	}
	if diff := cmp.Diff(goldenRecords(), read(t, want, 0)); diff != "" {
		t.Fatal(diff)
	}
}

func TestReadsWhatKafkaClientsWrite(t *testing.T) {
	want := []Record{
		{Key: []byte("key"), Value: []byte("value"), Timestamp: 1700000000123, Offset: 40},
		{
			Value: []byte{}, Timestamp: 1700000000100, Offset: 41,
			Headers: []Header{{"trace", []byte("0af7651916cd43dd")}, {"trace", nil}, {"empty", []byte{}}},
		},
		{Key: []byte{}, Timestamp: 1700000005000, Offset: 42},
		{Key: []byte("k2"), Value: []byte(strings.Repeat("x", 300)), Timestamp: 1700000001000, Offset: 43},
	}
	load := func(t *testing.T, name string) []byte {
		p, err := os.ReadFile(filepath.Join("testdata", "kafka", name+".batch"))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []Codec{None, Gzip, Snappy, LZ4, Zstd} {
		t.Run(c.String(), func(t *testing.T) {
			p := load(t, c.String())
			x, err := Check(p, Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if x.Codec != c || x.Count != 4 || x.MaxTimestamp != 1700000005000 || x.Size != len(p) {
				t.Fatalf("header %+v", x)
			}
			if diff := cmp.Diff(want, read(t, p, 40)); diff != "" {
				t.Fatal(diff)
			}
		})
	}
	t.Run("our bytes are the same", func(t *testing.T) {
		got, want := build(t, None, want), load(t, "none")
		Stamp(got, 0, -1) // the client leaves the leader epoch to the broker
		if !slices.Equal(got, want) {
			t.Fatalf("built\n%x, want\n%x", got, want)
		}
	})
	t.Run("log append time", func(t *testing.T) {
		p := load(t, "logappend")
		x, err := Check(p, Limits{})
		if err != nil || !x.LogAppendTime() || x.MaxTimestamp != 1700000009999 {
			t.Fatal(x, err)
		}
		for _, r := range read(t, p, 0) {
			if r.Timestamp != 1700000009999 {
				t.Errorf("record %d has time %d", r.Offset, r.Timestamp)
			}
		}
	})
	t.Run("control", func(t *testing.T) {
		if _, err := Check(load(t, "control"), Limits{}); !errors.Is(err, ErrControl) {
			t.Fatal(err)
		}
	})
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	good := unhex(t, golden)
	crc := CRC(good)
	for i := range good {
		for bit := range 8 {
			p := slices.Clone(good)
			p[i] ^= 1 << bit
			_, checkErr := Check(p, Limits{})
			verifyErr := Verify(p, crc)
			// The CRC does not cover base offset and leader epoch, which brokers stamp.
			stamped := i < lengthAt || i >= epochAt && i < magicAt
			if stamped != (checkErr == nil) || stamped != (verifyErr == nil) {
				t.Errorf("byte %d bit %d: Check says %v, Verify says %v", i, bit, checkErr, verifyErr)
			}
			for _, err := range []error{checkErr, verifyErr} {
				if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrMagic) {
					t.Errorf("byte %d bit %d: %v is no sentinel", i, bit, err)
				}
			}
		}
	}
}

func TestCheckRefusesTruncatedAndExtended(t *testing.T) {
	good := unhex(t, golden)
	for n := range good {
		if _, err := Check(good[:n], Limits{}); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if _, err := Check(append(slices.Clone(good), 0), Limits{}); !errors.Is(err, ErrCorrupt) {
		t.Fatal("a byte too many passes")
	}
	two := slices.Concat(good, good)
	if x, err := Parse(two); err != nil || x.Size != len(good) {
		t.Fatalf("Parse finds no end of the first batch: %+v, %v", x, err)
	}
}

// A batch with a right CRC may still be malformed.
func TestCheckRefusesResealedNonsense(t *testing.T) {
	put := func(at int, b ...byte) func([]byte) []byte {
		return func(p []byte) []byte { copy(p[at:], b); return p }
	}
	const record0, record1 = HeaderSize, HeaderSize + 17
	for name, change := range map[string]func([]byte) []byte{
		"magic 1":                   put(magicAt, 1),
		"codec 5":                   put(attributesAt+1, 5),
		"gzip that is none":         put(attributesAt+1, 1),
		"snappy that is none":       put(attributesAt+1, 2),
		"lz4 that is none":          put(attributesAt+1, 3),
		"zstd that is none":         put(attributesAt+1, 4),
		"control":                   put(attributesAt+1, 0x20),
		"last delta off":            put(lastDeltaAt+3, 1),
		"count 0":                   put(countAt, 0, 0, 0, 0),
		"count negative":            put(countAt, 0xff, 0xff, 0xff, 0xff),
		"count and delta too low":   func(p []byte) []byte { p[countAt+3], p[lastDeltaAt+3] = 2, 1; return p },
		"count and delta too high":  func(p []byte) []byte { p[countAt+3], p[lastDeltaAt+3] = 4, 3; return p },
		"count and delta enormous":  func(p []byte) []byte { p[countAt], p[lastDeltaAt] = 0x7f, 0x7f; return p },
		"record length negative":    put(record0, 0x01),
		"record length too long":    put(record0, 0x7e),
		"record length too short":   put(record0, 0x1e),
		"record length overflows":   put(record0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
		"record length is 33 bits":  put(record0, 0x80, 0x80, 0x80, 0x80, 0x20),
		"offset delta repeats":      put(record1+3, 0),
		"key length below null":     put(record0+4, 0x03),
		"key longer than record":    put(record0+4, 0x7e),
		"value length below null":   put(record0+6, 0x03),
		"value longer than record":  put(record0+6, 0x7e),
		"header count negative":     put(record0+12, 0x01),
		"header count too high":     put(record0+12, 0x04),
		"header count enormous":     put(record0+12, 0x7e),
		"header name null":          put(record0+13, 0x01),
		"header name too long":      put(record0+13, 0x08),
		"header value below null":   put(record0+15, 0x03),
		"bytes after the last":      func(p []byte) []byte { return append(p, 0) },
		"last record cut":           func(p []byte) []byte { return p[:len(p)-1] },
		"no room for the count":     func(p []byte) []byte { return p[:HeaderSize+3*recordSizeMin-1] },
		"value swallows its header": put(record0+6, 0x10),
	} {
		t.Run(name, func(t *testing.T) {
			p := reseal(change(unhex(t, golden)))
			_, err := Check(p, Limits{})
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrMagic) && !errors.Is(err, ErrControl) {
				t.Fatalf("Check says %v", err)
			}
		})
	}
}

func TestCheckReportsTheRecordsOwnMaxTimestamp(t *testing.T) {
	p := unhex(t, golden)
	binary.BigEndian.PutUint64(p[maxTimestampAt:], 999)
	x, err := Check(reseal(p), Limits{})
	if err != nil || x.MaxTimestamp != 12 {
		t.Fatalf("max timestamp %d, %v", x.MaxTimestamp, err)
	}
}

func TestCheckKeepsLimits(t *testing.T) {
	big := Record{Key: []byte("k"), Value: make([]byte, 98), Headers: []Header{{"h", nil}, {"i", nil}}}
	rs := []Record{{Value: []byte("small")}, big}
	for name, tc := range map[string]struct {
		lim   Limits
		codec Codec
		want  *LimitError
	}{
		"just fits":                {lim: Limits{RecordBytes: 101, RecordHeaders: 2}},
		"record bytes":             {lim: Limits{RecordBytes: 100}, want: &LimitError{"bytes in key, value and headers", 100, 1}},
		"headers":                  {lim: Limits{RecordHeaders: 1}, want: &LimitError{"headers", 1, 1}},
		"decompressed just fits":   {lim: Limits{DecompressedBytes: 126}, codec: Zstd},
		"decompressed by gzip":     {lim: Limits{DecompressedBytes: 125}, codec: Gzip, want: &LimitError{"bytes once decompressed", 125, -1}},
		"decompressed by snappy":   {lim: Limits{DecompressedBytes: 125}, codec: Snappy, want: &LimitError{"bytes once decompressed", 125, -1}},
		"decompressed by lz4":      {lim: Limits{DecompressedBytes: 125}, codec: LZ4, want: &LimitError{"bytes once decompressed", 125, -1}},
		"decompressed by zstd":     {lim: Limits{DecompressedBytes: 125}, codec: Zstd, want: &LimitError{"bytes once decompressed", 125, -1}},
		"not about what isn't any": {lim: Limits{DecompressedBytes: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Check(build(t, tc.codec, rs), tc.lim)
			var got *LimitError
			if errors.As(err, &got); !cmp.Equal(got, tc.want) || (err == nil) != (tc.want == nil) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestStampLeavesTheCRCAlone(t *testing.T) {
	p := unhex(t, golden)
	Stamp(p, 1<<40+7, 9)
	x, err := Check(p, Limits{})
	if err != nil || x.Base != 1<<40+7 || x.LeaderEpoch != 9 {
		t.Fatalf("%+v, %v", x, err)
	}
	if err := Verify(p, x.CRC+1); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("Verify takes another CRC: %v", err)
	}
}
