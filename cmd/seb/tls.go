package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// tlsFlags make serve speak TLS.
type tlsFlags struct {
	TLSCert     string `name:"tls-cert" placeholder:"FILE" help:"Serve HTTPS with this certificate (PEM, with its chain); reloaded when the file changes (default: plain HTTP)."`
	TLSKey      string `name:"tls-key" placeholder:"FILE" help:"The private key of --tls-cert, in PEM (default: none)."`
	TLSClientCA string `name:"tls-client-ca" placeholder:"FILE" help:"Accept client certificates of these authorities (PEM): each stands for the API key of its common name, or of one of its DNS names (default: none)."`
}

func (f tlsFlags) on() bool { return f.TLSCert != "" }

func (f tlsFlags) scheme() string {
	if f.on() {
		return "https"
	}
	return "http"
}

func (f tlsFlags) check() error {
	switch {
	case (f.TLSCert == "") != (f.TLSKey == ""):
		return usage(errors.New("--tls-cert and --tls-key go together"))
	case f.TLSClientCA != "" && !f.on():
		return usage(errors.New("--tls-client-ca needs --tls-cert and --tls-key"))
	}
	return nil
}

// tlsCheckInterval is the shortest time between two checks whether the files have changed.
const tlsCheckInterval = time.Second

// tlsFiles is the TLS configuration from the files of tlsFlags. It checks for changes of the files only when
// a client connects, so that an idle broker does nothing.
type tlsFiles struct {
	flags   tlsFlags
	log     *slog.Logger
	current atomic.Pointer[tls.Config]

	checking atomic.Bool // true while a handshake checks the files: only that handshake may use the fields below
	checked  time.Time
	seen     []os.FileInfo
	fault    string // error of the last attempt to load the files, "" if it succeeded
}

// config reads the files and returns a configuration that follows changes of the files.
func (f tlsFlags) config(log *slog.Logger) (*tls.Config, error) {
	t := &tlsFiles{flags: f, log: log, checked: time.Now()}
	var err error
	if t.seen, err = f.stat(); err != nil {
		return nil, unusable(err)
	}
	first, err := f.load()
	if err != nil {
		return nil, unusable(err)
	}
	t.current.Store(first)
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.latest(), nil },
	}, nil
}

// unusable turns an error of the files into a usage error with a hint. Supervisors do not restart the broker
// after a usage error, since a restart would not help.
func unusable(err error) error {
	return usageError{hinted(err, "--tls-cert, --tls-key and --tls-client-ca (SEB_TLS_...) name files that must be readable, in PEM form, and fit each other")}
}

// latest returns the configuration from the files. If the files have become invalid, it returns the last
// valid configuration: a broken new certificate must not stop a working broker.
func (t *tlsFiles) latest() *tls.Config {
	if !t.checking.CompareAndSwap(false, true) {
		return t.current.Load()
	}
	defer t.checking.Store(false)
	if time.Since(t.checked) < tlsCheckInterval {
		return t.current.Load()
	}
	t.checked = time.Now()
	seen, err := t.flags.stat()
	if err == nil && same(seen, t.seen) {
		return t.current.Load()
	}
	var next *tls.Config
	if err == nil {
		next, err = t.flags.load()
	}
	if err != nil {
		if t.fault != err.Error() {
			t.log.Error("the TLS files changed and can't be used; the previous ones stay in use", "error", err)
		}
		t.fault, t.seen = err.Error(), nil // nil makes the next check load the files again: a file may be half written now
		return t.current.Load()
	}
	t.fault, t.seen = "", seen
	t.current.Store(next)
	t.log.Info("the TLS files changed and are in use", "certificate", t.flags.TLSCert, "good_until", next.Certificates[0].Leaf.NotAfter)
	return next
}

func (f tlsFlags) files() []string {
	files := []string{f.TLSCert, f.TLSKey}
	if f.TLSClientCA != "" {
		files = append(files, f.TLSClientCA)
	}
	return files
}

func (f tlsFlags) stat() (infos []os.FileInfo, err error) {
	for _, name := range f.files() {
		info, err := os.Stat(name)
		if err != nil {
			return nil, fmt.Errorf("check TLS file: %w", err)
		}
		infos = append(infos, info)
	}
	return infos, nil
}

func same(a, b []os.FileInfo) bool {
	ok := len(a) == len(b)
	for i := range a {
		ok = ok && os.SameFile(a[i], b[i]) && a[i].ModTime().Equal(b[i].ModTime()) && a[i].Size() == b[i].Size()
	}
	return ok
}

func (f tlsFlags) load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(f.TLSCert, f.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("load TLS certificate %s: %w", f.TLSCert, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
	if f.TLSClientCA == "" {
		return c, nil
	}
	// A client certificate is not required: a client may use an API key instead.
	c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
	return c, addAuthorities(c.ClientCAs, f.TLSClientCA)
}

func addAuthorities(pool *x509.CertPool, file string) error {
	pem, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read authorities: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s holds no certificate in PEM form", file)
	}
	return nil
}

// clientTLSFlags are the flags for https:// URLs, for every command that talks to a broker.
type clientTLSFlags struct {
	CA      string `name:"ca" type:"existingfile" placeholder:"FILE" help:"Trust these authorities (PEM) too, for an https:// broker (default: those of the system)."`
	Cert    string `name:"cert" type:"existingfile" placeholder:"FILE" help:"Present this client certificate (PEM) instead of an API key (default: none)."`
	CertKey string `name:"cert-key" type:"existingfile" placeholder:"FILE" help:"The private key of --cert, in PEM (default: none)."`
}

func (f clientTLSFlags) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if (f.Cert == "") != (f.CertKey == "") {
		return nil, usage(errors.New("--cert and --cert-key go together"))
	}
	if f.Cert != "" {
		cert, err := tls.LoadX509KeyPair(f.Cert, f.CertKey)
		if err != nil {
			return nil, usage(fmt.Errorf("load client certificate --cert %s with --cert-key %s: %w", f.Cert, f.CertKey, err))
		}
		c.Certificates = []tls.Certificate{cert}
	}
	if f.CA == "" {
		return c, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // the system's authorities can't be read: trust those of --ca alone
	}
	c.RootCAs = pool
	if err := addAuthorities(pool, f.CA); err != nil {
		return nil, usage(fmt.Errorf("--ca: %w", err))
	}
	return c, nil
}
