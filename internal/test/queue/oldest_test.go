package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// The age of a queue's oldest record says how far its workers are behind. Dead letters are no work, wherever
// they lie among the records.
func TestOldestRecordIsNoDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1)})
		var appended []time.Time
		for range 5 {
			appended = append(appended, time.Now())
			appendTo(t, b, 0, 1)
			time.Sleep(time.Minute)
		}
		ms := mustReceive(t, q, 3, 0)
		for _, i := range []int{0, 2} {
			if err := q.Nack(t.Context(), seb.NackOptions{}, ms[i].Token); err != nil {
				t.Fatal(err)
			}
		}
		wantOldest(t, q, appended[1])
		mustAck(t, q, ms[1])
		wantOldest(t, q, appended[3])
		mustAck(t, q, mustReceive(t, q, 2, 0)...)
		wantOldest(t, q, time.Time{})
	})
}

func wantOldest(t *testing.T, q *seb.Queue, want time.Time) {
	t.Helper()
	info, err := q.Describe(t.Context())
	if err != nil || !info.Oldest.Equal(want) {
		t.Errorf("the oldest record is of %v, %v; want %v", info.Oldest, err, want)
	}
}
