package sim

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// newTestFront returns a front end of an empty bucket, over a network without faults.
func newTestFront(t *testing.T) *front {
	t.Helper()
	s := &simulation{bucket: newBucket(), history: newHistory(func() time.Duration { return 0 })}
	f := newFront(&link{sim: s, counts: map[string]int{}}, s.bucket)
	t.Cleanup(func() {
		f.close()
		s.flights.Wait()
	})
	return f
}

// The S3 client and the front end make the bucket a valid store. So every fault between them comes
// from the network.
func TestFrontEndIsAStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objstore.Store {
		f := newTestFront(t)
		t.Cleanup(func() {
			for _, v := range f.link.sim.history.violations {
				t.Error(v)
			}
		})
		audited := storetest.NewFaulty(f.client())
		audited.On("", "", f.audit)
		return audited
	})
}

func TestPutThatWritesOverAndNobodyAskedForIsAViolation(t *testing.T) {
	f := newTestFront(t)
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return f.listen.dial(ctx, 0) },
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://localhost/"+frontBucket+"/log/1", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil {
		t.Error(err)
	}
	got := strings.Join(f.link.sim.history.violations, "\n")
	for _, want := range []string{`If-None-Match: ""`, "again by itself"} {
		if !strings.Contains(got, want) {
			t.Errorf("violations %q, want one of %q", got, want)
		}
	}
}
