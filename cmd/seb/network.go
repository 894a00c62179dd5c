package main

import (
	"fmt"
	"net/netip"
	"reflect"

	"github.com/alecthomas/kong"
)

// networkValue reads a network such as 10.2.0.0/16 from the command line. An address stands for itself alone.
func networkValue(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("network", &text); err != nil {
		return err
	}
	network, err := netip.ParsePrefix(text)
	if address, notAddress := netip.ParseAddr(text); notAddress == nil && address.Zone() == "" {
		network, err = netip.PrefixFrom(address, address.BitLen()), nil
	}
	if err != nil {
		return fmt.Errorf("invalid network %q: write a network, such as 10.2.0.0/16, or an address, such as 127.0.0.1", text)
	}
	target.Set(reflect.ValueOf(network))
	return nil
}
