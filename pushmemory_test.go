package seb_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
)

// A slow target may have 64 requests under way. But the records of all targets together take only as
// many bytes as the memory budget has for pushes, less one record, which is received ahead. The
// bytes are given back when the requests are answered.
func TestPushedRecordsUnderWayAreWithinTheMemoryBudget(t *testing.T) {
	const (
		memory  = 32 << 20
		share   = memory / 4
		records = 12
		size    = 1 << 20
	)
	var under atomic.Int32
	begun, answer, took := make(chan int32, 10*records), make(chan struct{}), make(chan struct{}, 10*records)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun <- under.Add(1)
		defer under.Add(-1)
		<-answer
		if n, err := io.Copy(io.Discard, r.Body); err == nil && n == size {
			took <- struct{}{}
		}
	}))
	defer server.Close()
	b := open(t, objstore.NewMemory(), seb.Options{Batching: seb.Immediate(), Memory: memory})
	mustCreateTopic(t, b, "t", 1)
	q := b.Queue("t", "work")
	mustSet(t, q, seb.QueueUpdate{})
	for range records {
		if _, err := b.Append(t.Context(), "t", []seb.Record{{Value: make([]byte, size)}}); err != nil {
			t.Fatal(err)
		}
	}
	idle := kit.MemoryInUse(b)
	stop := pushing(t, b, q, server.URL)
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		if left := kit.MemoryInUse(b) - idle; left != 0 {
			t.Errorf("%d bytes are held for nothing", left)
		}
	}()
	few := time.After(2 * time.Second)
	most := int32(0)
	for waits := true; waits; {
		select {
		case n := <-begun:
			most = max(most, n)
		case <-few:
			waits = false
		}
	}
	held := kit.MemoryInUse(b) - idle
	if most != share/size-1 || held > share || held < int64(most)*size {
		t.Errorf("%d requests are under way, with %d bytes of %d", most, held, share)
	}
	close(answer)
	for range records {
		select {
		case <-took:
		case <-time.After(20 * time.Second):
			t.Fatal("a record did not come")
		}
	}
}

// A record that is larger than the share of pushed records is pushed nevertheless.
func TestPushedRecordMayBeLargerThanTheShareOfPushes(t *testing.T) {
	took := make(chan int64, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); err == nil {
			took <- n
		}
	}))
	defer server.Close()
	store := objstore.NewMemory()
	rich := open(t, store, seb.Options{Batching: seb.Immediate()})
	mustCreateTopic(t, rich, "t", 1)
	const size = 3 << 20
	if _, err := rich.Append(t.Context(), "t", []seb.Record{{Value: make([]byte, size)}}); err != nil {
		t.Fatal(err)
	}
	b := open(t, store, seb.Options{Batching: seb.Immediate(), Memory: 8 << 20})
	q := b.Queue("t", "work")
	mustSet(t, q, seb.QueueUpdate{})
	stop := pushing(t, b, q, server.URL)
	select {
	case n := <-took:
		if n != size {
			t.Errorf("%d bytes came", n)
		}
	case <-time.After(20 * time.Second):
		t.Error("it did not come")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
