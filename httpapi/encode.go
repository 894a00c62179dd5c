package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/httprecord"
)

// chunkBytes is how many bytes of an answer are buffered before they are written. A large value is escaped
// piece by piece, so it is never in memory a second time as JSON. A buffer of chunkReserved bytes and the
// structs of up to a hundred partitions together take less than smallBytes.
const chunkBytes = 48 << 10

// quotedPiece is how many bytes of a string are escaped at a time, and base64Piece is how many are encoded as
// base64 at a time, which is a multiple of 3. As text, a piece takes at most a twelfth of chunkBytes.
const (
	quotedPiece = chunkBytes / 72 // escaping turns one byte into at most six
	base64Piece = chunkBytes / 16
)

var chunkPool = sync.Pool{New: func() any { return &chunks{buf: make([]byte, 0, chunkReserved)} }}

// chunks buffers an answer and writes it in chunks of about chunkBytes. After a failed write, chunks writes
// nothing more, and flush returns the error of that write.
type chunks struct {
	w     io.Writer
	buf   []byte
	err   error
	sent  int   // bytes written
	order []int // scratch memory of headerMap
	// jsonValues says that values which are JSON are written as JSON, in the field value_json.
	jsonValues bool
	// If an answer has more than one chunk, large is called once, before the first chunk is written. It may
	// be nil.
	large func() error

	stamps, logStamps stamp
}

// stamp keeps the text of the last time that was written.
type stamp struct {
	of   time.Time
	text []byte
}

// append adds the text of t to b. Adjacent records mostly have equal times.
func (s *stamp) append(b []byte, t time.Time, layout string) []byte {
	if !t.Equal(s.of) || len(s.text) == 0 {
		s.of, s.text = t, t.UTC().AppendFormat(s.text[:0], layout)
	}
	return append(b, s.text...)
}

// newChunks returns a pooled chunks that writes to w. After the last write, the caller calls free.
func newChunks(w io.Writer) *chunks {
	c := chunkPool.Get().(*chunks)
	c.w = w
	return c
}

func (c *chunks) free() {
	c.w, c.err, c.sent, c.large, c.buf, c.jsonValues = nil, nil, 0, nil, c.buf[:0], false
	chunkPool.Put(c)
}

// size returns how many bytes the answer has so far.
func (c *chunks) size() int { return c.sent + len(c.buf) }

// flush writes the buffered bytes.
func (c *chunks) flush() error {
	if c.err == nil && len(c.buf) > 0 {
		if _, err := c.w.Write(c.buf); err != nil {
			c.err = fmt.Errorf("write the response: %w", err)
		}
	}
	c.sent += len(c.buf)
	c.buf = c.buf[:0]
	return c.err
}

// full writes the buffered bytes if they fill a chunk. If the write fails, the next flush returns the
// error.
func (c *chunks) full() {
	if len(c.buf) < chunkBytes {
		return
	}
	if large := c.large; large != nil && c.err == nil {
		c.large, c.err = nil, large()
	}
	_ = c.flush()
}

func (c *chunks) text(s string) {
	c.buf = append(c.buf, s...)
	c.full()
}

func (c *chunks) integer(n int64) { c.buf = strconv.AppendInt(c.buf, n, 10) }

func (c *chunks) uint32(n uint32) {
	c.buf = binary.LittleEndian.AppendUint32(c.buf, n)
	c.full()
}

// bytes adds b to the answer. If b is large, bytes writes it directly, without a copy in the buffer.
func (c *chunks) bytes(b []byte) {
	if len(b) < chunkBytes/12 {
		c.buf = append(c.buf, b...)
		c.full()
		return
	}
	if c.flush() != nil {
		return
	}
	if _, err := c.w.Write(b); err != nil {
		c.err = fmt.Errorf("write the response: %w", err)
	}
	c.sent += len(b)
}

// quoted adds b, which is UTF-8, as a JSON string.
func (c *chunks) quoted(b []byte) {
	c.buf = append(c.buf, '"')
	for len(b) > 0 && c.err == nil {
		piece := b[:min(len(b), quotedPiece)]
		c.buf = appendEscaped(c.buf, piece)
		b = b[len(piece):]
		c.full()
	}
	c.buf = append(c.buf, '"')
}

// base64 adds b as a JSON string in base64.
func (c *chunks) base64(b []byte) {
	c.buf = append(c.buf, '"')
	for len(b) > 0 && c.err == nil {
		piece := b[:min(len(b), base64Piece)]
		c.buf = base64.StdEncoding.AppendEncode(c.buf, piece)
		b = b[len(piece):]
		c.full()
	}
	c.buf = append(c.buf, '"')
}

// json adds b, which is JSON, without its line breaks: lines of NDJSON and of server-sent events must not have
// any. In JSON, line breaks are only between tokens, where they mean nothing.
func (c *chunks) json(b []byte) {
	for len(b) > 0 && c.err == nil {
		n := bytes.IndexAny(b, "\r\n")
		if n < 0 {
			n = len(b)
		}
		c.bytes(b[:n])
		b = b[min(n+1, len(b)):]
	}
}

