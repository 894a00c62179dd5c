package seb

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
// nobody who reads the bucket can make one.
const (
	tokenVersion   = 1
	tokenFixedSize = 17
	tokenSize      = tokenFixedSize + ed25519.SignatureSize
)

// SignRead returns a token with which anyone may read a topic until expires, as
// long as the API key of that secret is good for it: [Credential] has it as Token.
// No broker is needed to make one.
func SignRead(apiKey, topic string, expires time.Time) (string, error) {
	s, ok := parseSecret(apiKey)
	if !ok {
		return "", malformedKey()
	}
	if err := CheckTopicName(topic); err != nil {
		return "", asRead(err)
	}
	if expires.IsZero() {
		return "", asRead(refused(CodeInvalidRequest, "a token needs a time at which it ends"))
	}
	b := make([]byte, 0, tokenSize)
	b = append(b, tokenVersion)
	b = binary.BigEndian.AppendUint64(b, s.id)
	b = binary.BigEndian.AppendUint64(b, uint64(expires.Unix()))
	b = append(b, ed25519.Sign(s.signer(), signedBytes(b, topic))...)
	return base64.RawURLEncoding.EncodeToString(b), nil
}

func signedBytes(fixed []byte, topic string) []byte {
	return append(append([]byte("seb read token\n"), fixed...), topic...)
}

// token is a signed token that has the right form; its signature is yet to be checked.
type token struct {
	key       uint64
	expires   time.Time
	fixed     []byte
	signature []byte
}

func parseToken(text string) (t token, ok bool) {
	if len(text) != base64.RawURLEncoding.EncodedLen(tokenSize) {
		return t, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != tokenSize || b[0] != tokenVersion {
		return t, false
	}
	t.key = binary.BigEndian.Uint64(b[1:])
	t.expires = time.Unix(int64(binary.BigEndian.Uint64(b[9:])), 0)
	t.fixed, t.signature = b[:tokenFixedSize], b[tokenFixedSize:]
	return t, true
}

func (t token) signedBy(public [32]byte, topic string) bool {
	return ed25519.Verify(public[:], signedBytes(t.fixed, topic), t.signature)
}
