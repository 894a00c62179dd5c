package seb_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// tally is a store that counts the requests that it gets.
type tally struct {
	mu  sync.Mutex
	use seb.StoreUse
}

func (c *tally) count(op objstore.Op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch op.Verb {
	case objstore.VerbCreate:
		c.use.Creates++
		c.use.SentBytes += op.Bytes
	case objstore.VerbGet:
		c.use.Gets++
		c.use.ReceivedBytes += op.Bytes
	case objstore.VerbList:
		c.use.Lists++
	case objstore.VerbDelete:
		c.use.Deletes++
	}
}

func TestUsageIsWhatTheStoreWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, asked := objstore.NewMemory(), &tally{}
		mustAppend(t, open(t, memory, immediate()), "t", "of another broker")
		began := time.Now()
		b := open(t, objstore.Observe(memory, asked.count), immediate())
		opened := b.Usage()
		if opened.Store != asked.use || opened.Opening != asked.use || opened.Store.Creates == 0 || opened.Store.Gets == 0 || opened.Store.Lists == 0 {
			t.Fatalf("opening asked for %+v, and is said to have asked for %+v", asked.use, opened)
		}
		if !opened.Since.Equal(began) || opened.Serving != 0 || opened.StoredObjects != 1 {
			t.Errorf("usage after Open is %+v", opened)
		}

		time.Sleep(time.Minute)
		mustAppend(t, b, "t", "a record")
		synctest.Wait()
		u := b.Usage()
		if u.Store != asked.use || u.Opening != opened.Opening || u.Since != opened.Since || u.Serving != time.Minute {
			t.Errorf("usage after an append is %+v, the store was asked for %+v", u, asked.use)
		}
		if got := u.Store.Creates - u.Opening.Creates; got != 1 {
			t.Errorf("an append is said to have taken %d creates", got)
		}
		if sent := u.Store.SentBytes - u.Opening.SentBytes; u.StoredObjects != 2 || u.StoredBytes-opened.StoredBytes != sent {
			t.Errorf("an append sent %d bytes; stored are %d more, in %d objects", sent, u.StoredBytes-opened.StoredBytes, u.StoredObjects)
		}
	})
}
