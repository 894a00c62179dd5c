package push

import (
	"net"
	"net/netip"
)

// ownAddress reports whether an address is one of this machine's, of whichever of its
// interfaces. It asks the system each time, since addresses come and go.
func ownAddress(a netip.Addr) bool {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return canBind(a) // a sandbox may forbid to list them
	}
	for _, x := range addresses {
		if n, ok := x.(*net.IPNet); ok {
			if own, ok := netip.AddrFromSlice(n.IP); ok && own.Unmap() == a {
				return true
			}
		}
	}
	return false
}

// canBind reports whether a socket can have an address, which it can if that is this machine's.
// A router may be set up so that it can have any: there this takes all for its own.
func canBind(a netip.Addr) bool {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
	if err != nil {
		return false
	}
	_ = c.Close() // nothing was sent
	return true
}
