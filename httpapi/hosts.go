package httpapi

import (
	"net"
	"net/url"
	"slices"
	"strings"
)

// reservedSuffixes end names that nobody can register, so that no stranger can make one
// lead to a machine: RFC 6761, RFC 6762, RFC 8375, and what ICANN keeps for private use.
var reservedSuffixes = []string{".localhost", ".local", ".internal", ".home.arpa"}

// OwnHost tells whether a request's Host, such as 127.0.0.1:51313, is an address or a name
// that no stranger can register. A stranger may have made any other name lead here:
// then a page of that name is of this server's own origin, as browsers see it (DNS
// rebinding), and could read and send what it likes with the network access of its visitor.
func OwnHost(host string) bool {
	name := strings.ToLower((&url.URL{Host: host}).Hostname())
	return !strings.Contains(name, ".") || net.ParseIP(name) != nil ||
		slices.ContainsFunc(reservedSuffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}
