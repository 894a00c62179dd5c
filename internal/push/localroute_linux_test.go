package push

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// inNamespace is set in the environment of the test that runs in a network namespace of its own.
const inNamespace = "SEB_TEST_LOCAL_ROUTE"

// A local route makes all addresses of a network this machine's own. No interface has these addresses.
func TestNothingIsSentToAddressesOfALocalRoute(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		const route = "ip link set lo up && ip route add local 11.77.0.0/24 dev lo"
		if out, err := exec.CommandContext(t.Context(), "unshare", "-rn", "sh", "-c", route).CombinedOutput(); err != nil {
			t.Skipf("this system allows no network namespace with a local route: %v: %s", err, out)
		}
		again := exec.CommandContext(t.Context(), "unshare", "-rn", "sh", "-c", route+` && exec "$0" -test.v -test.run '^TestNothingIsSentToAddressesOfALocalRoute$'`, os.Args[0])
		again.Env = append(os.Environ(), inNamespace+"=1")
		if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v: %s", err, out)
		}
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
	p := to.pusher(t, q, func(_ *Target, o *Options) { o.Networks = Networks{} })
	run(t, p)
	q.add("v")
	if why := wantBlocked(t, p); !strings.Contains(why, "own machine") || !strings.Contains(why, "--push-allow") {
		t.Errorf("blocked: %q", why)
	}
	if got := <-came; len(got) > 0 {
		t.Errorf("this machine got %q", got)
	}
}
