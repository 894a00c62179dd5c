package original

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"
)

// golden is a file with three records, "one", "" and "\x00\xff", from 2024-02-29
// 12:34:56.789012 UTC: 1709210096789012 microseconds since 1970, hex 612847caa6614.
var golden = []byte{
	's', 'e', 'b', '!', // magic
	1, 0, // version
	0x14, 0x66, 0xaa, 0x7c, 0x84, 0x12, 0x06, 0, // time
	3, 0, 0, 0, // records
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // reserved
	0, 0, 0, 0, // positions
	3, 0, 0, 0,
	3, 0, 0, 0,
	'o', 'n', 'e', 0x00, 0xff, // data
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func wantGolden(t *testing.T, file []byte) {
	t.Helper()
	b, err := Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2024, 2, 29, 12, 34, 56, 789_012_000, time.UTC); !b.Time.Equal(want) {
		t.Errorf("time is %v, want %v", b.Time, want)
	}
	want := []string{"one", "", "\x00\xff"}
	if b.Count() != len(want) || b.Bytes() != 5 {
		t.Fatalf("it has %d records of %d bytes", b.Count(), b.Bytes())
	}
	for i, w := range want {
		if got := b.Record(i); string(got) != w {
			t.Errorf("record %d is %q, want %q", i, got, w)
		}
	}
}

func TestDecodeGolden(t *testing.T) {
	t.Run("plain", func(t *testing.T) { wantGolden(t, golden) })
	t.Run("gzip", func(t *testing.T) { wantGolden(t, gzipped(t, golden)) })
}

func TestDecodeEmptyBatch(t *testing.T) {
	file := bytes.Clone(golden[:headerBytes])
	file[14] = 0
	if b, err := Decode(file); err != nil || b.Count() != 0 {
		t.Errorf("%d records, %v", b.Count(), err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	with := func(at int, bytes ...byte) []byte {
		b := append([]byte{}, golden...)
		copy(b[at:], bytes)
		return b
	}
	packed := gzipped(t, golden)
	for _, test := range []struct {
		name string
		file []byte
		err  error
		text string
	}{
		{"nothing", nil, ErrDamaged, "0 bytes"},
		{"cut off in the header", golden[:31], ErrDamaged, "31 bytes"},
		{"cut off in the positions", golden[:43], ErrDamaged, "before the positions"},
		{"cut off in the data", golden[:46], ErrDamaged, "record 1 begins at byte 3"},
		{"another magic", with(0, 'S'), ErrForeign, `"Seb!"`},
		{"version 2", with(4, 2), ErrForeign, "format version 2 instead of 1"},
		{"version -1", with(4, 0xff, 0xff), ErrForeign, "format version -1 instead of 1"},
		{"time before 1970", with(13, 0x80), ErrDamaged, "since 1970"},
		{"time past all calendars", with(13, 0x7f), ErrDamaged, "since 1970"},
		{"count too large", with(14, 0xff, 0xff, 0xff, 0xff), ErrDamaged, "4294967295 records"},
		{"no record but data", append(with(14, 0)[:headerBytes:headerBytes], 'x'), ErrDamaged, "no record"},
		{"first record not at the start", with(32, 1), ErrDamaged, "instead of byte 0"},
		{"positions not ascending", with(36, 4), ErrDamaged, "record 2 begins at byte 3"},
		{"position behind the data", with(40, 6), ErrDamaged, "has only 5 bytes"},
		{"negative position", with(40, 0xff, 0xff, 0xff, 0xff), ErrDamaged, "at byte 4294967295"},
		{"gzip cut off in its header", packed[:5], ErrDamaged, "gzip"},
		{"gzip cut off", packed[:len(packed)-9], ErrDamaged, "gzip"},
		{"gzip cut off in its checksum", packed[:len(packed)-1], ErrDamaged, "gzip"},
		{"gzip altered", append(bytes.Clone(packed[:len(packed)-8]), 0, 0, 0, 0, 0, 0, 0, 0), ErrDamaged, "gzip"},
		{"two gzip members", append(bytes.Clone(packed), packed...), ErrDamaged, "follow after the gzip data"},
		{"gzip of gzip", gzipped(t, packed), ErrForeign, "begins with"},
		{"gzip of nothing", gzipped(t, nil), ErrDamaged, "0 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b, err := Decode(test.file)
			if !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %d records, %v; want %v with %q", b.Count(), err, test.err, test.text)
			}
		})
	}
}

