package push

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// The form of a secret for symmetric signatures, as Standard Webhooks says.
const (
	secretPrefix   = "whsec_"
	secretBytesMin = 24
	secretBytesMax = 64
)

// NewSecret returns a random secret for a [Target].
func NewSecret() string {
	var key [32]byte
	rand.Read(key[:])
	return secretPrefix + base64.StdEncoding.EncodeToString(key[:])
}

// signer has the keys that sign each message. Each key makes one signature.
type signer [][]byte

// parseSecret parses a target's secrets. Its errors show no part of a secret.
func parseSecret(text string) (signer, error) {
	const field = "secret"
	if len(text) > SecretBytesMax {
		return nil, invalid(field, fmt.Sprintf("use at most %d bytes in all, with one space between two secrets", SecretBytesMax), "the secrets have %d bytes", len(text))
	}
	var s signer
	for one := range strings.FieldsSeq(text) {
		encoded, ok := strings.CutPrefix(one, secretPrefix)
		if !ok {
			return nil, invalid(field, "begin each secret with whsec_, and continue it with base64", "a secret does not begin with whsec_")
		}
		key, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if err != nil {
			return nil, invalid(field, "after whsec_, use standard base64: A-Z a-z 0-9 + /, with = at the end until the length is a multiple of 4", "a secret is not base64 after whsec_")
		}
		if len(key) < secretBytesMin || len(key) > secretBytesMax {
			return nil, invalid(field, fmt.Sprintf("use %d to %d bytes", secretBytesMin, secretBytesMax), "a secret has %d bytes after it is decoded from base64", len(key))
		}
		s = append(s, key)
	}
	switch {
	case len(s) == 0:
		return nil, invalid(field, "use whsec_ and 32 random bytes in base64", "there is no secret")
	case len(s) > SecretsMax:
		return nil, invalid(field, fmt.Sprintf("use at most %d secrets", SecretsMax), "there are %d secrets", len(s))
	}
	return s, nil
}

// sign returns the webhook-signature header of a message.
func (s signer) sign(id string, seconds int64, body []byte) string {
	head := id + "." + strconv.FormatInt(seconds, 10) + "."
	var signatures []string
	for _, key := range s {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(head))
		mac.Write(body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(signatures, " ")
}
