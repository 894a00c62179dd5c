package commitlog

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// putPages writes pages, and makes the checkpoint of a slot refer to them.
func (r *rig) putPages(s format.Seq, bodies ...string) (keys []string) {
	r.Helper()
	if r.pages == nil {
		r.pages = map[format.Seq][]format.Page{}
	}
	for i, body := range bodies {
		object, p := format.EncodePage(r.constants.ID, format.DataRef{Seq: s, ID: uint64(i + 1)}, 0, []byte(body), 1)
		r.put(p.Ref.Key(), object)
		r.pages[s] = append(r.pages[s], p)
		keys = append(keys, p.Ref.Key())
	}
	return keys
}

func TestPagesOfACheckpointAreRead(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.fill(4)
		a.checkpoint()
		r.putPages(4, "one", "two", "three")
		b := r.open()
		b.requireAt(4)
		if n := b.store.Count(objstore.VerbGet, format.DataPrefix); n != 3 {
			t.Fatalf("%d Gets of pages", n)
		}
	})
}

func TestPageThatIsGoneIsLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.fill(2)
		a.checkpoint()
		a.fill(4)
		a.checkpoint()
		keys := r.putPages(4, "one", "two")
		r.remove(keys[1])
		b := r.newBroker()
		err := b.Recover(t.Context())
		b.requireHalted(err, ErrPageLost)
		b.requireAt(0) // the broker did not load the older checkpoint
		if !strings.Contains(b.Err().Error(), keys[1]) {
			t.Fatalf("the error does not name the page: %v", b.Err())
		}
		if n := b.store.Count(objstore.VerbGet, format.CheckpointPrefix); n > 2 {
			t.Fatalf("%d Gets of checkpoints", n)
		}
	})
}

// While a broker loads a checkpoint, others write a newer one and, D later, delete a page of the first one.
func TestPageThatWasDeletedLeadsToANewerCheckpoint(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.fill(4)
		a.checkpoint()
		keys := r.putPages(4, "one", "two")
		b := r.newBroker()
		b.store.On(objstore.VerbGet, keys[0], storetest.Times(1, func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
			r.moveOn(6)
			r.remove(keys[0])
			return next(context.WithoutCancel(ctx), q)
		}))
		if err := b.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.requireAt(6)
	})
}

func TestPageThatIsDamagedHalts(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.fill(4)
		a.checkpoint()
		keys := r.putPages(4, "one", "two")
		sound := r.get(keys[1])
		for name, bent := range map[string][]byte{"bent": flip(append([]byte(nil), sound...), len(sound)-1), "cut off": sound[:len(sound)-1]} {
			r.replace(keys[1], bent)
			b := r.newBroker()
			err := b.Recover(t.Context())
			b.requireHalted(err, format.ErrCorrupt)
			b.requireAt(0)
			if n := b.store.Count(objstore.VerbGet, keys[1]); n != damagedReadsMax || !strings.Contains(b.Err().Error(), keys[1]) {
				t.Fatalf("%s: %d Gets, and the error %v", name, n, b.Err())
			}
		}
	})
}

func TestPageThatIsNotReadIsReadAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.fill(4)
		a.checkpoint()
		keys := r.putPages(4, "one", "two")
		b := r.newBroker()
		b.store.On(objstore.VerbGet, keys[0], storetest.Times(2, storetest.FlipByte(-1)))
		b.store.On(objstore.VerbGet, keys[1], storetest.Times(2, func(context.Context, storetest.Request, storetest.Next) (storetest.Answer, error) {
			return storetest.Answer{}, errors.New("no answer")
		}))
		if err := b.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.requireAt(4)
	})
}

func TestProtocolThatMissesAPage(t *testing.T) {
	missing := func(t *testing.T) *scenario {
		s := &scenario{T: t, Protocol: NewProtocol(testDelay, testMargin)}
		s.list(Listing{Checkpoint: 5, From: 5})
		s.expect(DoLoad, 5)
		s.PageMissing("data/1")
		s.expect(DoList, 0)
		return s
	}
	s := missing(t)
	s.list(Listing{Checkpoint: 5, From: 5})
	s.halted(ErrPageLost)

	s = missing(t)
	s.list(Listing{Checkpoint: 9, From: 9})
	s.expect(DoLoad, 9)
	s.Loaded(9, slotHash(9))
	s.expect(Idle, 0)

	s = missing(t) // without any checkpoint, the slots that it covered are lost
	s.list(Listing{})
	s.expect(DoGet, 1)
	s.missing404(1, after(1))
	s.halted(ErrLoss)
}
