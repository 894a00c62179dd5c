package kit

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// DataIsThere fails the test if a broker sends a commit to the store before a data object that the commit
// refers to is completely in the store. memory is the store behind f. The function referred returns how many
// references to data objects were checked.
func DataIsThere(t *testing.T, memory *objstore.Memory, f *storetest.Faulty) (referred func() int) {
	var (
		mu sync.Mutex
		n  int
	)
	f.On(objstore.VerbCreate, format.LogPrefix, func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
		c, err := format.DecodeCommit(bytes.Join(r.Parts, nil))
		if err != nil {
			t.Errorf("%s: %v", r.Key, err)
			return next(ctx, r)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, d := range c.Data {
			n++
			o, err := memory.Get(ctx, d.Key(), 0, -1)
			if err != nil || o.Size != int64(d.Size) {
				t.Errorf("the broker sends %s before the data object %s is completely in the store: %v", r.Key, d.Key(), err)
			}
		}
		return next(ctx, r)
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// WantAtEnd fails unless a read at the end of partition 0 of topic "t" succeeds, and returns no
// records.
func WantAtEnd(t *testing.T, b *seb.Broker) {
	t.Helper()
	if f, err := b.Fetch(t.Context(), "t", 0, seb.Latest, seb.FetchOptions{}); err != nil || len(f.Records) != 0 {
		t.Fatal(f, err)
	}
}
