package queue_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// A broker that shuts down has 10 s. If each queue needed its own commit, that would not be enough.
func TestBrokerThatGoesReleasesManyQueuesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queues = 40
		memory := objstore.NewMemory()
		b := openOnly(t, storetest.Slow(memory, 300*time.Millisecond), immediate())
		mustCreateTopic(t, b, "t", 1)
		appendTo(t, b, 0, 1)
		for i := range queues {
			q := b.Queue("t", fmt.Sprint("q", i))
			mustSet(t, q, seb.QueueUpdate{})
			wantHanded(t, mustReceive(t, q, 1, 0), "[0#1]")
		}
		began := time.Now()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v to go", took)
		}
		next := open(t, memory, immediate())
		for i := range queues { // the release names the first delivery of each record
			wantHanded(t, mustReceive(t, next.Queue("t", fmt.Sprint("q", i)), 1, time.Minute), "[0#2]")
		}
	})
}
