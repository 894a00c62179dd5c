package commit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// move returns a commit that rides and moves the consumer "worker" of topic "in".
func move(from, to seb.Offset) seb.Commit {
	c := counted(from, to)
	c.Rides = true
	return c
}

func pending(t *testing.T, b *seb.Broker, c seb.Commit) *seb.PendingCommit {
	t.Helper()
	p, err := b.CommitAsync(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func stillRides(t *testing.T, p *seb.PendingCommit) {
	t.Helper()
	synctest.Wait()
	select {
	case <-p.Done():
		_, err := p.Wait(t.Context())
		t.Fatalf("the commit that rides is done: %v", err)
	default:
	}
}

// A position moves with the next append, whenever that comes, and without a request of its own. Its conditions hold at that place.
func TestPositionRides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(objstore.NewMemory())
		b := open(t, store, immediate())
		c := withWorker(t, b, 3)
		time.Sleep(2 * time.Hour) // until the jobs of a log that has just become idle are done
		before := store.Count("", "")
		first, stale := pending(t, b, move(0, 1)), pending(t, b, move(2, 3))
		early := move(0, 3)
		early.After = time.Now().Add(24 * time.Hour)
		tooEarly := pending(t, b, early)
		time.Sleep(3 * time.Hour)
		stillRides(t, first)
		if n := store.Count("", "") - before; n != 0 {
			t.Errorf("%d requests to the store", n)
		}
		mustAppend(t, b, "other", "x")
		if done, err := first.Wait(t.Context()); err != nil || len(done.Versions) != 1 {
			t.Errorf("%+v, %v", done, err)
		}
		_, err := stale.Wait(t.Context())
		wantPart(t, err, seb.CodePositionConflict, "positions/0")
		_, err = tooEarly.Wait(t.Context())
		wantPart(t, err, seb.CodeTooEarly, "after")
		wantAt(t, c, 1)
	})
}

func TestCommitThatRidesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := kit.OpenOnly(t, objstore.NewMemory(), immediate())
		withWorker(t, b, 3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := b.Commit(ctx, move(0, 1))
		wantCode(t, err, seb.CodeCanceled)
		wantOutcome(t, err, seb.NotCommitted)
		p := pending(t, b, move(0, 1))
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = p.Wait(t.Context())
		wantCode(t, err, seb.CodeBrokerClosed)
		wantOutcome(t, err, seb.NotCommitted)
		_, err = b.Commit(t.Context(), move(0, 1))
		wantCode(t, err, seb.CodeBrokerClosed)
	})
}

func TestCommitThatRidesHasNoIdempotencyKey(t *testing.T) {
	b := open(t, objstore.NewMemory(), seb.Options{})
	withWorker(t, b, 1)
	_, err := b.Commit(t.Context(), move(0, 1), seb.IdempotencyKey("k"))
	wantCode(t, err, seb.CodeInvalidRequest)
	wantOutcome(t, err, seb.NotCommitted)
}
