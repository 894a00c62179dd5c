package peer

import (
	"crypto/tls"
	"net"
)

// Abrupt returns conn as a connection whose Close does not wait. [tls.Conn.Close] first sends an alert. If
// the network is blocked, that takes up to five seconds. Meanwhile other requests would wait, because
// net/http's transport and server hold a lock while they call Close. The alert isn't needed: HTTP marks
// the end of an answer, so a client notices an answer that was cut off.
func Abrupt(conn *tls.Conn) net.Conn { return abrupt{conn} }

type abrupt struct{ *tls.Conn }

// Close implements [net.Conn].
func (c abrupt) Close() error { return c.NetConn().Close() }
