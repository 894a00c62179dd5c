package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// checkAdvertise refuses an invalid --advertise.
func (c *serveCmd) checkAdvertise() error {
	if c.Advertise == "" {
		return nil
	}
	u, err := url.Parse(c.Advertise)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || !leadsToBroker(u) || c.Advertise != u.Scheme+"://"+u.Host {
		return usageError{hinted(fmt.Errorf("invalid --advertise %q", c.Advertise), "write scheme, host and port alone, such as http://10.0.0.5:51313")}
	}
	return nil
}

// leadsToBroker tells whether other brokers can reach this broker at the host and port of u. They can't if
// the host is a wildcard such as 0.0.0.0: a broker that connects to 0.0.0.0 reaches itself. Port 0 is valid:
// it stands for the port that this broker listens on.
func leadsToBroker(u *url.URL) bool {
	_, err := strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16)
	return u.Hostname() != "" && !net.ParseIP(u.Hostname()).IsUnspecified() && err == nil
}

// advertised returns the URL at which other brokers reach this one, "" if it isn't known. The URL has a
// loopback address only if --advertise names one: a broker on another machine that connects to a loopback
// address reaches itself.
func (c *serveCmd) advertised(listening net.Addr) string {
	tcp, ok := listening.(*net.TCPAddr)
	if c.Advertise != "" {
		if host, any := strings.CutSuffix(c.Advertise, ":0"); any && ok {
			return host + ":" + strconv.Itoa(tcp.Port)
		}
		return c.Advertise
	}
	if !ok || tcp.IP.IsUnspecified() || tcp.IP.IsLoopback() {
		return ""
	}
	return c.scheme() + "://" + listening.String()
}

// advertisedHost returns the host and port of --advertise, "" if the flag is not given.
func (c *serveCmd) advertisedHost() string {
	_, host, _ := strings.Cut(c.Advertise, "://")
	return host
}

// peerConfig is the TLS configuration for connections to brokers whose address is https. It trusts the
// system's authorities and the certificates in this broker's --tls-cert. It presents no client certificate:
// inside the connection, the brokers prove their sessions to each other.
func (f tlsFlags) peerConfig(secure *tls.Config) *tls.Config {
	if secure == nil {
		return nil // the default, which trusts the system's authorities
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool() // the system's authorities can't be read: trust --tls-cert alone
	}
	if own, err := secure.GetConfigForClient(nil); err == nil {
		for _, der := range own.Certificates[0].Certificate {
			if c, err := x509.ParseCertificate(der); err == nil { // err is always nil: load has parsed the certificate before
				roots.AddCert(c)
			}
		}
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
}
