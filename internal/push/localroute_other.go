//go:build !linux

package push

import "net/netip"

// routedHere returns false: only Linux has local routes.
func routedHere(netip.Addr) (bool, error) { return false, nil }
