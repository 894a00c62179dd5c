package peer

import (
	"crypto/tls"
	"net"
)

// Abrupt returns a connection that closes at once. [tls.Conn.Close] first tells the other side,
// and waits up to five seconds for a network that takes nothing, while net/http's transport,
// or its server, holds a lock that requests need. HTTP says itself where an answer ends, so nobody takes one
// that was cut off for whole.
func Abrupt(conn *tls.Conn) net.Conn { return abrupt{conn} }

type abrupt struct{ *tls.Conn }

// Close implements [net.Conn].
func (c abrupt) Close() error { return c.NetConn().Close() }
