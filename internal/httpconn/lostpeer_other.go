//go:build !linux

package httpconn

import (
	"net"
	"time"
)

// boundUnacknowledged does nothing: only the probes notice a loss here, which the system may
// not send while something is unacknowledged.
func boundUnacknowledged(*net.TCPConn, time.Duration) error { return nil }
