package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/simple-event-broker/seb"
)

// body is a request's body, complete and decoded. data is valid until free is called.
type body struct {
	data []byte
	buf  *buffer // nil if the body is empty
}

func (b *body) free() {
	if b.buf != nil {
		b.buf.free()
	}
	b.data, b.buf = nil, nil
}

// bodyLimits are how large a decoded body may be.
type bodyLimits struct {
	bytes int // the whole body
	value int // a body that is the value of one record; 0: the body is not one value
	line  int // each line of the body; 0: the lines may have any size
}

// readBody reads the whole body, and decodes it. If the body is encoded, its encoded form may have at most half of
// limits.bytes, since for a time both forms are in memory.
func (h *Handler) readBody(w *response, r *http.Request, limits bodyLimits) (body, error) {
	decode, err := h.decoder(r)
	if err != nil {
		return body{}, err
	}
	if decode == nil {
		return h.readRaw(w, r, limits.bytes)
	}
	raw, err := h.readRaw(w, r, limits.bytes/2)
	if err != nil {
		return body{}, err
	}
	defer raw.free()
	m := h.newBodyMemory(w, -1)
	m.complete = true      // nothing more is read from the client
	m.extra = zstdBlockMax // see unzstd
	d := &decoding{reserve: m.reserve, limit: limits.bytes, lineMax: limits.line}
	if limits.value > 0 {
		d.limit = min(d.limit, limits.value)
	}
	b, err := decode(r.Context(), d, raw.data)
	w.bytesDecoded = d.decoded
	if d.limit < limits.bytes && seb.CodeOf(err) == seb.CodeRequestTooLarge {
		err = recordTooLarge(0, d.limit)
	}
	if err != nil {
		return body{}, err
	}
	if err := h.stillAccepted(w, len(b.data)); err != nil {
		b.free()
		return body{}, err
	}
	return b, nil
}

// readRaw reads the body without decoding it.
func (h *Handler) readRaw(w *response, r *http.Request, limit int) (body, error) {
	if r.ContentLength == 0 {
		return body{}, nil
	}
	if r.ContentLength > int64(limit) {
		return body{}, tooLarge(limit)
	}
	m := h.newBodyMemory(w, r.ContentLength)
	src := &bodyReader{src: r.Body, w: w, memory: m}
	var b body
	var err error
	switch {
	case r.ContentLength > smallBytes:
		g := growth{reserve: m.reserve, first: firstBytes(int(r.ContentLength)), times: bodyGrowth}
		b, err = h.readGrowing(r.Context(), g, src, int(r.ContentLength))
	case r.ContentLength > 0:
		b, err = readSized(r.Context(), m.reserve, src, int(r.ContentLength))
	default:
		b, err = h.readGrowing(r.Context(), growth{reserve: m.reserve, first: firstBytes(limit), times: bodyGrowth}, src, limit)
	}
	if err != nil {
		return body{}, bodyError(cmp.Or(m.ended(), err), src.got.bytes, r.ContentLength)
	}
	w.bodyRead, *w.trailer = true, nil
	m.done()
	err = h.stillAdmitted(r.Context(), w)
	if err == nil {
		err = h.stillAccepted(w, len(b.data))
	}
	if err != nil {
		b.free()
		return body{}, err
	}
	return b, nil
}

// stillAccepted refuses a body of the given size if it is large, and the broker has by now refused too many bytes of
// the holder's large bodies. Some of them may have been refused while this one was read or decoded.
func (h *Handler) stillAccepted(w *response, size int) error {
	if size <= smallBytes {
		return nil
	}
	return h.refused.check(w.holder())
}

func readSized(ctx context.Context, reserve reserve, src io.Reader, size int) (body, error) {
	buf, err := newBuffer(ctx, reserve, size)
	if err != nil {
		return body{}, err
	}
	if _, err := io.ReadFull(src, buf.bytes[:size]); err != nil {
		buf.free()
		return body{}, err
	}
	return body{buf.bytes[:size], buf}, nil
}

// growth says how the buffer of a body grows while the body is read into it.
type growth struct {
	reserve reserve
	first   int // bytes of the first buffer
	times   int // each next buffer is this many times as large
}

// readGrowing reads all of src. It returns an error if src has more than limit bytes.
func (h *Handler) readGrowing(ctx context.Context, g growth, src io.Reader, limit int) (body, error) {
	buf, err := newBuffer(ctx, g.reserve, g.first)
	if err != nil {
		return body{}, err
	}
	var extra [1]byte // when the buffer is full, the next byte is read into extra: the buffer grows only if there is such a byte
	for used := 0; ; {
		free := buf.bytes[used:min(len(buf.bytes), limit)]
		full := len(free) == 0
		if full {
			free = extra[:]
		}
		n, err := src.Read(free)
		if full && n > 0 {
			if used == limit {
				buf.free()
				return body{}, tooLarge(limit)
			}
			var growErr error
			if buf, growErr = grown(ctx, g.reserve, buf, used, min(g.times*used, limit)); growErr != nil {
				return body{}, growErr
			}
			buf.bytes[used] = extra[0]
		}
		used += n
		if err == io.EOF {
			return body{buf.bytes[:used], buf}, nil
		}
		if err != nil {
			buf.free()
			return body{}, err
		}
	}
}

