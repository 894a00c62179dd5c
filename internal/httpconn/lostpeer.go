package httpconn

import (
	"context"
	"net"
	"time"
)

// A client that loses its power or its network does not close its connection. The kernel
// retransmits for a quarter of an hour, and no write fails before that. Without these limits, the broker
// would send a record to a lost worker again after each record lease, until all attempts of the record are
// used up.
const (
	probeAfter = 15 * time.Second // the silence after which the kernel probes the client
	probeEvery = 5 * time.Second
	// peerLostAfter is the silence after which a connection ends: 15 s, and 5 s for each of two
	// unanswered probes. It is shorter than the usual record lease.
	peerLostAfter = 25 * time.Second
)

// NoticeLoss configures a server's connection so that the connection ends soon after its client is
// lost. The server calls it as [http.Server.ConnContext].
func NoticeLoss(ctx context.Context, c net.Conn) context.Context {
	for {
		over, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = over.NetConn()
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		// Errors are ignored: the calls fail only if the connection is already closed, which the server notices itself.
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{
			Enable: true, Idle: probeAfter, Interval: probeEvery, Count: int((peerLostAfter - probeAfter) / probeEvery),
		})
		_ = boundUnacknowledged(tcp, peerLostAfter)
	}
	return ctx
}
