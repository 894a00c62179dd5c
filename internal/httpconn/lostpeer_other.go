//go:build !linux

package httpconn

import (
	"net"
	"time"
)

// boundUnacknowledged does nothing. Here only keep-alive probes notice a lost client, and the
// system may not send them while bytes are unacknowledged.
func boundUnacknowledged(*net.TCPConn, time.Duration) error { return nil }
