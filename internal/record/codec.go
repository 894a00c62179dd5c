package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/pierrec/lz4/v4"

	"github.com/simple-event-broker/seb/internal/zstdpool"
)

// Codec says how the records of a batch are compressed. Its value is the lowest three bits of the batch's
// attributes.
type Codec int8

// The codecs of Kafka.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// String returns the name that the codec has in Kafka's option compression.type.
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec %d", int8(c))
}

const (
	// snappyExpansionMax bounds how many times larger snappy data can become when decompressed: an
	// element of 3 bytes stands for at most 64 bytes.
	snappyExpansionMax = 22
)

// snappyHeader is the magic at the start of snappy-java's framing, which Kafka's Java client writes. Two
// versions (int32) follow, and then blocks, each after its size (int32). Other clients write one block
// without framing.
var snappyHeader = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const snappyFramedAt = 16

// Encoders and decoders are expensive to make, and hold no resources but memory, so they are
// pooled.
var (
	gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}
	gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}
	lz4Writers  = sync.Pool{New: func() any {
		w := lz4.NewWriter(nil)
		// The options of Kafka's Java client: blocks of 64 KiB, and no checksum, since the batch
		// has one.
		must(w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)))
		return w
	}}
	lz4Readers = sync.Pool{New: func() any { return lz4.NewReader(nil) }}
)

// must panics if err is not nil. It is for calls with constant options, which can't fail.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// compress appends src, compressed by c, to dst.
func compress(dst, src []byte, c Codec) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	var err error
	switch c {
	case Gzip:
		w := gzipWriters.Get().(*gzip.Writer)
		defer gzipWriters.Put(w)
		w.Reset(out)
		_, err = w.Write(src)
		err = errors.Join(err, w.Close())
	case Snappy:
		return append(dst, xerial.Encode(nil, src)...), nil
	case LZ4:
		w := lz4Writers.Get().(*lz4.Writer)
		defer lz4Writers.Put(w)
		w.Reset(out)
		_, err = w.Write(src)
		err = errors.Join(err, w.Close())
	case Zstd:
		return zstdpool.Compress(dst, src), nil
	default:
		err = errors.New("unknown codec")
	}
	if err != nil {
		return nil, fmt.Errorf("compress %d bytes with %v: %w", len(src), c, err)
	}
	return out.Bytes(), nil
}

// decompress returns the decompressed src, in new memory. It returns a [LimitError] if the
// result exceeds limit bytes. It allocates at most about twice the limit.
func decompress(src []byte, c Codec, limit int) (out []byte, err error) {
	in := bytes.NewReader(src)
	switch c {
	case Gzip:
		r := gzipReaders.Get().(*gzip.Reader)
		defer gzipReaders.Put(r)
		if err = r.Reset(in); err == nil {
			out, err = readAll(r, len(src), limit)
		}
	case Snappy:
		out, err = decodeSnappy(src, limit)
	case LZ4:
		r := lz4Readers.Get().(*lz4.Reader)
		defer lz4Readers.Put(r)
		r.Reset(in)
		out, err = readAll(r, len(src), limit)
	case Zstd:
		err = zstdpool.Decompress(src, func(r io.Reader) (err error) {
			out, err = readAll(r, len(src), limit)
			return err
		})
	default:
		err = errors.New("unknown codec")
	}
	if _, ok := errors.AsType[*LimitError](err); ok {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: decompress with %v: %w", ErrCorrupt, c, err)
	}
	return out, nil
}

// readAll reads r to its end. It returns a [LimitError] if r has more than limit bytes.
func readAll(r io.Reader, sizeHint, limit int) ([]byte, error) {
	// The buffer may grow to one byte more than limit: if that byte is read, r has too many bytes.
	buf := make([]byte, 0, min(max(4*sizeHint, 512), limit+1))
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > limit:
			return nil, bytesLimit(limit)
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return nil, err
		case len(buf) == cap(buf):
			grown := make([]byte, len(buf), min(2*cap(buf), limit+1))
			copy(grown, buf)
			buf = grown
		}
	}
}

func decodeSnappy(src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, snappyHeader) {
		return appendSnappyBlock(nil, src, limit)
	}
	if len(src) < snappyFramedAt {
		return nil, errors.New("the frame ends within its header")
	}
	var out []byte
	for rest := src[snappyFramedAt:]; len(rest) > 0; {
		if len(rest) < 4 {
			return nil, errors.New("the frame ends within the size field of a block")
		}
		size := binary.BigEndian.Uint32(rest)
		rest = rest[4:]
		if uint64(size) > uint64(len(rest)) {
			return nil, fmt.Errorf("a block should have %d bytes, but only %d bytes are left", size, len(rest))
		}
		var err error
		if out, err = appendSnappyBlock(out, rest[:size], limit); err != nil {
			return nil, err
		}
		rest = rest[size:]
	}
	return out, nil
}

// appendSnappyBlock decompresses one block without framing, and appends the result to out.
func appendSnappyBlock(out, block []byte, limit int) ([]byte, error) {
	size, err := snappy.DecodedLen(block)
	switch {
	case err != nil:
		return nil, err
	case size > snappyExpansionMax*len(block):
		return nil, fmt.Errorf("a block of %d bytes can't decompress to %d bytes, as it claims", len(block), size)
	case size > limit-len(out):
		return nil, bytesLimit(limit)
	}
	if cap(out)-len(out) < size {
		grown := make([]byte, len(out), min(limit, max(2*cap(out), len(out)+size)))
		copy(grown, out)
		out = grown
	}
	// The strict decoder refuses the extensions of S2, which other readers of the batch don't
	// understand.
	if _, err := snappy.DecodeStrict(out[len(out):len(out)+size], block); err != nil {
		return nil, err
	}
	return out[:len(out)+size], nil
}
