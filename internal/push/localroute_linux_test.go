package push

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inNamespace is set in the environment of a test that runs in a network namespace of its own.
const inNamespace = "SEB_TEST_LOCAL_ROUTE"

// unshared runs the calling test again, in a network namespace of its own, after these commands. It returns true
// in that namespace, and otherwise after the test there has ended.
func unshared(t *testing.T, commands string) bool {
	t.Helper()
	if os.Getenv(inNamespace) != "" {
		return true
	}
	commands = "ip link set lo up && " + commands
	if out, err := exec.CommandContext(t.Context(), "unshare", "-rn", "sh", "-c", commands).CombinedOutput(); err != nil {
		t.Skipf("this system allows no network namespace with %q: %v: %s", commands, err, out)
	}
	again := exec.CommandContext(t.Context(), "unshare", "-rn", "sh", "-c", commands+` && exec "$0" -test.v -test.run "$1"`, os.Args[0], "^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
	again.Env = append(os.Environ(), inNamespace+"=1")
	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v: %s", err, out)
	}
	return false
}

// A local route makes all addresses of a network this machine's own. No interface has these addresses, and a
// connection to one of them may come from another address.
func TestNoConnectionIsMadeToAddressesOfALocalRoute(t *testing.T) {
	for name, c := range map[string]struct{ commands, host string }{
		"route":              {"ip route add local 11.77.0.0/24 dev lo", "11.77.0.9"},
		"network-of-lo":      {"ip addr add 11.77.0.1/24 dev lo", "11.77.0.9"},
		"IPv4-mapped":        {"ip addr add 11.77.0.1/24 dev lo", "[::ffff:11.77.0.9]"},
		"IPv6":               {"ip addr add 2606:4700:78::1/128 dev lo && ip route add local 2606:4700:77::/64 dev lo", "[2606:4700:77::9]"},
		"translation-of-own": {"ip addr add 2606:4700:78::1/128 dev lo && ip route add local 64:ff9b::/96 dev lo", "[64:ff9b::11.77.0.9]"},
	} {
		t.Run(name, func(t *testing.T) {
			if !unshared(t, c.commands) {
				return
			}
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", ":0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			at := fmt.Sprintf("%s:%d", c.host, l.Addr().(*net.TCPAddr).Port)
			q := newQueue()
			to := target{url: "http://" + at + "/"}
			p := to.pusher(t, q, func(_ *Target, o *Options) { o.Networks = Networks{} })
			run(t, p)
			q.add("v")
			if why := wantBlocked(t, p); !strings.Contains(why, "own machine") || !strings.Contains(why, "--push-allow") {
				t.Errorf("blocked: %q", why)
			}
			// This machine answers at the address, and the first connection is the test's own.
			first, err := new(net.Dialer).DialContext(t.Context(), "tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = first.Close() }()
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if conn.RemoteAddr().String() != first.LocalAddr().String() {
				t.Errorf("a connection came from %s", conn.RemoteAddr())
			}
		})
	}
}

// If the broker does not know that an address is its own, it learns so from the connection, and sends nothing.
func TestNothingIsSentToAddressesOfALocalRoute(t *testing.T) {
	if !unshared(t, "ip route add local 11.77.0.0/24 dev lo") {
		return
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	came := make(chan []byte, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return // the test has ended
		}
		defer func() { _ = conn.Close() }()
		got := make([]byte, 1)
		n, _ := conn.Read(got) // fails if the broker resets the connection
		came <- got[:n]
	}()
	q := newQueue()
	to := target{url: fmt.Sprintf("http://11.77.0.9:%d/", l.Addr().(*net.TCPAddr).Port)}
	unknown := Networks{own: func(netip.Addr) bool { return false }}
	p := to.pusher(t, q, func(_ *Target, o *Options) { o.Networks = unknown })
	run(t, p)
	q.add("v")
	if why := wantBlocked(t, p); !strings.Contains(why, "own machine") || !strings.Contains(why, "--push-allow") {
		t.Errorf("blocked: %q", why)
	}
	if got := <-came; len(got) > 0 {
		t.Errorf("this machine got %q", got)
	}
}

func TestKernelTellsWhichAddressesAreThisMachines(t *testing.T) {
	if !unshared(t, "ip addr add 11.77.0.1/24 dev lo && ip route add unicast 11.78.0.0/24 dev lo && ip route add prohibit 11.79.0.0/24") {
		return
	}
	for text, want := range map[string]bool{"11.77.0.1": true, "11.77.0.200": true, "127.1.2.3": true, "::1": true, "11.78.0.1": false} {
		if here, err := routedHere(netip.MustParseAddr(text)); err != nil || here != want {
			t.Errorf("%s: %v, %v", text, here, err)
		}
	}
	for text, want := range map[string]error{"11.79.0.1": syscall.EACCES, "1.1.1.1": syscall.ENETUNREACH, "2606:4700::1111": syscall.ENETUNREACH} {
		here, err := routedHere(netip.MustParseAddr(text))
		if err == nil || here || !strings.HasSuffix(err.Error(), want.Error()) {
			t.Errorf("%s: %v, %v", text, here, err)
		}
	}
}

// A sandbox may forbid netlink sockets, which tell the routes and the interfaces.
func TestOwnAddressesAreKnownWithoutNetlink(t *testing.T) {
	forbidden := make(chan error)
	go func() {
		defer close(forbidden)
		runtime.LockOSThread() // without an unlock: the thread ends with this goroutine, and its sandbox with it
		if err := forbidNetlink(); err != nil {
			forbidden <- err
			return
		}
		if here, err := routedHere(netip.MustParseAddr("127.0.0.1")); err == nil {
			t.Errorf("the kernel tells %v", here)
		}
		for text, want := range map[string]bool{"127.0.0.1": true, "1.1.1.1": false} {
			if got := ownAddress(netip.MustParseAddr(text)); got != want {
				t.Errorf("%s: %v", text, got)
			}
		}
	}()
	if err := <-forbidden; err != nil {
		t.Skipf("this system allows no seccomp filter: %v", err)
	}
}

// forbidNetlink makes socket(AF_NETLINK, …) fail in this thread, as RestrictAddressFamilies of systemd does.
func forbidNetlink() error {
	const load, equal, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	firstArgument := uint32(16) // in struct seccomp_data, of 64 bits
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		firstArgument += 4
	}
	filter := []unix.SockFilter{
		{Code: load, K: 0}, // the number of the system call
		{Code: equal, K: unix.SYS_SOCKET, Jf: 3},
		{Code: load, K: firstArgument},
		{Code: equal, K: unix.AF_NETLINK, Jf: 1},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return err
	}
	if s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE); err == nil {
		return errors.Join(errors.New("sockets come from another system call on "+runtime.GOARCH), unix.Close(s))
	}
	return nil
}

func TestAnswersOfTheKernelAreChecked(t *testing.T) {
	header := func(kind uint16, data []byte) []byte {
		b := binary.NativeEndian.AppendUint32(nil, uint32(syscall.NLMSG_HDRLEN+len(data)))
		b = binary.NativeEndian.AppendUint16(b, kind)
		return append(append(b, make([]byte, 10)...), data...)
	}
	local := append([]byte{syscall.AF_INET, 32, 0, 0, 0, 0, 0, syscall.RTN_LOCAL}, make([]byte, 4)...)
	for name, answer := range map[string][]byte{
		"nothing": nil, "no message": {1}, "short route": header(syscall.RTM_NEWROUTE, local[:8]), "short error": header(syscall.NLMSG_ERROR, nil),
		"another message": header(syscall.RTM_NEWADDR, local), "cut": header(syscall.RTM_NEWROUTE, local)[:20],
	} {
		if kind, err := routeType(answer); err == nil {
			t.Errorf("%s: %d", name, kind)
		}
	}
	if kind, err := routeType(header(syscall.RTM_NEWROUTE, local)); err != nil || kind != syscall.RTN_LOCAL {
		t.Errorf("%d, %v", kind, err)
	}
}
