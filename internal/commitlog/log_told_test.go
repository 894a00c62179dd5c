package commitlog

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// mustTell hands b the object of slot s, as it is in the store.
func (b *broker) mustTell(s format.Seq) {
	b.Helper()
	object := b.rig.get(format.LogKey(s))
	if err := b.Told(object, int64(len(object)), time.Now()); err != nil {
		b.Fatal(err)
	}
}

func TestToldCommitsNeedNoRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.open(), r.open()
		a.fill(5)
		requests := b.store.Count("", "")
		for s := range format.Seq(5) {
			b.mustTell(5 - s) // in the wrong order
		}
		select {
		case <-b.Heard():
		default:
			t.Fatal("Heard has no element")
		}
		if err := b.Follow(); err != nil {
			t.Fatal(err)
		}
		b.requireAt(5)
		requireEqual(t, b.applied, a.applied)
		if n := b.store.Count("", "") - requests; n != 0 || b.objects != 5 {
			t.Fatalf("%d requests, %d whole objects", n, b.objects)
		}
		b.mustLook()
		b.requireAt(5)
		b.mustCommit(6, "next")
	})
}

// A head without the payload is enough.
func TestToldHeadIsEnough(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.open(), r.open()
		c := a.mustCommit(1, "payload")
		if err := b.Told(r.get(format.LogKey(1))[:c.PayloadStart], c.Size(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := b.Follow(); err != nil {
			t.Fatal(err)
		}
		b.requireAt(1)
		if b.objects != 0 {
			t.Fatal("the log passed on an object that it does not have")
		}
	})
}

// linked are peers of a broker that is connected, without any messages.
type linked struct{}

func (linked) Write([]byte, [][]byte, int64, time.Time) {}
func (linked) Any() bool                                { return true }
func (linked) Connected(format.SessionID) bool          { return true }
func (linked) Takes(format.SessionID) bool              { return false }

// A Create hangs, and another broker says that it has the slot. So the claim has lost, and the broker claims the next slot,
// without a Get.
func TestToldCommitEndsAHangingCreate(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.open(), r.open()
		b.Connect(linked{})
		b.store.On(objstore.VerbCreate, format.LogKey(1), func(ctx context.Context, _ storetest.Request, _ storetest.Next) (storetest.Answer, error) {
			a.mustCommit(1, "first")
			b.mustTell(1)
			<-ctx.Done()
			return storetest.Answer{}, ctx.Err()
		})
		begin := time.Now()
		b.mustCommit(2, "second")
		if took := time.Since(begin); took > time.Second {
			t.Fatalf("it took %v", took)
		}
		requireEqual(t, b.applied[:1], a.applied)
		if n := b.store.Count(objstore.VerbGet, ""); n != 0 {
			t.Fatalf("%d Gets", n)
		}
		if b.builds != 2 || len(b.reports) != 0 {
			t.Fatalf("%d builds, reports: %v", b.builds, b.reports)
		}
		r.requireOnce("second")
	})
}

// The store says that it has written the claim, after another broker has said that it has the slot. The store decides.
func TestStoreDecidesAboutAClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.open(), r.open()
		b.Connect(linked{})
		c := a.mustCommit(1, "never there")
		object := r.get(format.LogKey(1))
		r.remove(format.LogKey(1))
		b.store.On(objstore.VerbCreate, format.LogKey(1), func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
			answer, err := next(ctx, q)
			if told := b.Told(object, c.Size(), time.Now()); told != nil {
				t.Error(told)
			}
			<-ctx.Done() // the answer comes after the broker has given the request up
			return answer, err
		})
		b.mustCommit(1, "there")
		r.requireOnce("there")
	})
}

func TestToldCommitThatDoesNotFitIsReadFromTheStore(t *testing.T) {
	for name, tell := range map[string]func(b *broker, object []byte, size int64) error{
		"another log": func(b *broker, object []byte, size int64) error {
			c, err := format.DecodeCommit(object)
			if err != nil {
				return err
			}
			c.Prev[0]++
			return b.Told(append(format.EncodeCommit(c), object[c.PayloadStart:]...), size, time.Now())
		},
		"an answer outside of the lease": func(b *broker, object []byte, size int64) error {
			return b.Told(object, size, time.Now().Add(testSpan))
		},
		"an answer long before the lease": func(b *broker, object []byte, size int64) error {
			return b.Told(object, size, time.Now().Add(-testMargin))
		},
		"an answer without a date": func(b *broker, object []byte, size int64) error {
			return b.Told(object, size, time.Time{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				a, b := r.open(), r.open()
				a.fill(1)
				b.mustLook()
				c := a.mustCommit(2, "payload")
				if err := tell(b, r.get(format.LogKey(2)), c.Size()); err != nil {
					t.Fatal(err)
				}
				if err := b.Follow(); err != nil {
					t.Fatal(err)
				}
				b.requireAt(1)
				b.mustLook()
				b.requireAt(2)
				requireEqual(t, b.applied, a.applied)
			})
		})
	}
}

func TestToldRefusesWhatIsNoCommitOfThisLog(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.open(), r.open()
		c := a.mustCommit(1, "payload")
		object := r.get(format.LogKey(1))
		b.cluster.ID[0]++
		requireIs(t, b.Told(object, c.Size(), time.Now()), format.ErrForeign)
		b.cluster.ID[0]--
		for n := range int(c.PayloadStart) {
			requireIs(t, b.Told(object[:n], c.Size(), time.Now()), format.ErrCorrupt)
		}
		requireIs(t, b.Told(object, c.Size()+1, time.Now()), format.ErrCorrupt)
		requireIs(t, b.Told(flip(object, commitHeadBytes-1), c.Size(), time.Now()), format.ErrCorrupt)
		if err := b.Follow(); err != nil {
			t.Fatal(err)
		}
		b.requireAt(0)
		b.mustTell(1)
		if err := b.Follow(); err != nil {
			t.Fatal(err)
		}
		b.requireAt(1)
	})
}

// A flood of told commits takes bounded memory, and the log goes on.
func TestToldCommitsAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.open(), r.open()
		a.fill(2 * Window)
		for range 3 {
			for s := range format.Seq(2 * Window) {
				b.mustTell(s + 1)
			}
		}
		if n := len(b.inbox.commits); n > toldMax {
			t.Fatalf("%d commits wait", n)
		}
		if err := b.Follow(); err != nil {
			t.Fatal(err)
		}
		b.requireAt(Window - 1)
		b.mustLook()
		b.requireAt(2 * Window)

		large := fmt.Sprintf("%*s", toldBytesMax/2, "")
		for s := range format.Seq(4) {
			a.mustCommit(2*Window+1+s, large)
		}
		for s := range format.Seq(4) {
			b.mustTell(2*Window + 4 - s)
		}
		if b.inbox.bytes > 2*toldBytesMax {
			t.Fatalf("%d bytes wait", b.inbox.bytes)
		}
		b.mustLook()
		b.requireAt(2*Window + 4)
	})
}

// A broker that waits for its turn goes on as soon as another broker says that it has the slot.
func TestToldCommitEndsTheWaitForATurn(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.open(), r.open()
		a.fill(1)
		begin := time.Now()
		time.AfterFunc(time.Millisecond, func() { b.mustTell(1) })
		b.rest(t.Context(), time.Hour)
		if took := time.Since(begin); took > time.Second {
			t.Fatalf("it took %v", took)
		}
	})
}
