package push

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// Networks decides to which addresses a pusher may send. The zero value allows public addresses
// that are not this machine's own.
type Networks struct {
	// Allowed are prefixes such as 10.2.0.0/16 or fd00:1::/32. Requests may go to addresses in them, even
	// if the addresses are not public or belong to this machine.
	Allowed []netip.Prefix
	// Denied are prefixes to which no request may go, not even to addresses that are in Allowed too.
	Denied []netip.Prefix

	// own reports whether an address belongs to this machine; nil means ownAddress. Tests set it.
	own func(netip.Addr) bool
}

// closed4 are the IPv4 networks to which no request may go unless the operator allows them. They are the
// networks that the registry of special-purpose addresses (RFC 6890) lists as not globally reachable, the
// multicast networks, and one public address that a cloud uses internally.
var closed4 = prefixes(
	"0.0.0.0/8",       // this network; a connection to 0.0.0.0 goes to this machine
	"10.0.0.0/8",      // private
	"100.64.0.0/10",   // shared between a carrier and its customers, and the metadata service of a cloud
	"127.0.0.0/8",     // this machine
	"168.63.129.16",   // a cloud's services for its machines
	"169.254.0.0/16",  // link-local, and the metadata service of most clouds
	"172.16.0.0/12",   // private
	"192.0.0.0/24",    // IETF protocol assignments
	"192.0.2.0/24",    // documentation
	"192.88.99.0/24",  // relays of 6to4
	"192.168.0.0/16",  // private
	"198.18.0.0/15",   // benchmarks
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"224.0.0.0/4",     // multicast
	"240.0.0.0/4",     // reserved, and broadcast
)

// open6 contains all public IPv6 addresses, and some others: closed6 has the networks in open6 that are not
// public.
var open6 = netip.MustParsePrefix("2000::/3")

var closed6 = prefixes(
	"2001::/23",     // IETF protocol assignments; a Teredo address embeds an IPv4 address
	"2001:db8::/32", // documentation
	"2002::/16",     // 6to4; its addresses embed an IPv4 address
	"3fff::/20",     // documentation
)

// translated is the prefix under which NAT64 embeds all of IPv4 (RFC 6052).
var translated = netip.MustParsePrefix("64:ff9b::/96")

func prefixes(texts ...string) []netip.Prefix {
	var ps []netip.Prefix
	for _, text := range texts {
		if !strings.Contains(text, "/") {
			text += "/32"
		}
		ps = append(ps, netip.MustParsePrefix(text))
	}
	return ps
}

// allows reports whether requests may go to the address a.
func (n Networks) allows(a netip.Addr) bool { return n.against(a) == "" }

// against returns why no request may go to the address a; "" if requests may.
func (n Networks) against(a netip.Addr) string {
	a = a.WithZone("").Unmap()
	holds := func(p netip.Prefix) bool { return p.Contains(a) }
	inner, embeds := embedded(a)
	switch {
	case n.denies(a):
		return "is in a network that the broker never pushes to"
	case slices.ContainsFunc(n.Allowed, holds):
		return ""
	case embeds:
		if why := n.against(inner); why != "" || !n.isOwn(a) {
			return why
		}
		return ownMachine
	case a.Is4() && slices.ContainsFunc(closed4, holds), a.Is6() && (!open6.Contains(a) || slices.ContainsFunc(closed6, holds)):
		return "is not public"
	case n.isOwn(a):
		return ownMachine
	}
	return ""
}

const ownMachine = "belongs to the broker's own machine"

// denies reports whether the operator has denied the address a, or the IPv4 address that a embeds.
func (n Networks) denies(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	inner, embeds := embedded(a)
	return slices.ContainsFunc(n.Denied, func(p netip.Prefix) bool { return p.Contains(a) || embeds && p.Contains(inner) })
}

func (n Networks) isOwn(a netip.Addr) bool {
	if n.own != nil {
		return n.own(a)
	}
	return ownAddress(a)
}

// embedded returns the IPv4 address that a NAT64 address stands for; ok is false for other addresses.
func embedded(a netip.Addr) (inner netip.Addr, ok bool) {
	if !translated.Contains(a) {
		return netip.Addr{}, false
	}
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[12:])), true
}

// hint says what to do about an address to which no request may go.
func (n Networks) hint(a netip.Addr) string {
	if n.denies(a) {
		return "use another address, or have its network removed from --push-deny of seb serve"
	}
	return "use a public address, or have its network allowed with --push-allow of seb serve"
}

// CheckTarget returns an [*InvalidError] if t's URL has an IP address to which no request may go. It accepts
// every host name: the addresses of a host name may change at any time, so each connection checks them.
func (n Networks) CheckTarget(t Target) error {
	u, err := parseURL(t.URL)
	if err != nil {
		return err
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil { // else it is a host name
		if why := n.against(a); why != "" {
			return invalid("url", n.hint(a), "the URL's address %s %s", a, why)
		}
	}
	return nil
}

// forbiddenError says that Networks does not allow a connection to an address, why, and what to do (hint).
type forbiddenError struct {
	address   netip.AddrPort
	why, hint string
}

func (e *forbiddenError) Error() string {
	return fmt.Sprintf("connect to %s: the address %s", e.address, e.why)
}

// guard returns an error if a connection may not be made. A [net.Dialer] calls it as its ControlContext, after
// the host name is resolved and before the connection is made.
func (n Networks) guard(_ context.Context, network, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("connect to %s %s: it is not a TCP address", network, address)
	}
	if why := n.against(a.Addr()); why != "" {
		return &forbiddenError{a, why, n.hint(a.Addr())}
	}
	return nil
}

// dial makes a connection, as [net.Dialer.DialContext] does.
type dial func(ctx context.Context, network, address string) (net.Conn, error)

// guarded returns a dial that closes connections to this machine, before anything is sent. guard may not know
// all addresses of this machine: a sandbox can hide its routes, and routes can change before the connection is
// made. A connection to an address of a local route mostly comes from the same address.
func (n Networks) guarded(d dial) dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := d(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if err := n.guardMade(conn.LocalAddr(), conn.RemoteAddr()); err != nil {
			_ = conn.Close() // the connection was not used
			return nil, err
		}
		return conn, nil
	}
}

// guardMade returns an error if both ends of a connection have the same IP address, so that it goes to this
// machine, unless the operator has allowed that address.
func (n Networks) guardMade(local, remote net.Addr) error {
	from, ok1 := local.(*net.TCPAddr)
	to, ok2 := remote.(*net.TCPAddr)
	if !ok1 || !ok2 {
		return fmt.Errorf("connect to %v from %v: it is not a TCP connection", remote, local)
	}
	a := to.AddrPort().Addr().WithZone("").Unmap()
	if !from.IP.Equal(to.IP) || slices.ContainsFunc(n.Allowed, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return nil
	}
	return &forbiddenError{to.AddrPort(), ownMachine, n.hint(a)}
}
