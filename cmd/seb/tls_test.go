package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its own certificate
	last int64  // the last serial number
}

func newAuthority(t *testing.T, dir, name string) *authority {
	t.Helper()
	a := &authority{t: t, file: filepath.Join(dir, name+".pem")}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	a.key, _ = a.sign(a.cert, a.file, "")
	return a
}

// sign writes a certificate and its key to files.
func (a *authority) sign(c *x509.Certificate, certFile, keyFile string) (*ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	write := func(file, kind string, b []byte) {
		if file == "" {
			return
		}
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	write(certFile, "CERTIFICATE", der)
	write(keyFile, "PRIVATE KEY", private)
	return key, der
}

// issue writes NAME.pem and NAME.key next to the authority's file.
func (a *authority) issue(file, commonName string, dnsNames ...string) (cert, key string, serial int64) {
	a.t.Helper()
	a.last++
	serial = 100 + a.last
	base := filepath.Join(filepath.Dir(a.file), file)
	cert, key = base+".pem", base+".key"
	a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: commonName}, DNSNames: dnsNames,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, cert, key)
	return cert, key, serial
}

func TestCertificateIsFollowedAndABrokenOneIsNot(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir, "ca")
	cert, key, first := ca.issue("server", "server")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		config, err := tlsFlags{TLSCert: cert, TLSKey: key}.config(slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		serial := func() int64 {
			t.Helper()
			ours, theirs := net.Pipe()
			defer func() { _ = ours.Close() }()
			done := make(chan error)
			go func() { done <- tls.Server(theirs, config).HandshakeContext(t.Context()) }()
			roots := x509.NewCertPool()
			roots.AddCert(parsedCertificate(t, ca.file))
			client := tls.Client(ours, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12})
			if err := client.HandshakeContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, ours) }() // the server's session tickets
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			return client.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
		}
		if got := serial(); got != first {
			t.Fatalf("serial is %d, want %d", got, first)
		}
		_, _, second := ca.issue("server", "server")
		time.Sleep(tlsCheckInterval)
		if got := serial(); got != second || !strings.Contains(log.String(), "are in use") {
			t.Fatalf("serial is %d, want %d; %s", got, second, &log)
		}
		for _, broken := range []string{"half a file", ""} {
			if err := os.WriteFile(cert, []byte(broken), 0o600); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				time.Sleep(tlsCheckInterval)
				if got := serial(); got != second {
					t.Fatalf("serial is %d, want %d", got, second)
				}
			}
		}
		if err := os.Remove(key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(tlsCheckInterval)
		if got := serial(); got != second {
			t.Fatalf("serial is %d, want %d", got, second)
		}
		if n := strings.Count(log.String(), "can't be used"); n != 2 { // once for an invalid file, once for a missing one
			t.Errorf("%d faults are told:\n%s", n, &log)
		}
		_, _, third := ca.issue("server", "server")
		time.Sleep(tlsCheckInterval)
		if got := serial(); got != third {
			t.Fatalf("serial is %d, want %d", got, third)
		}
	})
}

func parsedCertificate(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(b)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestClientCertificatesStandForKeysOfTheirNames(t *testing.T) {
	dir := t.TempDir()
	ca, foreign := newAuthority(t, dir, "ca"), newAuthority(t, dir, "foreign")
	cert, key, _ := ca.issue("server", "server")
	b := serve(t, nil, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca.file)
	if _, ok := b.stdout.lineAfter("(curl needs --cacert FILE", b.done); !ok {
		t.Errorf("it does not say how curl trusts it:\n%s", b.stdout)
	}
	if !strings.HasPrefix(b.url, "https://") {
		t.Fatalf("it is at %s", b.url)
	}
	secret := runSeb(t, nil, "key", "create", "ops", "--scope", "admin", "--server", b.url, "--ca", ca.file)
	secret.want(t, exitOK)
	t.Setenv("SEB_KEY", strings.TrimSpace(secret.out))
	runSeb(t, nil, "topic", "create", "orders", "--server", b.url).want(t, exitUsage, "is not trusted", "--ca")
	runSeb(t, strings.NewReader("x\n"), "produce", "orders", "--server", b.url).want(t, exitUsage, "is not trusted")
	t.Setenv("SEB_SERVER", b.url)
	t.Setenv("SEB_CA", ca.file)
	runSeb(t, nil, "topic", "create", "orders").want(t, exitOK)
	runSeb(t, nil, "key", "create", "shop.example", "--scope", "read", "--topic", "orders").want(t, exitOK)
	t.Setenv("SEB_KEY", "")

	with := func(issuer *authority, commonName string, dnsNames ...string) result {
		cert, key, _ := issuer.issue("client", commonName, dnsNames...)
		return runSeb(t, nil, "consume", "orders", "--cert", cert, "--cert-key", key)
	}
	with(ca, "shop.example").want(t, exitOK)
	with(ca, "a service", "other.example", "shop.example").want(t, exitOK)
	with(ca, "somebody").want(t, exitRefused, "unauthorized: no API key is named like this client certificate")
	with(foreign, "shop.example").want(t, exitRefused, "consume orders")
	runSeb(t, nil, "consume", "orders").want(t, exitRefused, "unauthorized: an API key is needed")
	cert, key, _ = ca.issue("client", "shop.example")
	runSeb(t, strings.NewReader("x\n"), "produce", "orders", "--cert", cert, "--cert-key", key).want(t, exitRefused, `"shop.example" has the scope read, but the request needs the scope write`)
	if code, err := b.stop(); code != exitOK || err != nil {
		t.Errorf("it ended with %d, %v", code, err)
	}
}

func TestTLSFilesThatCannotBeUsedAreRefusedAtTheStart(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir, "ca")
	cert, key, _ := ca.issue("server", "server")
	_, otherKey, _ := ca.issue("other", "other")
	for name, test := range map[string]struct {
		args []string
		err  string
	}{
		"no key":           {[]string{"--tls-cert", cert}, "go together"},
		"no certificate":   {[]string{"--tls-client-ca", ca.file}, "--tls-client-ca needs"},
		"no such file":     {[]string{"--tls-cert", cert + "x", "--tls-key", key}, cert + "x"},
		"another's key":    {[]string{"--tls-cert", cert, "--tls-key", otherKey}, "load TLS certificate"},
		"key as authority": {[]string{"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", key}, "no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			runSeb(t, nil, append([]string{"serve", "--store", "memory:", "--http", "127.0.0.1:0"}, test.args...)...).want(t, exitUsage, test.err)
		})
	}
	runSeb(t, nil, "topic", "list", "--ca", key).want(t, exitUsage, "no certificate")
	runSeb(t, nil, "topic", "list", "--cert", cert).want(t, exitUsage, "go together")
}
