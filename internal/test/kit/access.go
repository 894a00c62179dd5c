package kit

import (
	"context"
	"testing"

	"github.com/simple-event-broker/seb"
)

// CreateKey creates an API key, and returns it with its secret. If opts has no scopes, the key has the scope
// admin.
func CreateKey(t testing.TB, b *seb.Broker, opts seb.KeyOptions) (seb.Key, string) {
	t.Helper()
	if opts.Scopes == 0 {
		opts.Scopes = seb.ScopeAdmin
	}
	k, secret, err := b.CreateKey(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return k, secret
}

// BySecret returns the credential of a caller who sends the secret of an API key.
func BySecret(s string) seb.Credential { return seb.Credential{Secret: s} }

// AsCaller returns a context for the requests of the caller who has the credential c.
func AsCaller(t testing.TB, b *seb.Broker, c seb.Credential) context.Context {
	t.Helper()
	a, err := b.Authenticate(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return seb.WithAccess(t.Context(), a)
}
