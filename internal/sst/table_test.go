package sst

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// tableOf returns a table of the rows, which it sorts.
func tableOf(o Options, rows map[string]string) []byte {
	b := NewBuilder(o)
	keys := make([]string, 0, len(rows))
	for k := range rows {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		b.Add([]byte(k), []byte(rows[k]))
	}
	return b.Finish()
}

func open(t testing.TB, b []byte) *Table {
	t.Helper()
	table, err := Open(b)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// randomRows returns up to most rows, with keys that share prefixes, and values of random sizes.
func randomRows(r *rand.Rand, most int) map[string]string {
	rows := map[string]string{}
	for range r.IntN(most + 1) {
		key := fmt.Sprintf("%0*d", 1+r.IntN(12), r.IntN(1+r.IntN(100_000)))
		rows[key] = strings.Repeat(key, r.IntN(8))
	}
	return rows
}

// Every row is found by its key, and by all keys up to the next one, with blocks of any size.
func TestRowsAreFound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 100 {
		rows := randomRows(r, 300)
		o := Options{BlockBytes: 1 + r.IntN(4000), Plain: i%2 == 0}
		table := open(t, tableOf(o, rows))
		keys := make([]string, 0, len(rows))
		for k := range rows {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		if table.Rows() != uint64(len(keys)) {
			t.Fatalf("%d rows instead of %d", table.Rows(), len(keys))
		}
		at := 0
		for row, err := range table.All() {
			if err != nil || at == len(keys) || string(row.Key) != keys[at] || string(row.Value) != rows[keys[at]] {
				t.Fatalf("row %d of %d is %q, %v", at, len(keys), row, err)
			}
			at++
		}
		if at != len(keys) {
			t.Fatalf("%d rows of %d", at, len(keys))
		}
		for range 100 {
			key := fmt.Sprintf("%0*d", 1+r.IntN(12), r.IntN(100_000))
			want, exact := slices.BinarySearch(keys, key)
			if !exact {
				want--
			}
			row, ok, err := table.Floor([]byte(key))
			if err != nil || ok != (want >= 0) || ok && (string(row.Key) != keys[want] || string(row.Value) != rows[keys[want]]) {
				t.Fatalf("the floor of %q is %q, %v, %v; want row %d of %q", key, row, ok, err, want, keys)
			}
			from := max(want, 0)
			for row, err := range table.From([]byte(key)) {
				if err != nil || from == len(keys) || string(row.Key) != keys[from] {
					t.Fatalf("from %q: %q, %v; want row %d of %q", key, row, err, from, keys)
				}
				from++
			}
			if from != len(keys) {
				t.Fatalf("from %q: ends before row %d of %d", key, from, len(keys))
			}
		}
	}
}

// The bound that a caller plans with holds at every row.
func TestSizeIsABound(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		rows := randomRows(r, 100)
		keys := make([]string, 0, len(rows))
		for k := range rows {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		o := Options{BlockBytes: 1 + r.IntN(500), Plain: r.IntN(2) == 0}
		b := NewBuilder(o)
		for i, k := range keys {
			b.Add([]byte(k), []byte(rows[k]))
			prefix := NewBuilder(o)
			for _, k := range keys[:i+1] {
				prefix.Add([]byte(k), []byte(rows[k]))
			}
			if bound, n := b.Size(), len(prefix.Finish()); n > bound {
				t.Fatalf("%d rows: %d bytes, the bound was %d", i+1, n, bound)
			}
		}
	}
}

func TestLargestRows(t *testing.T) {
	b := NewBuilder(Options{BlockBytes: BlockBytesMax})
	key := bytes.Repeat([]byte{1}, KeyMax)
	b.Add([]byte{1}, bytes.Repeat([]byte{2}, BlockBytesMax-64))
	b.Add(key, make([]byte, ValueMax))
	table := open(t, b.Finish())
	row, ok, err := table.Floor(key)
	if err != nil || !ok || len(row.Value) != ValueMax {
		t.Fatalf("%d bytes, %v, %v", len(row.Value), ok, err)
	}
}

func TestRowsThatABuilderRefuses(t *testing.T) {
	for name, add := range map[string]func(b *Builder){
		"no key":         func(b *Builder) { b.Add(nil, nil) },
		"same key":       func(b *Builder) { b.Add([]byte("b"), nil) },
		"smaller key":    func(b *Builder) { b.Add([]byte("a"), nil) },
		"key too long":   func(b *Builder) { b.Add(bytes.Repeat([]byte("c"), KeyMax+1), nil) },
		"value too long": func(b *Builder) { b.Add([]byte("c"), make([]byte, ValueMax+1)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBuilder(Options{})
			b.Add([]byte("b"), nil)
			defer func() {
				if recover() == nil {
					t.Error("it was added")
				}
			}()
			add(b)
		})
	}
}

// A changed byte is noticed, wherever it is.
func TestChangedBytesAreNoticed(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	whole := tableOf(Options{BlockBytes: 100}, randomRows(r, 200))
	read := func(b []byte) error {
		table, err := Open(b)
		if err != nil {
			return err
		}
		for _, err := range table.All() {
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := read(whole); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 1 << r.IntN(8)
		if err := read(b); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d of %d: %v", i, len(whole), err)
		}
	}
	for i := range whole {
		if err := read(whole[:i]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("the first %d of %d bytes: %v", i, len(whole), err)
		}
	}
}

func TestNewerVersionsAreNamed(t *testing.T) {
	b := tableOf(Options{Plain: true}, map[string]string{"k": "v"})
	footer := b[len(b)-FooterSize:]
	le.PutUint32(footer[20:], 2)
	le.PutUint32(footer[24:], crc32.Checksum(footer[:24], castagnoli))
	if _, err := Open(b); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "2") {
		t.Errorf("version 2: %v", err)
	}

	block := []byte{2, 0}
	if _, err := DecodeBlock(block, Block{Size: 2, CRC: crc32.Checksum(block, castagnoli)}); !errors.Is(err, ErrVersion) {
		t.Errorf("encoding 2: %v", err)
	}
}

