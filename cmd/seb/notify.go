package main

import (
	"context"
	"fmt"
	"net"
	"os"
)

// notifySupervisor sends the process's state (READY=1 or STOPPING=1) to the supervisor, if
// NOTIFY_SOCKET is set, as systemd does for units with Type=notify. The protocol is that of
// sd_notify(3): one datagram.
func notifySupervisor(ctx context.Context, state string) error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unixgram", socket)
	if err != nil {
		return fmt.Errorf("notify the supervisor: %w", err)
	}
	defer func() { _ = conn.Close() }() // the datagram was sent already
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify the supervisor: %w", err)
	}
	return nil
}
