// Package original reads the files of the original Seb, an earlier program of the same name. Each file
// holds one batch of a topic's records, plain or compressed with gzip. The name of a file has the topic
// and the batch's first offset.
//
// A file has no checksum. So if a plain file was cut off within the last record, no error shows it.
package original

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// A batch file, little-endian:
//
//	offset     size       meaning
//	0          4          magic "seb!"
//	4          2          version (int16): 1
//	6          8          time of the batch, microseconds since 1970 (int64)
//	14         4          count of records (uint32)
//	18         14         reserved
//	32         4 × count  position of each record relative to the data (uint32); ascending from 0
//	32+4×count            the data: values back to back, the last to the end of the file
const (
	headerBytes   = 32
	positionBytes = 4

	magic   = "seb!"
	version = 1
)

// FileBytesMax is the largest decompressed size of a file that [Decode] accepts. By default the
// original Seb writes files of up to 30 MB.
const FileBytesMax = 256 << 20

// timeMax is the end of the year 9999, in microseconds since 1970. RFC 3339 has no later year.
var timeMax = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro() - 1

var (
	// ErrDamaged is wrapped by errors about bytes that the original Seb can't have written.
	ErrDamaged = errors.New("file is damaged")
	// ErrForeign is wrapped by errors about files that were written by another version of the
	// original Seb, or not by the original Seb.
	ErrForeign = errors.New("file is not a batch of the original Seb, version 1")
)

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}

// Batch is the content of a file.
type Batch struct {
	// Time is when the original Seb wrote the batch, precise to the microsecond.
	Time time.Time

	positions, data []byte
}

// Count returns the number of records.
func (b *Batch) Count() int { return len(b.positions) / positionBytes }

// Bytes returns the size of all values together.
func (b *Batch) Bytes() int { return len(b.data) }

// Record returns the value of record i; the first record is 0. The value is a slice of the memory of
// the decompressed file.
func (b *Batch) Record(i int) []byte {
	from, to := b.position(i), len(b.data)
	if i+1 < b.Count() {
		to = b.position(i + 1)
	}
	return b.data[from:to:to]
}

func (b *Batch) position(i int) int {
	return int(binary.LittleEndian.Uint32(b.positions[positionBytes*i:]))
}

// IsBatch reports whether a file begins like a plain batch, or like any gzip file.
func IsBatch(file []byte) bool {
	plain := len(file) >= headerBytes && string(file[:len(magic)]) == magic && binary.LittleEndian.Uint16(file[4:]) == version
	return plain || isGzip(file)
}

func isGzip(file []byte) bool { return bytes.HasPrefix(file, []byte{0x1f, 0x8b}) }

// Decode decodes a file, plain or gzip. The batch of a plain file shares the file's memory.
func Decode(file []byte) (Batch, error) {
	if isGzip(file) {
		plain, err := gunzip(file, FileBytesMax)
		if err != nil {
			return Batch{}, err
		}
		file = plain
	}
	if len(file) > FileBytesMax {
		return Batch{}, damaged("it has %d bytes; more than %d are not read", len(file), FileBytesMax)
	}
	return decode(file)
}

func decode(file []byte) (Batch, error) {
	if len(file) < headerBytes {
		return Batch{}, damaged("it has %d bytes; its header alone takes %d bytes", len(file), headerBytes)
	}
	if string(file[:len(magic)]) != magic {
		return Batch{}, fmt.Errorf("%w: it begins with %q, not %q", ErrForeign, file[:len(magic)], magic)
	}
	if v := int16(binary.LittleEndian.Uint16(file[4:])); v != version {
		return Batch{}, fmt.Errorf("%w: it has format version %d instead of %d", ErrForeign, v, version)
	}
	micros := int64(binary.LittleEndian.Uint64(file[6:]))
	if micros < 0 || micros > timeMax {
		return Batch{}, damaged("its time is %d microseconds since 1970, which is not between the years 1970 and 9999", micros)
	}
	count, rest := int64(binary.LittleEndian.Uint32(file[14:])), file[headerBytes:]
	if int64(len(rest)) < positionBytes*count {
		return Batch{}, damaged("it ends before the positions of its %d records do", count)
	}
	b := Batch{Time: time.UnixMicro(micros).UTC(), positions: rest[:positionBytes*count], data: rest[positionBytes*count:]}
	return b, b.check()
}

// check returns an error unless the records fill the data without gaps, in order.
func (b *Batch) check() error {
	last := 0
	for i := range b.Count() {
		at := b.position(i)
		switch {
		case i == 0 && at != 0:
			return damaged("its first record begins at byte %d of the data instead of byte 0", at)
		case at < last:
			return damaged("record %d begins at byte %d of the data, before record %d, which begins at byte %d", i, at, i-1, last)
		case at > len(b.data):
			return damaged("record %d begins at byte %d of the data, which has only %d bytes", i, at, len(b.data))
		}
		last = at
	}
	if b.Count() == 0 && len(b.data) > 0 {
		return damaged("it has %d bytes of data, but no record", len(b.data))
	}
	return nil
}

// gunzip decompresses a file of one gzip member. It fails if the result has more than limit bytes.
func gunzip(file []byte, limit int) ([]byte, error) {
	in := bytes.NewReader(file)
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, damaged("its gzip data can't be decompressed: %v", err)
	}
	// Read only one member: package gzip reports no error if a later member is cut off in its header.
	z.Multistream(false)
	plain, err := io.ReadAll(io.LimitReader(z, int64(limit)+1))
	switch {
	case err != nil:
		return nil, damaged("its gzip data can't be decompressed: %v", err)
	case len(plain) > limit:
		return nil, damaged("it has more than %d bytes when it is decompressed", limit)
	case in.Len() > 0:
		return nil, damaged("%d bytes follow after the gzip data", in.Len())
	}
	return plain, nil
}
