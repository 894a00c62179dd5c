package httpconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// The memory that request headers may take. net/http bounds the bytes of a header. But a short line
// takes many times its bytes.
const (
	// headerLineBytes is the memory that a line of a header takes in addition to its bytes: an entry of a map.
	headerLineBytes = 200
	// SmallHeaderBytes is the memory that every connection may use for a header. Only headers that need more
	// can have to wait, or be refused.
	SmallHeaderBytes = 16 << 10
	// LargeHeadersBytes is the memory that all connections together may use for headers, beyond
	// SmallHeaderBytes for each.
	LargeHeadersBytes = 8 << 20

	// headerWaitMax is how long a large header waits for memory.
	headerWaitMax = 5 * time.Second
	// headerTurn is how long a client may take for a large header. Then it must give way to others that wait.
	headerTurn = time.Second
	// headerTick is how often a waiting header checks whether another one has used up its turn.
	headerTick = 100 * time.Millisecond
	// lastAnswerTime is how long a refused client has to read the answer. If the connection were closed at once,
	// then bytes that the client is still sending could destroy the answer.
	lastAnswerTime   = 500 * time.Millisecond
	lastAnswerRest   = 256 << 10 // bytes that a refused client may still send
	handshakeTimeout = 10 * time.Second

	// readerBytes is the size of the buffer through which net/http reads.
	readerBytes = 4096
	// readAheadBytes is how many bytes net/http gets at once through that buffer while it reads a body. Some of
	// them may belong to the next request's header, and are not counted.
	readAheadBytes = 512
)

// Headers bounds the memory that the headers of requests take until the requests are answered. One Headers may
// serve several servers.
type Headers struct {
	linesMax int
	most     int64 // memory that the largest header takes beyond SmallHeaderBytes

	mu         sync.Mutex
	free       int64
	unfinished []*headerConn // connections that are reading a large header, in order of their turns
	waiting    []*headerConn // connections that wait for a turn
}

// NewHeaders returns a Headers for headers of at most bytesMax bytes ([http.Server.MaxHeaderBytes]) and
// linesMax lines.
func NewHeaders(bytesMax, linesMax int) *Headers {
	most := headerMemory(bytesMax+readerBytes, linesMax) - SmallHeaderBytes // net/http reads up to 4096 bytes more
	return &Headers{linesMax: linesMax, most: most, free: max(LargeHeadersBytes, most)}
}

// headerMemory counts bytes twice, since net/http has two copies of a line while it reads the line.
func headerMemory(bytes, lines int) int64 { return 2*int64(bytes) + headerLineBytes*int64(lines) }

// Watch makes s report its connections to h. It wraps s.ConnState, so the caller sets that field before it calls Watch.
func (h *Headers) Watch(s *http.Server) {
	before := s.ConnState
	s.ConnState = func(conn net.Conn, state http.ConnState) {
		if c, ok := conn.(interface{ observe(http.ConnState) }); ok {
			c.observe(state)
		}
		if before != nil {
			before(conn, state)
		}
	}
}

// Listen returns a listener; the caller lets s serve this listener instead of l. Its connections may be those of
// [tls.NewListener]: then the listener does what s does with a [*tls.Conn], except that it does not serve HTTP/2.
func (h *Headers) Listen(s *http.Server, l net.Listener) net.Listener {
	return &headerListener{Listener: l, headers: h, server: s}
}

type headerListener struct {
	net.Listener
	headers *Headers
	server  *http.Server
}

func (l *headerListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // net/http compares it
	}
	if secure, ok := conn.(*tls.Conn); ok {
		return &secureConn{headerConn: headerConn{Conn: secure, headers: l.headers}, secure: secure, server: l.server}, nil
	}
	return l.headers.Wrap(conn), nil
}

// Wrap returns conn, a connection without TLS, as a connection of a listener of h.
func (h *Headers) Wrap(conn net.Conn) net.Conn { return &headerConn{Conn: conn, headers: h} }

// headerConn counts the lines and bytes of headers while the server reads them. The server calls Read and
// observe, never both at a time.
type headerConn struct {
	net.Conn
	headers *Headers

	past     bool   // the header is complete: the server reads the body, or has called the handler
	hijacked bool   // a handler has taken over the connection
	header   header // what has come of the header
	large    bool   // the header needs more than SmallHeaderBytes
	held     []byte // was read from Conn, but is not given to the server yet

	// These are guarded by headers.mu.
	taken  int64         // memory of headers that this connection has
	since  time.Time     // when its turn began
	ready  chan struct{} // closed when its turn begins, or the connection is closed
	closed bool          // the connection is closed, or its turn has ended before the header did
}

// NetConn returns the underlying connection, like [tls.Conn.NetConn].
func (c *headerConn) NetConn() net.Conn { return c.Conn }

