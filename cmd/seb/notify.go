package main

import (
	"context"
	"fmt"
	"net"
	"os"
)

// notifySupervisor tells a supervisor that asked for it, as systemd does of
// units with Type=notify, what became of the process: READY=1, STOPPING=1. It
// speaks the protocol of sd_notify(3), which is a datagram.
func notifySupervisor(ctx context.Context, state string) error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unixgram", socket)
	if err != nil {
		return fmt.Errorf("notify the supervisor: %w", err)
	}
	defer func() { _ = conn.Close() }() // a datagram that was sent is sent
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify the supervisor: %w", err)
	}
	return nil
}
