package access_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

func TestKeysExpireByTheStoresClock(t *testing.T) {
	for _, off := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, shifted(objstore.NewMemory(), offBy(off)), wallOff(-off))
				_, secret, err := b.CreateKey(t.Context(), seb.KeyOptions{Name: "k", Scopes: seb.ScopeAdmin, Expires: time.Now().Add(off + time.Hour)})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(59 * time.Minute)
				access, err := b.AuthenticateKnown(seb.Credential{Secret: secret})
				if err != nil {
					t.Fatalf("a minute too early: %v", err)
				}
				began := time.Now()
				ctx, leave := b.While(t.Context(), access)
				defer leave()
				<-ctx.Done()
				if lasted := time.Since(began); lasted < time.Minute || lasted > 61*time.Second {
					t.Errorf("what goes on under the key ended after %v, want a minute", lasted)
				}
				_, err = b.AuthenticateKnown(seb.Credential{Secret: secret})
				wantCode(t, err, seb.CodeUnauthorized)
			})
		})
	}
}
