package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/simple-event-broker/seb"
)

// pushFlags say whether this broker pushes records, and to which networks.
type pushFlags struct {
	Push      bool           `default:"true" negatable:"" help:"Deliver the records of pushed queues to their URLs (default ${default})."`
	PushAllow []netip.Prefix `placeholder:"NETWORK" help:"Networks or addresses that records may be pushed to although they are private, or this machine's own, such as 10.2.0.0/16 or 127.0.0.1 (default: none)."`
	PushDeny  []netip.Prefix `placeholder:"NETWORK" help:"Networks or addresses that records are never pushed to, even if they are public or in --push-allow (default: none)."`
}

func (f pushFlags) check() error {
	return cmp.Or(checkNetworks("--push-allow", f.PushAllow), checkNetworks("--push-deny", f.PushDeny))
}

func checkNetworks(flag string, networks []netip.Prefix) error {
	for _, p := range networks {
		if p != p.Masked() {
			return usage(fmt.Errorf("%s %s has bits set after the network prefix: use %s", flag, p, p.Masked()))
		}
		if p.Addr().Is4In6() {
			return usage(fmt.Errorf("%s %s is an IPv4 network written as IPv6: write it as IPv4", flag, p))
		}
	}
	return nil
}

// deliver pushes records until the caller calls end. end waits for the requests to targets that are under
// way, for drainTimeout at most.
func (f pushFlags) deliver(broker *seb.Broker, log *slog.Logger) (end func()) {
	if !f.Push {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := broker.DeliverPushed(ctx, seb.PushOptions{Grace: drainTimeout}); err != nil {
			log.Error("this broker no longer pushes the records of queues to their URLs: restart the broker", "error", err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}
