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

// ErrOtherSession says that another session answered than the one that was asked for.
var ErrOtherSession = errors.New("another session answers there")

// Identity is a session that can prove its identity.
type Identity struct{ certificate tls.Certificate }

// NewIdentity returns the session that signs with an Ed25519 key.
func NewIdentity(signer crypto.Signer) (*Identity, error) {
	// No peer checks names and times, so clocks need not agree.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<32, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("make the session's certificate: %w", err)
	}
	return &Identity{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: signer}}, nil
}

// certificateBytesMax is several times the size of a session's certificate. An accepted
// certificate stays in memory for as long as the connection.
const certificateBytesMax = 1 << 10

// accepting returns the configuration for connections that other sessions ask for. [keyOf]
// returns the one that asks.
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

// asking returns the configuration for a connection to another session.
func (i *Identity) asking(owner Key) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.certificate},
		InsecureSkipVerify: true, //nolint:gosec // no authority vouches for a session: VerifyConnection compares its key
		VerifyConnection: func(state tls.ConnectionState) error {
			got, err := keyOf(state)
			if err == nil && got != owner {
				err = fmt.Errorf("%w: %x, not %x", ErrOtherSession, got, owner)
			}
			return err
		},
	}
}

// keyOf returns the key that the other side of a connection has proved to have.
func keyOf(state tls.ConnectionState) (k Key, _ error) {
	if len(state.PeerCertificates) != 1 || len(state.PeerCertificates[0].Raw) > certificateBytesMax {
		return k, errors.New("the other side does not show one session's certificate")
	}
	public, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok || len(public) != len(k) {
		return k, errors.New("the other side's certificate does not have a session's key")
	}
	return Key(public), nil
}
