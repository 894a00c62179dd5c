package push

import (
	"net"
	"net/netip"
	"testing"
)

func TestAddressesOfAllInterfacesAreThisMachines(t *testing.T) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range addresses {
		own, ok := netip.AddrFromSlice(x.(*net.IPNet).IP)
		if own = own.Unmap(); !ok || !ownAddress(own) {
			t.Errorf("%s is not taken for an address of this machine", x)
		}
		if !own.IsLinkLocalUnicast() && !canBind(own) { // link-local addresses need a zone
			t.Errorf("no socket can have %s", x)
		}
	}
	for _, text := range []string{"1.1.1.1", "2606:4700::1111"} {
		if a := netip.MustParseAddr(text); ownAddress(a) || canBind(a) {
			t.Errorf("%s is taken for an address of this machine", a)
		}
	}
}