// specHint is the hint for a client whose body is too large although the request appends no records.
const specHint = "send only the fields that GET /openapi.yaml lists: a body without other fields is small enough"

// readSpec is readBody for a body without records, such as the settings of a topic. If the body is too
// large, the error has the given hint.
func (h *Handler) readSpec(w *response, r *http.Request, limit int, hint string) (body, error) {
	b, err := h.readBody(w, r, bodyLimits{bytes: limit})
	var e *seb.Error
	if errors.As(err, &e) && e.Code == seb.CodeRequestTooLarge {
		e.Hint = hint
	}
	return b, err
}

func tooLarge(limit int) error {
	return &seb.Error{
		Code: seb.CodeRequestTooLarge, Outcome: seb.NotCommitted, Limit: int64(limit),
		Detail: fmt.Sprintf("the request's body has more than %d bytes", limit),
		Hint:   "send the records in several requests",
	}
}

// recordTooLarge returns the same error as the broker for a record that is too large, but without the record's size:
// the size is not known, since decoding ended within the record.
func recordTooLarge(index, limit int) error {
	return &seb.Error{
		Code: seb.CodeRecordTooLarge, Outcome: seb.NotCommitted, Limit: int64(limit),
		Detail: fmt.Sprintf("record %d has more than %d bytes", index, limit),
	}
}

// bodyError returns the error that the client gets if err ended the read of a body. got is how many bytes
// arrived; want is how many should have arrived, or not positive if that was not known.
func bodyError(err error, got, want int64) error {
	var e *seb.Error
	switch {
	case errors.As(err, &e) || errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &seb.Error{
			Code: codeRequestTimeout, Outcome: seb.NotCommitted, Err: err,
			Detail: fmt.Sprintf("the request's body came too slowly: %d bytes arrived", got),
			Hint:   "send smaller requests",
		}
	case want > 0:
		return &seb.Error{
			Code: seb.CodeInvalidRequest, Outcome: seb.NotCommitted, Err: err,
			Detail: fmt.Sprintf("the request's body was cut off after %d of %d bytes", got, want),
		}
	default:
		return &seb.Error{
			Code: seb.CodeInvalidRequest, Outcome: seb.NotCommitted, Err: err,
			Detail: fmt.Sprintf("the request's chunked body is broken or cut off after %d bytes", got),
		}
	}
}

// bodyReader counts the bytes that it reads, and sets a deadline for each read.
type bodyReader struct {
	src    io.Reader
	w      *response
	memory *bodyMemory
	got    pace
}

func (b *bodyReader) Read(p []byte) (int, error) {
	// The error is ignored: on a closed connection the read below fails, and a connection in memory, which
	// may support no deadlines, does not stall.
	_ = b.w.conn.SetReadDeadline(b.got.deadline(b.w.slowLimit, time.Now()))
	if b.memory.revoked.Load() {
		return 0, b.memory.ended() // revoke sets a deadline that ends the read; SetReadDeadline above may have overwritten that deadline
	}
	began := time.Now()
	n, err := b.src.Read(p)
	b.w.bodyWait += time.Since(began)
	b.got.bytes += int64(n)
	b.w.bytesIn += int64(n)
	return n, err
}

// decoding says how a body is decoded into reserved memory.
type decoding struct {
	reserve reserve
	limit   int   // most bytes of the decoded body
	lineMax int   // most bytes of a line, 0 for any number; only gunzip uses it
	decoded int64 // bytes that were decoded so far, those of all tries together
}

// decoder returns the function that decodes r's Content-Encoding, or nil if the body isn't encoded.
func (h *Handler) decoder(r *http.Request) (func(context.Context, *decoding, []byte) (body, error), error) {
	enc := strings.Join(r.Header.Values("Content-Encoding"), ",")
	switch strings.ToLower(strings.TrimSpace(enc)) {
	case "", "identity":
		return nil, nil
	case "gzip", "x-gzip":
		return h.gunzip, nil
	case "zstd":
		return h.unzstd, nil
	default:
		return nil, &seb.Error{
			Code: codeUnsupportedEncoding, Outcome: seb.NotCommitted,
			Detail: fmt.Sprintf("the content encoding %q is not supported", enc),
			Hint:   "compress the body with gzip or zstd, or send it uncompressed, without Content-Encoding",
		}
	}
}

var gzipPool sync.Pool // of *gzip.Reader

// gzipRatioMax is deflate's best compression ratio: n bytes decode to at most gzipRatioMax*n bytes, whatever
// size the body states.
const gzipRatioMax = 1032

