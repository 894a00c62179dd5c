package auth

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// A signed token lets its bearer read one topic until it expires, with no more
// than an URL. It is 81 bytes as unpadded base64url:
//
//	offset size meaning
//	     0    1 version: 1
//	     1    8 id of the API key that signed it, big-endian
//	     9    8 expires, seconds since 1970, big-endian
//	    17   64 Ed25519 signature of "seb read token\n", bytes 0 to 16, and the topic's name
//
// The log has the public half of every key, so any broker can check a token, and
// a reader of the bucket can't make one.
const (
	tokenVersion   = 1
	tokenFixedSize = 17
	tokenSize      = tokenFixedSize + ed25519.SignatureSize
)

// Sign returns a token for reading a topic until expires.
func (s Secret) Sign(topic string, expires time.Time) string {
	b := make([]byte, 0, tokenSize)
	b = append(b, tokenVersion)
	b = binary.BigEndian.AppendUint64(b, s.ID)
	b = binary.BigEndian.AppendUint64(b, uint64(expires.Unix()))
	b = append(b, ed25519.Sign(s.signer(), signedBytes(b, topic))...)
	return base64.RawURLEncoding.EncodeToString(b)
}

func signedBytes(fixed []byte, topic string) []byte {
	return append(append([]byte("seb read token\n"), fixed...), topic...)
}

// Token is a signed token that has the right form; its signature is yet to be checked.
type Token struct {
	Key       uint64 // id of the API key that signed it
	Expires   time.Time
	fixed     []byte
	signature []byte
}

// ParseToken reads what [Secret.Sign] wrote, and nothing else.
func ParseToken(text string) (t Token, ok bool) {
	if len(text) != base64.RawURLEncoding.EncodedLen(tokenSize) {
		return t, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != tokenSize || b[0] != tokenVersion {
		return t, false
	}
	t.Key = binary.BigEndian.Uint64(b[1:])
	t.Expires = time.Unix(int64(binary.BigEndian.Uint64(b[9:])), 0)
	t.fixed, t.signature = b[:tokenFixedSize], b[tokenFixedSize:]
	return t, true
}

// SignedBy reports whether the secret of a public key has signed the token for a topic.
func (t Token) SignedBy(public [32]byte, topic string) bool {
	return ed25519.Verify(public[:], signedBytes(t.fixed, topic), t.signature)
}
