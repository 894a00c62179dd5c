// Package zstdpool compresses and decompresses with zstd. It reuses encoders and decoders, which are expensive to make, and hold
// no resources but memory.
//
// Encoders and decoders have channels inside. A channel that was made in a bubble of virtual time (testing/synctest) must not
// be used outside of it. So the decoders that are reused are made when the program starts, and encoders are used as
// streams, which need no channel.
package zstdpool

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// WindowMax is the largest window that a decoder accepts, in bytes: RFC 8878 recommends that every decoder supports
	// this size. Up to level 19, zstd needs no larger window. A decoder allocates the window that a frame claims to
	// need, so a larger bound would let hostile frames take more memory.
	WindowMax = 8 << 20
	// window is the window of encoders in bytes: about the size of a batch.
	window = 1 << 20

	kept = 4 // decoders
)

var encoders = sync.Pool{New: func() any {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(window))
	must(err)
	return w
}}

// decoders that no caller uses.
var (
	mu       sync.Mutex
	decoders = makeDecoders()
)

func makeDecoders() (list []*zstd.Decoder) {
	for range kept {
		list = append(list, newDecoder())
	}
	return list
}

func newDecoder() *zstd.Decoder {
	// With a concurrency of 1 the decoder starts no goroutines.
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(WindowMax))
	must(err)
	return r
}

// must panics if err is not nil. It is for calls with constant options, which can't fail.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Compress appends src, compressed, to dst.
func Compress(dst, src []byte) []byte {
	w := encoders.Get().(*zstd.Encoder)
	defer encoders.Put(w)
	out := bytes.NewBuffer(dst)
	w.Reset(out)
	_, err := w.Write(src)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(fmt.Sprintf("zstdpool: compress %d bytes in memory: %v", len(src), err))
	}
	return out.Bytes()
}

// Decompress calls read with a reader of the decompressed bytes of src, which is valid until read returns. It returns the error
// of read, or why src can't be decompressed.
func Decompress(src []byte, read func(io.Reader) error) error {
	r, again := take()
	if again {
		defer give(r)
	}
	if err := r.Reset(bytes.NewReader(src)); err != nil {
		return err
	}
	return read(r)
}

// take returns a decoder, and whether it is one of those that are reused.
func take() (r *zstd.Decoder, again bool) {
	mu.Lock()
	defer mu.Unlock()
	n := len(decoders)
	if n == 0 {
		return newDecoder(), false
	}
	r, decoders = decoders[n-1], decoders[:n-1]
	return r, true
}

func give(r *zstd.Decoder) {
	mu.Lock()
	defer mu.Unlock()
	decoders = append(decoders, r)
}
