package push

import (
	"net"
	"net/netip"
)

// ownAddress reports whether an address belongs to a network interface of this machine. It asks the
// system each time, since addresses come and go.
func ownAddress(a netip.Addr) bool {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return canBind(a) // a sandbox may forbid listing the addresses
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

// canBind reports whether a socket can bind to an address. Most machines can bind only to their own
// addresses. A router may be set up to bind to any address: there, canBind returns true for all
// addresses.
func canBind(a netip.Addr) bool {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
	if err != nil {
		return false
	}
	_ = c.Close() // an error does not matter: the socket sent nothing
	return true
}
