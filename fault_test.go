package seb_test

import (
	"context"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// kill ends a broker as kill -9 would: what was under way stays undecided.
func kill(t testing.TB, b *seb.Broker) {
	t.Helper()
	if err := b.Kill(); err != nil {
		t.Error(err)
	}
}

// onlyProbesAreDeleted fails the test if anything else ever is.
func onlyProbesAreDeleted(t testing.TB, f *storetest.Faulty) {
	f.On(objstore.VerbDelete, "", func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
		if !strings.HasPrefix(r.Key, format.ProbePrefix) {
			t.Errorf("the broker deletes %s", r.Key)
		}
		return next(ctx, r)
	})
}
