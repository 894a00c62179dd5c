package peer

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Key is the public key of a session.
type Key [ed25519.PublicKeySize]byte

// ErrOtherSession means that a session other than the intended one answered.
var ErrOtherSession = errors.New("another session answers at the broker's address")

// Identity is a session that can prove its identity.
type Identity struct{ certificate tls.Certificate }

// NewIdentity returns the identity of the session whose private key is signer, an Ed25519 key.
func NewIdentity(signer crypto.Signer) (*Identity, error) {
	// No broker checks the names and times in a certificate, so the clocks of brokers need not agree.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<32, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("make the session's certificate: %w", err)
	}
	return &Identity{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: signer}}, nil
}

// certificateBytesMax is several times the size of a session's certificate. The size is bounded because an
// accepted certificate stays in memory until the connection ends.
const certificateBytesMax = 1 << 10

// accepting returns the TLS configuration for connections that other sessions ask for. After the handshake,
// [keyOf] returns the public key of the session that asks.
func (i *Identity) accepting() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.certificate}, SessionTicketsDisabled: true,
		ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := keyOf(state)
			return err
		},
	}
}

// asking returns the TLS configuration for a connection to a session whose public key passes check.
func (i *Identity) asking(check func(Key) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.certificate},
		InsecureSkipVerify: true, //nolint:gosec // sessions have no certificate authority: VerifyConnection checks the peer's key
		VerifyConnection: func(state tls.ConnectionState) error {
			got, err := keyOf(state)
			if err == nil {
				err = check(got)
			}
			return err
		},
	}
}

// Is returns a check that the key is k.
func (k Key) Is(got Key) error {
	if got != k {
		return fmt.Errorf("%w: its key is %x, not %x", ErrOtherSession, got, k)
	}
	return nil
}

// keyOf returns the public key of the session on the other side. TLS has proved that the other side has the
// private half of the key.
func keyOf(state tls.ConnectionState) (k Key, _ error) {
	if len(state.PeerCertificates) != 1 || len(state.PeerCertificates[0].Raw) > certificateBytesMax {
		return k, fmt.Errorf("the other side shows %d certificates; it must show one, of at most %d bytes", len(state.PeerCertificates), certificateBytesMax)
	}
	public, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok || len(public) != len(k) {
		return k, errors.New("the certificate of the other side has no Ed25519 key; the certificate of every session has one")
	}
	return Key(public), nil
}
