package push

import (
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestOnlyPublicAddressesAreAllowed(t *testing.T) {
	public := []string{
		"1.1.1.1", "93.184.216.34", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "198.20.0.0",
		"223.255.255.255", "9.255.255.255", "11.0.0.0", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2606:4700::1111", "2a00:1450::1", "2620:4f:8000::1",
	}
	closed := []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.0.1", "168.63.129.16",
		"169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255",
		"198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::1.1.1.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "::ffff:169.254.169.254%eth0",
		"64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1.1.1.1", "100::1", "2001::1", "2001:10::1", "2001:db8::1", "2002:7f00:1::", "2002:101:101::1",
		"3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
	}
	for _, text := range public {
		if !(Networks{}).allows(netip.MustParseAddr(text)) {
			t.Errorf("%s is public", text)
		}
	}
	for _, text := range closed {
		if (Networks{}).allows(netip.MustParseAddr(text)) {
			t.Errorf("%s is not public", text)
		}
	}
}

func TestOperatorAllowsNetworks(t *testing.T) {
	n := Networks{Allowed: prefixes("10.2.0.0/16", "169.254.169.254", "fd00:1::/32", "fe80::/10")}
	for text, want := range map[string]bool{
		"10.2.3.4": true, "10.3.0.0": false, "::ffff:10.2.0.1": true, "64:ff9b::10.2.0.1": true, "64:ff9b::10.3.0.1": false,
		"169.254.169.254": true, "169.254.169.253": false, "fd00:1::5": true, "fd00:2::5": false, "fe80::1%eth0": true, "1.1.1.1": true,
	} {
		if got := n.allows(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// A network that an operator denies stays denied, however the address is written and whatever is
// allowed.
func TestOperatorDeniesNetworks(t *testing.T) {
	n := Networks{Allowed: prefixes("10.2.0.0/16", "64:ff9b::/96"), Denied: prefixes("10.2.3.0/24", "1.1.1.0/24", "2606:4700::/32")}
	n.Denied = append(n.Denied, netip.MustParsePrefix("fd00::/8"))
	for text, want := range map[string]bool{
		"10.2.4.4": true, "10.2.3.4": false, "::ffff:10.2.3.4": false, "64:ff9b::10.2.3.4": false, "64:ff9b::10.2.4.4": true, "64:ff9b::1.1.1.1": false,
		"1.1.1.1": false, "1.1.2.1": true, "2606:4700::1111": false, "2606:4701::1111": true, "fd00::1": false,
	} {
		if got := n.allows(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// A public address may be this machine's own. A server there may trust requests from this machine.
func TestOwnAddressesAreRefusedUnlessAllowed(t *testing.T) {
	mine := func(a netip.Addr) bool {
		return slices.Contains([]string{"1.2.3.4", "2606:4700::5", "64:ff9b::102:306"}, a.String()) // the last is 64:ff9b::1.2.3.6
	}
	for text, want := range map[string]bool{
		"1.2.3.4": false, "::ffff:1.2.3.4": false, "64:ff9b::1.2.3.4": false, "2606:4700::5": false, "1.2.3.5": true, "2606:4700::6": true,
		"64:ff9b::1.2.3.6": false, "64:ff9b::1.2.3.5": true,
	} {
		if got := (Networks{own: mine}).allows(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
		allowed := Networks{own: mine, Allowed: prefixes("1.2.3.0/24", "2606:4700::/32", "64:ff9b::102:306/128")}
		if !allowed.allows(netip.MustParseAddr(text)) {
			t.Errorf("%s is allowed", text)
		}
	}
	err := (Networks{own: mine}).CheckTarget(Target{URL: "https://1.2.3.4/hook"})
	if err == nil || !strings.Contains(err.Error(), "own machine") || !strings.Contains(err.Error(), "--push-allow") {
		t.Errorf("the URL is refused with %v", err)
	}
	if err := (Networks{own: mine}).guard(t.Context(), "tcp4", "1.2.3.4:443", nil); err == nil {
		t.Error("a connection to this machine is made")
	}
}

func TestAddressInURLIsRefusedAtOnce(t *testing.T) {
	for text, want := range map[string]bool{
		"http://127.0.0.1/": false, "https://[::1]:8443/x": false, "http://[::ffff:10.0.0.1]/": false, "http://169.254.169.254/latest": false,
		"https://1.1.1.1/": true, "https://localhost/": true, // refused only when it is resolved
	} {
		if err := (Networks{}).CheckTarget(Target{URL: text}); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Addresses of this machine are refused in every way to write them: no such request may reach a server
// on this machine.
func TestNothingIsSentToThisMachine(t *testing.T) {
	to := serve(t, "HTTP/1.1", answerStatus(http.StatusOK))
	u, err := url.Parse(to.url)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "[::]", "2130706433", "0x7f.1", "127.1", "0177.0.0.1"} {
		t.Run(host, func(t *testing.T) {
			q := newQueue()
			target := target{url: "http://" + host + ":" + u.Port() + "/"}
			p := target.pusher(t, q, func(_ *Target, o *Options) {
				o.Networks = Networks{}
				o.Resolver = nameServer(t, func() netip.Addr { return netip.MustParseAddr("127.0.0.1") })
			})
			run(t, p)
			q.add("v")
			if net.ParseIP(strings.Trim(host, "[]")) == nil && host != "localhost" && host != "0x7f.1" { // a name that can't be resolved
				if got := q.next(t); got.acked || !strings.Contains(got.reason, "no connection") {
					t.Errorf("got %+v", got)
				}
				return
			}
			if why := wantBlocked(t, p); !strings.Contains(why, "is not public") || !strings.Contains(why, "--push-allow") || strings.Contains(why, "127.0.0.1:") {
				t.Errorf("blocked: %q", why)
			}
			q.nothing(t) // an answer would count as an attempt
		})
	}
	if len(to.came) > 0 {
		t.Errorf("a request came for %s", (<-to.came).Host)
	}
}

// The address of a name is checked for each connection, even if the name had an allowed address
// before.
func TestNameThatIsMovedIsRefused(t *testing.T) {
	var moved atomic.Bool
	resolver := nameServer(t, func() netip.Addr {
		if moved.Load() {
			return netip.MustParseAddr("127.0.0.2")
		}
		return netip.MustParseAddr("127.0.0.1")
	})
	answer := func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") }
	good := serve(t, "HTTP/1.1", answer)
	u, err := url.Parse(good.url)
	if err != nil {
		t.Fatal(err)
	}
	connected := make(chan struct{}, 9)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.2:"+u.Port())
	if err != nil {
		t.Skipf("listen on 127.0.0.2: %v", err) // not every system has all of 127.0.0.0/8
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			connected <- struct{}{}
			_ = c.Close()
		}
	}()

	q, named := newQueue(), target{url: "http://hooks.example:" + u.Port() + "/"}
	p := named.pusher(t, q, func(_ *Target, o *Options) { o.Resolver = resolver })
	run(t, p)
	q.add("v")
	if r := good.next(t); r.Host != "hooks.example:"+u.Port() {
		t.Errorf("came for %s", r.Host)
	}
	if o := q.next(t); !o.acked {
		t.Errorf("the queue was told %+v", o)
	}
	moved.Store(true)
	q.add("v")
	if why := wantBlocked(t, p); !strings.Contains(why, "not public") {
		t.Errorf("blocked: %q", why)
	}
	if len(connected) > 0 {
		t.Error("a connection was made to the other address")
	}
	moved.Store(false)
	if o := q.next(t); !o.acked || p.Status().Blocked != "" {
		t.Errorf("the queue was told %+v, %+v", o, p.Status())
	}
}

// wantBlocked waits until p's status says that the target's address may not be sent to, and returns
// that text.
func wantBlocked(t *testing.T, p *Pusher) string {
	t.Helper()
	poll, late := time.NewTicker(time.Millisecond), time.After(20*time.Second)
	defer poll.Stop()
	for {
		if why := p.Status().Blocked; why != "" {
			return why
		}
		select {
		case <-poll.C:
		case <-late:
			t.Fatal("the status names no reason")
		}
	}
}

// nameServer returns a resolver that asks where for the address of every name.
func nameServer(t *testing.T, where func() netip.Addr) *net.Resolver {
	t.Helper()
	server, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for b := make([]byte, 512); ; {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(resolved(b[:n], where()), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// resolved answers a query as RFC 1035, 4.1 says: with the question, and with an A record if the query
// asks for one.
func resolved(query []byte, a netip.Addr) []byte {
	end := 12
	for query[end] != 0 {
		end += 1 + int(query[end])
	}
	end += 5 // the root label, the type and the class
	answer := append([]byte{}, query[:end]...)
	copy(answer[2:], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0})
	if binary.BigEndian.Uint16(query[end-4:]) == 1 {
		answer[7] = 1
		answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		answer = append(answer, a.AsSlice()...)
	}
	return answer
}

func TestProxyIsTheOperatorsAlone(t *testing.T) {
	proxy := serve(t, "HTTP/1.1", answerStatus(http.StatusAccepted))
	proxyURL, err := url.Parse(proxy.url)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy.url)
	}
	q, nobody := newQueue(), target{url: "http://10.1.2.3/hook"}
	p := nobody.pusher(t, q, nil)
	run(t, p)
	q.add("v")
	if wantBlocked(t, p); len(proxy.came) > 0 {
		t.Errorf("the proxy of the environment got %d requests", len(proxy.came))
	}
	q = newQueue()
	run(t, nobody.pusher(t, q, func(_ *Target, o *Options) { o.Proxy, o.Networks = proxyURL, Networks{} }))
	q.add("v")
	if r := proxy.next(t); r.URL.String() != "http://10.1.2.3/hook" || r.body != "v" {
		t.Errorf("the proxy got %s %q", r.URL, r.body)
	}
	if o := q.next(t); !o.acked {
		t.Errorf("the queue was told %+v", o)
	}
}

// The owner of the queue must not learn where the operator's proxy is, or its name.
func TestReasonDoesNotNameTheProxy(t *testing.T) {
	for name, proxy := range map[string]string{
		"nobody listens":  "http://127.0.0.1:1",
		"no name":         "http://secret.invalid:1",
		"not for the URL": serve(t, "HTTP/1.1", answerStatus(http.StatusForbidden)).url,
	} {
		t.Run(name, func(t *testing.T) {
			at, err := url.Parse(proxy)
			if err != nil {
				t.Fatal(err)
			}
			q, nobody := newQueue(), target{url: "https://hooks.example/"}
			run(t, nobody.pusher(t, q, func(_ *Target, o *Options) { o.Proxy = at }))
			q.add("v")
			if o := q.next(t); o.acked || !strings.HasPrefix(o.reason, "no connection: ") || strings.Contains(o.reason, "127.0.0.1") || strings.Contains(o.reason, "secret") {
				t.Errorf("the queue was told %+v", o)
			}
		})
	}
}
