package peer

import (
	"errors"
	"net"
	"sync/atomic"
)

// A broker reads only a bounded number of bytes from a peer that it does not know yet, so that the peer
// can't make the broker use much memory. TLS alone would accept messages of up to 256 KiB.
const (
	// answerBytesMax bounds the header of the response to an upgrade.
	answerBytesMax = 8 << 10
	// handshakeBytesMax is several times the size of a handshake.
	handshakeBytesMax = 8 << 10
	// requestBytesMax has room for the largest header that the API reads, 64 KiB, and for bytes that
	// are read ahead.
	requestBytesMax = 128 << 10

	unbounded = -1
)

// bounded is a connection with a limit on the bytes that are read from it.
type bounded struct {
	net.Conn
	left atomic.Int64 // how many more bytes may be read; a negative number means no limit
}

func newBounded(conn net.Conn, n int64) *bounded {
	b := &bounded{Conn: conn}
	b.allow(n)
	return b
}

// allow sets how many more bytes may be read. While another goroutine may be reading, n must be [unbounded].
func (b *bounded) allow(n int64) { b.left.Store(n) }

// NetConn returns the underlying connection, like [crypto/tls.Conn].
func (b *bounded) NetConn() net.Conn { return b.Conn }

func (b *bounded) Read(p []byte) (int, error) {
	left := b.left.Load()
	if left == 0 {
		return 0, errors.New("the other side has sent more than is allowed before it is trusted")
	}
	if left > 0 {
		p = p[:min(int64(len(p)), left)]
	}
	n, err := b.Conn.Read(p)
	b.left.Add(int64(-n)) // if allow(unbounded) was called during the read, left stays negative, which means no limit
	return n, err         //nolint:wrapcheck // the connection's error, unchanged
}
