package remote_test

import (
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/internal/test/kit"
)

// A backoff whose waits are equal is read as such, and an update of one wait keeps the other.
func TestBackoffWithEqualWaitsIsKept(t *testing.T) {
	b := open(t)
	kit.MustAppend(t, b, "orders", "a")
	q := newClient(t, client.Options{Servers: []string{serve(t, b)}}).Queue("orders", "mail")
	wait := 10 * time.Second
	info, err := q.Create(t.Context(), seb.QueueUpdate{BackoffMin: &wait, BackoffMax: &wait}, seb.Earliest)
	if err != nil || info.Config.BackoffMin != wait || info.Config.BackoffMax != wait {
		t.Errorf("%+v, %v", info.Config, err)
	}
	info, err = q.Update(t.Context(), seb.QueueUpdate{BackoffMax: new(time.Minute)})
	if err != nil || info.Config.BackoffMin != wait || info.Config.BackoffMax != time.Minute {
		t.Errorf("%+v, %v", info.Config, err)
	}
}
