package httpapi

import (
	"testing"
	"time"
)

// A broker that has taken a queue over shows how many records it holds back, and until when. It
// counts them neither as ready nor as leased.
func TestHeldRecordsAreReportedWithTheirTime(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 30)
	if q := peers[0].describeQueue("mail"); q.Held == nil || *q.Held != 0 || q.HeldUntil != nil {
		t.Errorf("before anything was lost %+v", q)
	}
	out := peers[0].wantHanded(`{"max":3}`, "0#1 1#1 2#1")
	next := peers[1].broker.Queue("orders", "mail")
	_, epoch, err := next.Owner(t.Context()) // syncs
	if err == nil {
		err = next.TakeOver(t.Context(), epoch)
	}
	if err != nil {
		t.Fatal(err)
	}
	q := peers[1].describeQueue("mail")
	if q.Held == nil || *q.Held < 3 || *q.Held > 20 || q.Ready != 30-*q.Held || *q.Leased != 0 {
		t.Fatalf("of 30 records, 3 of which may be out, %+v", q)
	}
	until, err := time.Parse(timestampLayout, *q.HeldUntil)
	if left := time.Until(until); err != nil || left <= 0 || left > time.Minute {
		t.Errorf("they are held for %v, %v", left, err)
	}
	held := *q.Held
	peers[1].answered("ack", 200, out...)
	if q := peers[1].describeQueue("mail"); *q.Held != held-3 || q.Ready != 30-held {
		t.Errorf("when 3 are done %+v", q)
	}
}
