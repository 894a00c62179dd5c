package httpapi

import (
	"net"
	"net/url"
	"slices"
	"strings"
)

// reservedSuffixes are the suffixes of names that nobody can register, so no stranger can make such
// a name resolve to an address: RFC 6761, RFC 6762, RFC 8375, and .internal, which ICANN reserves for private use.
var reservedSuffixes = []string{".localhost", ".local", ".internal", ".home.arpa"}

// OwnHost tells whether a request's Host, such as 127.0.0.1:51313, is an IP address or a name that
// no stranger can register. A stranger may have made any other name resolve to this server (DNS
// rebinding). Then a browser treats a page from that name as a page of this server's own origin, and the
// page could use the API from the machine of the page's visitor.
func OwnHost(host string) bool {
	name := strings.ToLower((&url.URL{Host: host}).Hostname())
	return !strings.Contains(name, ".") || net.ParseIP(name) != nil ||
		slices.ContainsFunc(reservedSuffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}
