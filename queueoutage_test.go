package seb_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
)

// A claim that took longer than the owner waits for it gets into the log while the worker
// before has its lease again: that attempt must reach somebody.
func TestAttemptThatIsCountedLateIsHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		opts := immediate()
		opts.AppendTimeout, opts.Address = 10*time.Second, "http://owner" // with one it need not show itself meanwhile
		b := open(t, faulty, opts)
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		appendTo(t, b, 0, 1)
		ms := mustReceive(t, q, 1, 0)
		next := waiting(t, q, time.Hour)
		time.Sleep(29 * time.Second)
		faulty.SetDown(true)
		time.Sleep(11500 * time.Millisecond) // the lease has ended, and nobody knows what became of the claim
		if until, err := q.Extend(t.Context(), 10*time.Minute, ms[0].Token); seb.CodeOf(err) != seb.CodeLeaseLost {
			t.Errorf("a lease whose record may go to another any time lasts until %v, %v", until, err)
		}
		faulty.SetDown(false)
		began := time.Now()
		got := <-next
		wantHanded(t, got, "[0#2]")
		if waited := time.Since(began); waited > time.Minute {
			t.Errorf("handed out after %v", waited)
		}
		mustAck(t, q, got...)
	})
}