// field adds ,"name":"value", or ,"name_base64":"…" if value isn't UTF-8.
func (c *chunks) field(name string, value []byte) {
	c.buf = append(c.buf, `,"`...)
	c.buf = append(c.buf, name...)
	if !utf8.Valid(value) {
		c.buf = append(c.buf, `_base64":`...)
		c.base64(value)
		return
	}
	c.buf = append(c.buf, `":`...)
	c.quoted(value)
}

// records begins an object, whose first field is the list rs. The caller ends the object.
func (c *chunks) records(rs []seb.Record) {
	c.text(`{"records":[`)
	for i := range rs {
		if i > 0 {
			c.text(",")
		}
		c.record(&rs[i])
	}
	c.text("]")
}

// record adds r as a JSON object. The object has the value in exactly one field: in value (null if r has none),
// in value_base64 if the value is not UTF-8, or in value_json if jsonValues is set and the value is JSON. It has
// fields for the key and the headers only if r has them.
func (c *chunks) record(r *seb.Record) {
	c.buf = append(c.buf, '{')
	c.fields(r)
	c.buf = append(c.buf, '}')
}

// fields adds r's fields, without the braces around them.
func (c *chunks) fields(r *seb.Record) {
	c.buf = append(c.buf, `"partition":`...)
	c.integer(int64(r.Partition))
	c.buf = append(c.buf, `,"offset":`...)
	c.integer(int64(r.Offset))
	c.buf = append(c.buf, `,"timestamp":"`...)
	c.timestamp(r.Timestamp)
	c.buf = append(c.buf, '"')
	if !r.LogTime.IsZero() {
		c.buf = append(c.buf, `,"log_time":"`...)
		c.buf = c.logStamps.append(c.buf, r.LogTime, httprecord.LogTimeLayout)
		c.buf = append(c.buf, '"')
	}
	if r.Key != nil {
		c.field("key", r.Key)
	}
	switch {
	case r.Value == nil:
		c.buf = append(c.buf, `,"value":null`...)
	case c.jsonValues && isJSON(r.Value):
		c.buf = append(c.buf, `,"value_json":`...)
		c.json(r.Value)
	default:
		c.field("value", r.Value)
	}
	if len(r.Headers) > 0 {
		c.headers(r.Headers)
	}
}

// timestamp adds t.
func (c *chunks) timestamp(t time.Time) { c.buf = c.stamps.append(c.buf, t, timestampLayout) }

// headers adds two fields: "headers" has the headers whose values are UTF-8, and "headers_base64" has the other
// headers.
func (c *chunks) headers(hs []seb.Header) {
	c.headerMap("headers", hs, func(h seb.Header) bool { return utf8.Valid(h.Value) }, c.quoted)
	c.headerMap("headers_base64", hs, func(h seb.Header) bool { return !utf8.Valid(h.Value) }, c.base64)
}

// headerMap adds an object with the headers for which belongs returns true, such as ,"headers":{"a":"x"}. If
// several headers have one name, the value of that name is a list of strings. If belongs returns true for no
// header, headerMap adds nothing.
func (c *chunks) headerMap(field string, hs []seb.Header, belongs func(seb.Header) bool, value func([]byte)) {
	c.order = c.order[:0]
	for i, h := range hs {
		if belongs(h) {
			c.order = append(c.order, i)
		}
	}
	if len(c.order) == 0 {
		return
	}
	slices.SortStableFunc(c.order, func(a, b int) int { return strings.Compare(hs[a].Name, hs[b].Name) })
	c.buf = append(append(append(c.buf, `,"`...), field...), `":{`...)
	for i := 0; i < len(c.order); {
		end := i + 1
		for end < len(c.order) && hs[c.order[end]].Name == hs[c.order[i]].Name {
			end++
		}
		if i > 0 {
			c.buf = append(c.buf, ',')
		}
		c.quoted([]byte(strings.ToValidUTF8(hs[c.order[i]].Name, "\uFFFD")))
		c.buf = append(c.buf, ':')
		c.oneOrList(hs, c.order[i:end], value)
		i = end
	}
	c.buf = append(c.buf, '}')
}

func (c *chunks) oneOrList(hs []seb.Header, of []int, value func([]byte)) {
	if len(of) == 1 {
		value(hs[of[0]].Value)
		return
	}
	for i, at := range of {
		c.buf = append(c.buf, "[,"[min(i, 1)])
		c.full()
		value(hs[at].Value)
	}
	c.buf = append(c.buf, ']')
}

// appendEscaped escapes b for a JSON string, and appends the result to dst. b is a piece of UTF-8 text. It may
// begin and end within a character, since only bytes below 0x80 are escaped.
func appendEscaped(dst, b []byte) []byte {
	const hex = "0123456789abcdef"
	done := 0
	for i, c := range b {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, b[done:i]...)
		done = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
		}
	}
	return append(dst, b[done:]...)
}