// gunzip decodes into a buffer of the size that the last four bytes state. If that buffer is too small, since
// the body has several members or states a wrong size, gunzip frees the buffer and tries again with a larger one.
func (h *Handler) gunzip(ctx context.Context, d *decoding, encoded []byte) (body, error) {
	z, _ := gzipPool.Get().(*gzip.Reader)
	if z == nil {
		z = new(gzip.Reader)
	}
	defer gzipPool.Put(z)
	room := d.limit
	if n := len(encoded); n >= 4 {
		room = min(d.limit, int(binary.LittleEndian.Uint32(encoded[n-4:])), gzipRatioMax*n)
	}
	for {
		m := &gzipMembers{z, bytes.NewReader(encoded)}
		err := m.next()
		var b body
		if err == nil {
			src := &lineReader{src: m, most: d.lineMax, read: &d.decoded}
			b, err = h.readGrowing(ctx, growth{reserve: d.reserve, first: room}, src, room)
		}
		switch {
		case err == nil:
			return b, nil
		case room == d.limit || seb.CodeOf(err) != seb.CodeRequestTooLarge:
			return body{}, undecodable("gzip", err)
		}
		room = min(max(4*room, smallBytes), d.limit)
	}
}

// lineReader returns an error when a line of src is too long, so that the rest of src is not decoded. It does not
// notice each such line: the broker checks the size of every record.
type lineReader struct {
	src   io.Reader
	read  *int64 // the bytes of src that were read are added here
	most  int    // bytes of a line; 0: any number
	lines int    // that have ended
	begun int    // bytes of the line that has not ended
}

// Read implements [io.Reader].
func (l *lineReader) Read(p []byte) (int, error) {
	n, err := l.src.Read(p)
	*l.read += int64(n)
	if l.most == 0 {
		return n, err
	}
	first, last := bytes.IndexByte(p[:n], '\n'), bytes.LastIndexByte(p[:n], '\n')
	if first < 0 {
		first, last = n, -1-l.begun
	}
	if l.begun+first > l.most {
		return n, recordTooLarge(l.lines, l.most)
	}
	l.lines += bytes.Count(p[:n], []byte{'\n'})
	l.begun = n - 1 - last
	return n, err
}

// gzipMembers reads one gzip member after the other. A gzip.Reader could read several members itself,
// but it reports no error if the body is cut off in the name or comment of a later
// member.
type gzipMembers struct {
	z  *gzip.Reader
	in *bytes.Reader
}

// Read implements [io.Reader].
func (m *gzipMembers) Read(p []byte) (int, error) {
	n, err := m.z.Read(p)
	if errors.Is(err, io.EOF) && m.in.Len() > 0 {
		err = m.next()
	}
	return n, err
}

// next begins the next member. It returns an error if no member follows.
func (m *gzipMembers) next() error {
	err := m.z.Reset(m.in)
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	m.z.Multistream(false)
	return err
}

// zstdDecoder decodes a whole body into a buffer of the caller. It allocates no window, whatever window
// size a frame's header asks for.
var zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(1<<29))
})

// zstdBlockMax is the most that one block of a frame decodes to.
const zstdBlockMax = 128 << 10

// unzstd decodes into a buffer of the size that the first frame's header states. If that buffer is too small,
// unzstd tries again with larger and larger buffers: a frame need not state its size, and more frames may
// follow. Each buffer has room for one extra block. If decoding fails before it reaches that room, the
// body is broken; otherwise the buffer was too small. The decoder's error does not always tell which.
func (h *Handler) unzstd(ctx context.Context, d *decoding, encoded []byte) (body, error) {
	dec, err := zstdDecoder()
	if err != nil {
		return body{}, fmt.Errorf("set up zstd: %w", err)
	}
	room := min(4*len(encoded), d.limit)
	var first zstd.Header
	if err := first.Decode(encoded); err == nil && first.HasFCS {
		room = int(min(first.FrameContentSize, uint64(d.limit)))
	}
	for {
		buf, err := newBuffer(ctx, d.reserve, room+zstdBlockMax)
		if err != nil {
			return body{}, err
		}
		data, err := dec.DecodeAll(encoded, buf.bytes[:0:room+zstdBlockMax])
		d.decoded += int64(len(data))
		if err == nil && len(data) <= d.limit {
			return body{data, buf}, nil
		}
		buf.free()
		switch {
		case len(data) <= room && !errors.Is(err, zstd.ErrDecoderSizeExceeded):
			return body{}, undecodable("zstd", err)
		case room == d.limit:
			return body{}, tooLarge(d.limit)
		}
		room = min(4*(room+zstdBlockMax), d.limit)
	}
}

func undecodable(encoding string, err error) error {
	var e *seb.Error
	if errors.As(err, &e) || errors.Is(err, context.Canceled) {
		return err
	}
	return &seb.Error{
		Code: seb.CodeInvalidRequest, Outcome: seb.NotCommitted, Err: err,
		Detail: fmt.Sprintf("the body is not valid %s, or is cut off, or has other bytes after its end: %v", encoding, err),
		Hint:   "send a whole body that is compressed with " + encoding + ", or leave out the header Content-Encoding",
	}
}
