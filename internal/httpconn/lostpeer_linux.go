package httpconn

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// boundUnacknowledged sets how long written bytes may stay unacknowledged by the other side
// before the connection fails (RFC 5482).
func boundUnacknowledged(c *net.TCPConn, d time.Duration) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
	return errors.Join(err, set)
}
