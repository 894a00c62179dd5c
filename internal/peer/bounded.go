package peer

import (
	"errors"
	"net"
	"sync/atomic"
)

// What strangers may make a broker hold is bounded by what is read from them: TLS itself reads
// messages of up to 256 KiB.
const (
	// answerBytesMax is what the header of an answer may have.
	answerBytesMax = 8 << 10
	// handshakeBytesMax is several times what a handshake takes.
	handshakeBytesMax = 8 << 10
	// requestBytesMax has room for the largest header that the API reads, 64 KiB, and what is read
	// ahead with it.
	requestBytesMax = 128 << 10

	unbounded = -1
)

// bounded is a connection from which so many bytes are read at most.
type bounded struct {
	net.Conn
	left atomic.Int64 // negative: any number
}

func newBounded(conn net.Conn, n int64) *bounded {
	b := &bounded{Conn: conn}
	b.allow(n)
	return b
}

// allow allows n bytes from now on. Only [unbounded] may be allowed while a read goes on.
func (b *bounded) allow(n int64) { b.left.Store(n) }

// NetConn returns what lies below, as that of a [crypto/tls.Conn] does.
func (b *bounded) NetConn() net.Conn { return b.Conn }

func (b *bounded) Read(p []byte) (int, error) {
	left := b.left.Load()
	if left == 0 {
		return 0, errors.New("the other side has sent more than is read from a stranger")
	}
	if left > 0 {
		p = p[:min(int64(len(p)), left)]
	}
	n, err := b.Conn.Read(p)
	b.left.Add(int64(-n)) // stays negative if it has become so
	return n, err         //nolint:wrapcheck // a reader's errors are its callers'
}
