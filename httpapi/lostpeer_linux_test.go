package httpapi

import (
	"net"
	"net/http/httptest"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/simple-event-broker/seb"
)

// keptConns is a listener that sends accepted connections to a channel.
type keptConns struct {
	net.Listener
	accepted chan *net.TCPConn
}

func (k *keptConns) Accept() (net.Conn, error) {
	c, err := k.Listener.Accept()
	if err == nil {
		k.accepted <- c.(*net.TCPConn)
	}
	return c, err
}

// The keep-alive options reach a connection even if it is wrapped by a limit and TLS.
func TestLostClientsAreNoticed(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	for _, secure := range []bool{false, true} {
		ts := httptest.NewUnstartedServer(nil)
		kept := &keptConns{ts.Listener, make(chan *net.TCPConn, 1)}
		ts.Config = NewServer(s.handler, nil)
		ts.Listener = LimitConnections(ts.Config, kept, 5)
		if secure {
			ts.StartTLS()
		} else {
			ts.Start()
		}
		s.url, s.client = ts.URL, ts.Client()
		s.get("/livez").want(t, 200)
		raw, err := (<-kept.accepted).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var got [4]int
		err = raw.Control(func(fd uintptr) {
			for i, option := range []int{unix.TCP_USER_TIMEOUT, unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT} {
				if got[i], err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option); err != nil {
					t.Error(err)
				}
			}
		})
		if want := [4]int{25_000, 15, 5, 2}; err != nil || got != want {
			t.Errorf("TLS: %v: the options are %v, want %v: %v", secure, got, want, err)
		}
		ts.Close()
	}
}
