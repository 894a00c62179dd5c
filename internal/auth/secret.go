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

// Secret is what the owner of an API key has: 256 random bits, and the key's id
// so that a broker knows which key to compare with. Because 2^256 secrets can't be
// tried out, one SHA-256 with a salt protects it. Stretching, as for a
// password, would protect it no better, and every request would pay for it.
type Secret struct {
	ID   uint64
	bits [32]byte
}

// secretPrefix makes secrets easy to recognise, also for programs that search for
// leaked ones.
const secretPrefix = "seb_"

// NewSecret returns a secret without an id. The caller sets the id when it is known.
func NewSecret() (s Secret) {
	rand.Read(s.bits[:])
	return s
}

// Text is what the owner keeps: seb_ID_ and 64 hex digits.
func (s Secret) Text() string {
	return fmt.Sprintf("%s%d_%x", secretPrefix, s.ID, s.bits)
}

// ParseSecret reads what [Secret.Text] wrote, and nothing else.
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

// Hash returns the hash of a secret that the log has.
func (s Secret) Hash(salt [16]byte) [32]byte {
	return sha256.Sum256(append(salt[:], s.bits[:]...))
}

// signer is the key that signs URLs. It follows from the secret, so that a reader of the log
// can check signatures but not make them.
func (s Secret) signer() ed25519.PrivateKey {
	mac := hmac.New(sha256.New, s.bits[:])
	mac.Write([]byte("seb signed url key"))
	return ed25519.NewKeyFromSeed(mac.Sum(nil))
}

// Public returns the public key for the signatures of the secret. The log has it.
func (s Secret) Public() (p [32]byte) {
	copy(p[:], s.signer().Public().(ed25519.PublicKey))
	return p
}
