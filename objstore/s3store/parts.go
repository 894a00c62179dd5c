package s3store

import (
	"errors"
	"io"
)

// partsReader reads the concatenation of parts without a copy. It can seek back, because the SDK may read
// the body twice: once for the signature, and once to send it. Neither the transport nor the SDK reads it
// after an operation has returned, so the caller may change the parts then.
type partsReader struct {
	parts [][]byte
	size  int64
	index int   // the part that contains off
	in    int   // the offset in that part
	off   int64 // the offset from the beginning of the first part
}

func newPartsReader(parts [][]byte) *partsReader {
	r := &partsReader{parts: parts}
	for _, part := range parts {
		r.size += int64(len(part))
	}
	return r
}

// Read implements [io.Reader]. It fills p across parts.
func (r *partsReader) Read(p []byte) (int, error) {
	done := 0
	for done < len(p) && r.index < len(r.parts) {
		n := copy(p[done:], r.parts[r.index][r.in:])
		done += n
		if r.in += n; r.in == len(r.parts[r.index]) {
			r.index, r.in = r.index+1, 0
		}
	}
	r.off += int64(done)
	if done == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return done, nil
}

// Seek implements [io.Seeker].
func (r *partsReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.off
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 || offset > r.size {
		return 0, errors.New("seek outside of the body")
	}
	r.off, r.index = offset, 0
	for r.index < len(r.parts) && offset >= int64(len(r.parts[r.index])) {
		offset -= int64(len(r.parts[r.index]))
		r.index++
	}
	r.in = int(offset)
	return r.off, nil
}
