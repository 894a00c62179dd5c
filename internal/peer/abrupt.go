package peer

import (
	"crypto/tls"
	"net"
)

// Abrupt returns conn as a connection whose Close does not wait. [tls.Conn.Close] first sends an alert,
// and waits up to five seconds for that if the network is blocked. net/http's transport and server call Close
// under a lock that other requests need. The alert isn't needed: HTTP marks the end of an answer, so a
// client notices an answer that was cut off.
func Abrupt(conn *tls.Conn) net.Conn { return abrupt{conn} }

type abrupt struct{ *tls.Conn }

// Close implements [net.Conn].
func (c abrupt) Close() error { return c.NetConn().Close() }
