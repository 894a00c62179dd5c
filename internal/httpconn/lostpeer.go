package httpconn

import (
	"context"
	"net"
	"time"
)

// A machine that is switched off, or cut off, says nothing. The kernel sends what it did not
// take again for a quarter of an hour, and until then no write fails: a worker's stream would
// be handed records, again as each lease runs out, until all their attempts are used up.
const (
	probeAfter = 15 * time.Second // without a word
	probeEvery = 5 * time.Second
	// peerLostAfter has room for two probes that get lost, and is less than the usual lease.
	peerLostAfter = 25 * time.Second
)

// NoticeLoss has a connection of a server end soon after its client is lost. It is a
// ConnContext.
func NoticeLoss(ctx context.Context, c net.Conn) context.Context {
	for {
		over, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = over.NetConn()
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		// It fails only for what is closed already, which the server learns by itself.
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{
			Enable: true, Idle: probeAfter, Interval: probeEvery, Count: int((peerLostAfter - probeAfter) / probeEvery),
		})
		_ = boundUnacknowledged(tcp, peerLostAfter)
	}
	return ctx
}