// observe learns what the server does with the connection.
func (c *headerConn) observe(state http.ConnState) {
	switch state {
	case http.StateIdle: // a request is answered
		c.past, c.header = false, header{}
		c.giveBack()
	case http.StateActive:
		if !c.past && c.large { // the header began in bytes that were not counted
			_ = c.headers.keep(c, c.needs()) // an error means that the connection is being closed
		}
		c.past = true
	case http.StateHijacked:
		c.hijacked = true
	case http.StateNew, http.StateClosed:
	}
}

// Read never returns bytes from behind the end of a header together with the header: they may belong to the
// next request's header.
func (c *headerConn) Read(p []byte) (int, error) {
	n, err := c.next(p)
	if n == 0 {
		return n, err
	}
	if c.past {
		if c.readsAhead(p) {
			n = c.hold(p, min(n, readAheadBytes), n)
		}
		return n, err
	}
	k, ended := c.header.add(p[:n])
	n = c.hold(p, k, n)
	if refused := c.count(ended); refused != nil {
		return 0, refused
	}
	return n, err
}

// readsAhead tells whether a read into p may get bytes from behind the body. net/http reads into a larger p only what
// it knows to be part of the body.
func (c *headerConn) readsAhead(p []byte) bool {
	return c.past && !c.hijacked && len(p) <= readerBytes
}

// next reads what is held, or, if nothing is, from the connection.
func (c *headerConn) next(p []byte) (int, error) {
	if len(c.held) == 0 {
		return c.Conn.Read(p) //nolint:wrapcheck // net/http examines it
	}
	if c.readsAhead(p) {
		p = p[:min(len(p), readAheadBytes)]
	}
	n := copy(p, c.held)
	if c.held = c.held[n:]; len(c.held) == 0 {
		c.held = nil
	}
	return n, nil
}

// hold keeps the bytes of p from k to n for the next Read, and returns k.
func (c *headerConn) hold(p []byte, k, n int) int {
	if k < n {
		c.held = append(append(make([]byte, 0, n-k+len(c.held)), p[k:n]...), c.held...)
	}
	return k
}

// count takes memory for the header as far as it has come. If it returns an error, the client has got an
// answer where possible, and the server closes the connection.
func (c *headerConn) count(ended bool) error {
	c.past = ended
	if c.header.lines > c.headers.linesMax {
		return c.refuse(http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the header has more than %d lines", c.headers.linesMax))
	}
	if c.needs() <= 0 {
		return nil
	}
	if !c.large {
		c.large = true
		if err := c.headers.take(c); errors.Is(err, errHeadersFull) {
			return c.refuse(http.StatusServiceUnavailable, err.Error())
		} else if err != nil {
			return err
		}
	}
	if ended {
		return c.headers.keep(c, c.needs())
	}
	return nil
}

// needs returns the memory of the header beyond SmallHeaderBytes.
func (c *headerConn) needs() int64 {
	return headerMemory(c.header.bytes, c.header.lines) - SmallHeaderBytes
}

// refuse answers the request whose header is not complete.
func (c *headerConn) refuse(status int, detail string) error {
	text := fmt.Sprintf("%d %s", status, http.StatusText(status))
	_ = c.SetWriteDeadline(time.Now().Add(lastAnswerTime)) // if this or the write fails, the client gets no answer
	const header = "Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"
	_, _ = fmt.Fprintf(c.Conn, "HTTP/1.1 %s\r\n%s\r\n%s: %s\n", text, header, text, detail)
	if c.CloseWrite() == nil && c.SetReadDeadline(time.Now().Add(lastAnswerTime)) == nil {
		rest := io.LimitReader(c.Conn, lastAnswerRest)
		_, _ = io.Copy(io.Discard, rest) // until the client closes the connection, or one of the limits
	}
	return io.EOF // after this error, the server closes the connection without an answer of its own
}

func (c *headerConn) giveBack() {
	if c.large {
		c.large = false
		c.headers.giveBack(c, false)
	}
}

// Close closes the connection, and gives back its memory.
func (c *headerConn) Close() error {
	err := c.Conn.Close()
	c.headers.giveBack(c, true)
	return err //nolint:wrapcheck // net/http examines it
}

// CloseWrite shuts down the sending side: see [limitedConn.CloseWrite].
func (c *headerConn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite() //nolint:wrapcheck // the connection's error, unchanged
	}
	return nil
}

// header is how much has come of a request's header.
type header struct {
	bytes, lines int
	begun        bool // a line that is not empty has come
	length       int  // of the line that has not ended
	last         byte // of the line that has not ended
}

// add counts the bytes of p up to and including the next empty line, and returns their number. ended is true if this
// line ends the header. An empty line before the request line does not, since servers ignore such lines.
func (h *header) add(p []byte) (n int, ended bool) {
	for i, b := range p {
		h.bytes++
		if b != '\n' {
			h.length, h.last = h.length+1, b
			continue
		}
		empty := h.length == 0 || h.length == 1 && h.last == '\r'
		h.length = 0
		h.lines++
		if empty {
			return i + 1, h.begun
		}
		h.begun = true
	}
	return len(p), false
}

var errHeadersFull = errors.New("the memory for large headers is full")

