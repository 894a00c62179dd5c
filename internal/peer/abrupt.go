package peer

import (
	"crypto/tls"
	"net"
)

// Abrupt returns a connection that closes at once. [tls.Conn.Close] first tells the other side,
// and waits up to five seconds for a blocked network, while net/http's transport,
// or its server, holds a lock that requests need. HTTP marks the end of an answer itself, so a
// client notices that one was cut off.
func Abrupt(conn *tls.Conn) net.Conn { return abrupt{conn} }

type abrupt struct{ *tls.Conn }

// Close implements [net.Conn].
func (c abrupt) Close() error { return c.NetConn().Close() }
