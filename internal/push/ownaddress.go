package push

import (
	"net"
	"net/netip"
)

// ownAddress reports whether an address belongs to this machine, by a route or by a network interface. It asks
// the system each time, since routes and addresses come and go.
//
// If the system does not tell the route, the interfaces alone decide. To refuse the address instead would stop all
// pushes of a broker whose sandbox forbids netlink sockets. Such a sandbox also forbids listing the interfaces: then
// canBind decides, which finds the local routes of IPv4 too. A local route of IPv6 stays unknown until the broker has
// made a connection to the address: then both ends of the connection have this address (see guardMade).
func ownAddress(a netip.Addr) bool {
	if here, err := routedHere(a); err == nil && here {
		return true
	}
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
