package sst

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Encoders are expensive to make, and hold no resources but memory. They are used as streams, since EncodeAll would hand
// their state on through a channel: a channel that was made in a bubble of virtual time must not be used outside of it. With a
// concurrency of 1 they start no goroutines.
var encoders = sync.Pool{New: func() any {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(BlockBytesMax))
	if err != nil {
		panic(err) // the options are constant
	}
	return w
}}

func compress(src []byte) []byte {
	w := encoders.Get().(*zstd.Encoder)
	defer encoders.Put(w)
	var out bytes.Buffer
	w.Reset(&out)
	_, err := w.Write(src)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(fmt.Sprintf("sst: compress %d bytes in memory: %v", len(src), err))
	}
	return out.Bytes()
}

// decompress returns the decompressed bytes of src, which must be exactly size bytes. It makes a decoder for each call: a
// decoder has a channel even as a stream, so it can't be shared as encoders are.
func decompress(src []byte, size int) ([]byte, error) {
	r, err := zstd.NewReader(bytes.NewReader(src), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		return nil, corrupt("decompress a block: %v", err)
	}
	defer r.Close()
	// Memory grows with what is really there: a few bytes must not make a reader allocate much.
	out, err := io.ReadAll(io.LimitReader(r, int64(size)+1))
	switch {
	case err != nil:
		return nil, corrupt("decompress a block: %v", err)
	case len(out) != size:
		return nil, corrupt("a block should have %d bytes when it is decompressed", size)
	}
	return out, nil
}