// take waits until there is memory for the largest header that c's client may send. A header that is not
// complete takes all of that, so that headers never wait for one another in a circle.
func (h *Headers) take(c *headerConn) error {
	h.mu.Lock()
	if c.closed {
		h.mu.Unlock()
		return net.ErrClosed
	}
	c.ready = make(chan struct{})
	h.waiting = append(h.waiting, c)
	h.serveLocked()
	h.mu.Unlock()
	timeout := time.NewTimer(headerWaitMax)
	defer timeout.Stop()
	tick := time.NewTicker(headerTick)
	defer tick.Stop()
	for {
		select {
		case <-c.ready:
			return h.turn(c)
		case <-tick.C:
			h.endTurns()
		case <-timeout.C:
			if h.leave(c) {
				return errHeadersFull
			}
			return h.turn(c)
		}
	}
}

// turn returns an error if c is closed.
func (h *Headers) turn(c *headerConn) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	return nil
}

// leave removes c from the connections that wait for a turn. It returns false if c was no longer waiting.
func (h *Headers) leave(c *headerConn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	var was bool
	h.waiting, was = without(h.waiting, c)
	return was
}

func (h *Headers) serveLocked() {
	for len(h.waiting) > 0 && h.free >= h.most {
		c := h.waiting[0]
		h.waiting = h.waiting[1:]
		h.free -= h.most
		c.taken, c.since = h.most, time.Now()
		h.unfinished = append(h.unfinished, c)
		close(c.ready)
	}
}

// endTurns ends connections whose clients have not sent the rest of a large header in time, if other large
// headers wait.
func (h *Headers) endTurns() {
	var ended []*headerConn
	h.mu.Lock()
	for len(h.waiting) > 0 && len(h.unfinished) > 0 && time.Since(h.unfinished[0].since) >= headerTurn {
		c := h.unfinished[0]
		ended = append(ended, c)
		h.endLocked(c)
	}
	h.mu.Unlock()
	for _, c := range ended {
		_ = c.SetReadDeadline(time.Now()) // the server closes the connection, as after its own timeout
	}
}

// keep notes that c's header is complete and needs n bytes.
func (h *Headers) keep(c *headerConn, n int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.closed {
		return os.ErrDeadlineExceeded
	}
	h.unfinished, _ = without(h.unfinished, c)
	n = min(n, c.taken)
	h.free += c.taken - n
	c.taken = n
	h.serveLocked()
	return nil
}

func (h *Headers) giveBack(c *headerConn, closed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if closed {
		h.endLocked(c)
		return
	}
	h.free += c.taken
	c.taken = 0
	h.serveLocked()
}

// endLocked takes back c's memory, and refuses c any further memory.
func (h *Headers) endLocked(c *headerConn) {
	c.closed = true
	if was := false; len(h.waiting) > 0 {
		if h.waiting, was = without(h.waiting, c); was {
			close(c.ready)
		}
	}
	if c.taken > 0 {
		h.unfinished, _ = without(h.unfinished, c)
		h.free += c.taken
		c.taken = 0
		h.serveLocked()
	}
}

func without(list []*headerConn, c *headerConn) ([]*headerConn, bool) {
	for i, x := range list {
		if x == c {
			return append(list[:i], list[i+1:]...), true
		}
	}
	return list, false
}

// secureConn is a headerConn with TLS. The server treats only a [*tls.Conn] as a connection with TLS, and would
// read from it directly. So secureConn does the server's part: it completes the handshake.
type secureConn struct {
	headerConn
	secure *tls.Conn
	server *http.Server
	failed bool // the handshake
}

// ConnectionState completes the handshake. The server calls it before it reads.
func (c *secureConn) ConnectionState() tls.ConnectionState {
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	if err := c.secure.HandshakeContext(ctx); err != nil {
		c.failed = true
		if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) && plain.Conn != nil && looksLikeHTTP(plain.RecordHeader) {
			_, _ = io.WriteString(plain.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n") // at best, the client learns why
			err = errors.New("client sent an HTTP request to an HTTPS server")
		}
		if c.server.ErrorLog != nil {
			c.server.ErrorLog.Printf("http: TLS handshake error from %s: %v", c.RemoteAddr(), err)
		}
	}
	return c.secure.ConnectionState()
}

func looksLikeHTTP(begin [5]byte) bool {
	return slices.Contains([]string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH"}, string(begin[:]))
}

// Close closes the connection, and gives back its memory. If a handler has taken over the connection, Close sends no TLS
// alert first, since that could wait for the client.
func (c *secureConn) Close() error {
	if !c.hijacked {
		return c.headerConn.Close()
	}
	err := c.secure.NetConn().Close()
	c.headers.giveBack(&c.headerConn, true)
	return err //nolint:wrapcheck // the connection's error, unchanged
}

// Read is [headerConn.Read], unless the handshake has failed.
func (c *secureConn) Read(p []byte) (int, error) {
	if c.failed {
		return 0, io.EOF
	}
	return c.headerConn.Read(p)
}