func TestGunzipIsBounded(t *testing.T) {
	packed := gzipped(t, make([]byte, 1<<20))
	if plain, err := gunzip(packed, 1<<20); err != nil || len(plain) != 1<<20 {
		t.Errorf("at the limit: %d bytes, %v", len(plain), err)
	}
	if plain, err := gunzip(packed, 1<<20-1); !errors.Is(err, ErrDamaged) || plain != nil {
		t.Errorf("past the limit: %d bytes, %v", len(plain), err)
	}
}

func TestParseName(t *testing.T) {
	for name, want := range map[string]struct {
		topic  string
		offset int64
	}{
		"orders/000000000000.record_batch":       {"orders", 0},
		"a.b-c_d/000000000042.record_batch":      {"a.b-c_d", 42},
		"orders/1234567890123.record_batch":      {"orders", 1234567890123},
		"of/several/000000000001.record_batch":   {"of/several", 1},
		"with a blank/000000000001.record_batch": {"with a blank", 1},
	} {
		topic, offset, batch, err := ParseName(name)
		if err != nil || !batch || topic != want.topic || offset != want.offset || Name(topic, offset) != name {
			t.Errorf("%s is %q, %d, %v, %v", name, topic, offset, batch, err)
		}
	}
	for _, name := range []string{
		"000000000000.record_batch", "/000000000000.record_batch", "orders/0.record_batch", "orders/00000000000x.record_batch",
		"orders/-00000000001.record_batch", "orders/+00000000001.record_batch", "orders/0000000000001.record_batch",
		"orders/99999999999999999999.record_batch", "orders/.record_batch",
	} {
		if _, _, batch, err := ParseName(name); err == nil || batch {
			t.Errorf("%s is taken for a batch's name", name)
		}
	}
	for _, name := range []string{"orders/offsets_000000000000.offsets", "log/00000000000000000001", "seb.json", ""} {
		if _, _, batch, err := ParseName(name); err != nil || batch {
			t.Errorf("%s: batch %v, %v", name, batch, err)
		}
	}
	if !IsOffsets("orders/offsets_000000000000.offsets") || IsOffsets("orders/000000000000.record_batch") || IsOffsets("offsets_/x") {
		t.Error("lists of offsets are not told from the rest")
	}
}

// If a decoded batch is encoded again, the result is the same file, byte for byte.
func FuzzDecode(f *testing.F) {
	f.Add(golden)
	f.Add(gzipped(f, golden))
	f.Add(golden[:len(golden)-5])
	f.Fuzz(func(t *testing.T, file []byte) {
		b, err := Decode(file)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrForeign) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		if isGzip(file) {
			return // the gzip bytes can't be compared
		}
		again := append([]byte("seb!\x01\x00"), file[6:14]...)
		again = binary.LittleEndian.AppendUint32(again, uint32(b.Count()))
		again = append(again, file[18:headerBytes]...)
		var data []byte
		for i := range b.Count() {
			again = binary.LittleEndian.AppendUint32(again, uint32(len(data)))
			data = append(data, b.Record(i)...)
		}
		if again = append(again, data...); !bytes.Equal(again, file) {
			t.Fatalf("%x became %x", file, again)
		}
	})
}

// If a name is parsed as that of a batch, Name returns the same name for its topic and offset.
func FuzzParseName(f *testing.F) {
	f.Add("orders/000000000042.record_batch")
	f.Add("orders/offsets_000000000000.offsets")
	f.Fuzz(func(t *testing.T, name string) {
		topic, offset, batch, err := ParseName(name)
		if batch && (err != nil || Name(topic, offset) != name || offset < 0 || topic == "" || IsOffsets(name)) {
			t.Fatalf("%q is %q, %d, %v", name, topic, offset, err)
		}
	})
}
