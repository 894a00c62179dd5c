package seb_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// The owner of a queue without receivers, such as a paused one, must not remember delays that are over.
func TestOwnerWithoutReceiversForgetsDelaysThatAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		wantHanded(t, mustReceive(t, q, 1, 0), "[]")
		for range 2000 {
			if _, err := b.Append(t.Context(), "t", values("later"), seb.Delay(time.Second)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := seb.DelaysAhead(q); n < 10 || n > 100 {
			t.Errorf("%d delays are remembered, of which 10 are not over", n)
		}
		if _, err := b.Append(t.Context(), "t", values("later"), seb.Delay(time.Minute)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		n := 0
		for len(mustReceive(t, q, 1, 0)) > 0 {
			n++
		}
		if n != 2000 {
			t.Errorf("%d records are handed out, want 2000", n)
		}
	})
}
