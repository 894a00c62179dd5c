package auth

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Secret is the secret of an API key: 256 random bits, and the key's id, which tells a broker which key
// the secret belongs to. The log stores one SHA-256 of a salt and the bits. Nobody can find the bits from
// the hash by trying all 2^256 values. So a slow hash, as for passwords, would not protect the secret
// better, and would slow down every request.
type Secret struct {
	ID   uint64
	bits [32]byte
}

// secretPrefix makes secrets easy to recognise, for people and for programs that search for
// leaked secrets.
const secretPrefix = "seb_"

// NewSecret returns a random secret without an id. The caller sets the id when the id is known.
func NewSecret() (s Secret) {
	rand.Read(s.bits[:])
	return s
}

// Text returns the secret as the key's owner keeps it: seb_ID_ and 64 hex digits.
func (s Secret) Text() string {
	return fmt.Sprintf("%s%d_%x", secretPrefix, s.ID, s.bits)
}

// ParseSecret parses a text that [Secret.Text] returned. ok is false for any other text.
func ParseSecret(text string) (s Secret, ok bool) {
	rest, ok := strings.CutPrefix(text, secretPrefix)
	id, bits, found := strings.Cut(rest, "_")
	if !ok || !found || len(bits) != 2*len(s.bits) {
		return Secret{}, false
	}
	var err error
	if s.ID, err = strconv.ParseUint(id, 10, 64); err != nil {
		return Secret{}, false
	}
	if _, err := hex.Decode(s.bits[:], []byte(bits)); err != nil || s.Text() != text {
		return Secret{}, false
	}
	return s, true
}

// Hash returns the salted hash of a secret, which is what the log stores.
func (s Secret) Hash(salt [16]byte) [32]byte {
	return sha256.Sum256(append(salt[:], s.bits[:]...))
}

// signer returns the private key that signs URLs. It is derived from the secret, which is not in the log. So
// a reader of the log can check signatures but not make them.
func (s Secret) signer() ed25519.PrivateKey {
	mac := hmac.New(sha256.New, s.bits[:])
	mac.Write([]byte("seb signed url key"))
	return ed25519.NewKeyFromSeed(mac.Sum(nil))
}

// Public returns the public key that checks signatures made with the secret. The log stores the public key.
func (s Secret) Public() (p [32]byte) {
	copy(p[:], s.signer().Public().(ed25519.PublicKey))
	return p
}
