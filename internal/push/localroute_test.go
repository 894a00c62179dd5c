package push

import (
	"errors"
	"net"
	"net/netip"
	"testing"
)

// A connection whose ends have the same address goes to this machine, even if no interface has the address.
func TestConnectionsFromTheirOwnAddressAreRefused(t *testing.T) {
	tcp := func(text string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text)) }
	n := Networks{Allowed: prefixes("11.78.0.0/16", "2606:4701::/32")}
	for _, c := range []struct {
		local, remote string
		want          bool
	}{
		{"11.77.0.9:5000", "11.77.0.9:443", false},
		{"11.77.0.9:5000", "[::ffff:11.77.0.9]:443", false},
		{"[2606:4700::1]:5000", "[2606:4700::1]:443", false},
		{"11.77.0.8:5000", "11.77.0.9:443", true},
		{"[2606:4700::2]:5000", "[2606:4700::1]:443", true},
		{"11.78.0.9:5000", "11.78.0.9:443", true},
		{"[2606:4701::1]:5000", "[2606:4701::1]:443", true},
	} {
		err := n.guardMade(tcp(c.local), tcp(c.remote))
		if (err == nil) != c.want {
			t.Errorf("from %s to %s: %v", c.local, c.remote, err)
		}
		if forbidden, ok := errors.AsType[*forbiddenError](err); !c.want && (!ok || forbidden.why != ownMachine || forbidden.hint == "") {
			t.Errorf("from %s to %s: %v", c.local, c.remote, err)
		}
	}
	if n.guardMade(&net.UnixAddr{}, &net.UnixAddr{}) == nil {
		t.Error("a connection without IP addresses is allowed")
	}
}
