package auth

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// A signed token in a URL lets anyone who has the URL read one topic until the token
// expires. A token has 81 bytes, which are written as unpadded base64url:
//
//	offset size meaning
//	     0    1 version: 1
//	     1    8 id of the API key that signed the token, big-endian
//	     9    8 expires, seconds since 1970, big-endian
//	    17   64 Ed25519 signature of "seb read token\n", bytes 0 to 16, and the topic's name
//
// The log has only the public half of the signing key. So every broker can check a token, but someone who
// can only read the bucket can't make a token.
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

// Token is a well-formed token whose signature was not checked yet: see [Token.SignedBy].
type Token struct {
	Key       uint64 // id of the API key that signed the token
	Expires   time.Time
	fixed     []byte
	signature []byte
}

// ParseToken parses a text of the form that [Secret.Sign] returns. ok is false for any other text.
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

// SignedBy reports whether the token was signed for topic with the secret that belongs to the given public key.
func (t Token) SignedBy(public [32]byte, topic string) bool {
	return ed25519.Verify(public[:], signedBytes(t.fixed, topic), t.signature)
}