// goldenRows fill several blocks, and have shared prefixes, restarts within a block, and an empty value.
func goldenRows() map[string]string {
	rows := map[string]string{"a": "", "b": "second"}
	for i := range 40 {
		rows[fmt.Sprintf("topic/%03d", i)] = strings.Repeat("value", i%4)
	}
	return rows
}

// The golden files never change: a version of Seb that can't read them can't read existing segments. The bytes
// of compressed blocks depend on the compressor's version, so only what they decode to is compared.
func TestGolden(t *testing.T) {
	for _, o := range []struct {
		name string
		Options
	}{
		{"plain.golden", Options{BlockBytes: 100, Plain: true}},
		{"zstd.golden", Options{BlockBytes: 400}},
	} {
		t.Run(o.name, func(t *testing.T) {
			path := "testdata/" + o.name
			built := tableOf(o.Options, goldenRows())
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			file, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
			if err != nil {
				t.Fatal(err)
			}
			if o.Plain && !bytes.Equal(built, file) {
				t.Errorf("built\n%x\nwant\n%x", built, file)
			}
			got := map[string]string{}
			table := open(t, file)
			for row, err := range table.All() {
				if err != nil {
					t.Fatal(err)
				}
				got[string(row.Key)] = string(row.Value)
			}
			if fmt.Sprint(got) != fmt.Sprint(goldenRows()) {
				t.Errorf("it has the rows %v", got)
			}
			for i, blk := range table.index.block {
				if plainly := file[blk.Pos] == plain; plainly != o.Plain || len(table.index.block) < 2 {
					t.Errorf("block %d of %d has the encoding %d", i, len(table.index.block), file[blk.Pos])
				}
			}
		})
	}
}

// TestFieldTables builds a table of two blocks only from the tables in doc.go.
func TestFieldTables(t *testing.T) {
	u32 := le.AppendUint32
	rows := func(b ...byte) []byte { return u32(u32(b, 0), 1) }
	one := rows(0, 2, 1, 'a', 'a', 'x', 1, 1, 0, 'b')
	two := rows(0, 1, 1, 'b', 'y')
	first := append([]byte{0, byte(len(one))}, one...)
	second := append([]byte{0, byte(len(two))}, two...)
	index := append([]byte{2}, "aa"...)
	index = u32(append(index, byte(len(first))), crc32.Checksum(first, castagnoli))
	index = append(index, 1, 'b', byte(len(second)))
	index = u32(index, crc32.Checksum(second, castagnoli))
	footer := u32(le.AppendUint64(nil, 3), 2)
	footer = u32(u32(footer, uint32(len(index))), crc32.Checksum(index, castagnoli))
	footer = u32(footer, 1)
	footer = append(u32(footer, crc32.Checksum(footer, castagnoli)), "sst\n"...)
	want := slices.Concat(first, second, index, footer)

	b := NewBuilder(Options{BlockBytes: 14, Plain: true})
	b.Add([]byte("aa"), []byte("x"))
	b.Add([]byte("ab"), nil)
	b.Add([]byte("b"), []byte("y"))
	if got := b.Finish(); !bytes.Equal(got, want) {
		t.Fatalf("built\n%x\nwant\n%x", got, want)
	}
}

