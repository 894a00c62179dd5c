package fault_test

import (
	"context"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// onlyProbesAreDeleted fails the test if a broker deletes any object but a probe.
func onlyProbesAreDeleted(t testing.TB, f *storetest.Faulty) {
	f.On(objstore.VerbDelete, "", func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
		if !strings.HasPrefix(r.Key, format.ProbePrefix) {
			t.Errorf("the broker deletes %s", r.Key)
		}
		return next(ctx, r)
	})
}
