package sst

import (
	"io"

	"github.com/simple-event-broker/seb/internal/zstdpool"
)

// decompress returns the decompressed bytes of src, which must be exactly size bytes.
func decompress(src []byte, size int) (out []byte, err error) {
	err = zstdpool.Decompress(src, func(r io.Reader) (err error) {
		// Memory grows with what is really there: a few bytes must not make a reader allocate much.
		out, err = io.ReadAll(io.LimitReader(r, int64(size)+1))
		return err
	})
	switch {
	case err != nil:
		return nil, corrupt("decompress a block: %v", err)
	case len(out) != size:
		return nil, corrupt("a block should have %d bytes when it is decompressed", size)
	}
	return out, nil
}