// FuzzTable changes bytes and then corrects the checksums, so that the decoders look further.
func FuzzTable(f *testing.F) {
	f.Add(tableOf(Options{BlockBytes: 100, Plain: true}, goldenRows()))
	f.Add(tableOf(Options{BlockBytes: 200}, goldenRows()))
	f.Add(tableOf(Options{}, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		for range 2 {
			table, err := Open(b)
			if err == nil {
				fuzzRows(t, table)
			} else if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Fatalf("the error says neither damaged nor version: %v", err)
			}
			b = sealed(b)
		}
	})
}

// fuzzRows reads all rows of a table. If they are valid, a table that is built of them has the same rows, and finds them.
func fuzzRows(t *testing.T, table *Table) {
	b := NewBuilder(Options{Plain: true})
	var rows []Row
	for row, err := range table.All() {
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Fatalf("the error says neither damaged nor version: %v", err)
			}
			return
		}
		row = Row{bytes.Clone(row.Key), row.Value}
		rows = append(rows, row)
		b.Add(row.Key, row.Value)
	}
	again := open(t, b.Finish())
	for _, row := range rows {
		for _, x := range []*Table{table, again} {
			if got, ok, err := x.Floor(row.Key); err != nil || !ok || !bytes.Equal(got.Key, row.Key) || !bytes.Equal(got.Value, row.Value) {
				t.Fatalf("the floor of %x is %x, %v, %v", row.Key, got, ok, err)
			}
		}
	}
}

// sealed returns b with right checksums of footer, index and blocks, as far as they can be found.
func sealed(b []byte) []byte {
	b = bytes.Clone(b)
	if len(b) < FooterSize {
		return b
	}
	footer := b[len(b)-FooterSize:]
	copy(footer[28:], magic)
	le.PutUint32(footer[20:], version)
	size := int64(le.Uint32(footer[12:]))
	end := int64(len(b) - FooterSize)
	if size > end {
		return b
	}
	index := b[end-size : end]
	var pos int64
	for rest := index; ; {
		_, after, ok := cut(rest, KeyMax)
		n, used := binary.Uvarint(after)
		if !ok || used <= 0 || len(after) < used+4 || n > uint64(end-size-pos) {
			break
		}
		le.PutUint32(after[used:], crc32.Checksum(b[pos:pos+int64(n)], castagnoli))
		pos += int64(n)
		rest = after[used+4:]
	}
	le.PutUint32(footer[16:], crc32.Checksum(index, castagnoli))
	le.PutUint32(footer[24:], crc32.Checksum(footer[:24], castagnoli))
	return b
}

// Whoever reads row after row in the order of keys reads each block once.
func TestBlocksAreReadOnce(t *testing.T) {
	rows := map[string]string{}
	for i := range 1000 {
		rows[fmt.Sprintf("%06d", i)] = "value"
	}
	whole := open(t, tableOf(Options{BlockBytes: 500}, rows))
	gets := 0
	table := NewTable(whole.index, func(blk Block) ([]byte, error) {
		gets++
		return whole.get(blk)
	})
	for i := range 1000 {
		key := fmt.Sprintf("%06d", i)
		for row, err := range table.From([]byte(key)) {
			if err != nil || string(row.Key) != key {
				t.Fatalf("%q at %q: %v", row.Key, key, err)
			}
			break
		}
	}
	if blocks := len(whole.index.Blocks()); gets != blocks || blocks < 10 {
		t.Errorf("%d reads of %d blocks", gets, blocks)
	}
	if row, ok, err := table.Floor([]byte("000000")); err != nil || !ok || string(row.Key) != "000000" || gets != len(whole.index.Blocks())+1 {
		t.Errorf("%q, %v, %v after %d reads", row.Key, ok, err, gets)
	}
}
