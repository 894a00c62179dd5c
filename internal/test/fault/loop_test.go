package fault_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// A waiting reader must not make the loop of a closing broker spin. In a bubble, time stands still
// while a goroutine spins.
func TestShutdownDuringAnUploadRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		b := openOnly(t, faulty, immediate())
		mustAppend(t, b, "t", "v")
		faulty.On(objstore.VerbCreate, format.DataPrefix, storetest.Delay(40*time.Second))
		reading := fetching(t.Context(), b, "t", 1, time.Hour)
		p, err := b.AppendAsync(t.Context(), "t", values(large("v", 7<<20), large("w", 7<<20)))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if _, err := p.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		<-reading
	})
}

// A topic was created, and another client deleted it in the same commit. Its creator must not be told
// that it was not created.
func TestTopicDeletedAsItIsCreatedIsNotSaidToBeUncommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, storetest.Slow(objstore.NewMemory(), time.Millisecond), immediate())
		const topics = 300
		var (
			wg              sync.WaitGroup
			created, remove [topics]error
		)
		for i := range topics { // the scheduler decides which request comes first
			name := fmt.Sprint("t", i)
			wg.Go(func() { _, _, created[i] = b.CreateTopic(t.Context(), name, seb.TopicOptions{}) })
			wg.Go(func() { remove[i] = b.DeleteTopic(t.Context(), name) })
		}
		wg.Wait()
		both := 0
		for i := range topics {
			if remove[i] != nil {
				continue
			}
			both++
			if created[i] != nil && seb.OutcomeOf(created[i]) == seb.NotCommitted {
				t.Fatalf("topic %d was created and deleted, and its creator is told: %v", i, created[i])
			}
		}
		if both == 0 {
			t.Error("no topic was deleted at once")
		}
	})
}

func TestReadsHaveNoOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		_, err := b.Topic(t.Context(), "unknown")
		if e := wantError(t, err, seb.CodeTopicNotFound); e.Outcome != "" {
			t.Errorf("Topic ended with outcome %q", e.Outcome)
		}
	})
}

// A broker that only reads has slept. Loading the newest checkpoint takes longer than a sync may take.
func TestCheckpointThatLoadsSlowlyIsLoadedByAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		opts := forgetful()
		other := openOnly(t, memory, opts)
		mustAppend(t, other, "t", "first")
		sleeper := open(t, faulty, opts)
		for _, v := range numbered("v", 6) {
			mustAppend(t, other, "t", v)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		sleepPastDeletion(t, memory, 7)
		faulty.On(objstore.VerbGet, format.CheckpointPrefix, storetest.Delay(12*time.Second))
		for range 10 {
			_, err := sleeper.Topic(t.Context(), "unknown")
			if seb.CodeOf(err) == seb.CodeTopicNotFound {
				return
			}
			t.Log(err)
		}
		t.Errorf("the broker did not reach the end of the log; it began %d loads", faulty.Count(objstore.VerbGet, format.CheckpointPrefix))
	})
}

// A checkpoint is loaded while a read is under way. The read must find out where its records are now,
// before it calls them lost.
func TestReadOvertakenByALoadIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		opts := forgetful()
		other := openOnly(t, memory, opts)
		for _, v := range numbered("v", 3) {
			mustAppend(t, other, "t", v)
		}
		if err := other.Close(); err != nil { // writes a checkpoint, so that the sleeper has nothing cached
			t.Fatal(err)
		}
		sleeper := open(t, faulty, opts)
		other = openOnly(t, memory, opts)
		if err := other.DeleteTopic(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		for _, v := range numbered("v", 3) {
			mustAppend(t, other, "u", v)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		sleepPastDeletion(t, memory, 7)
		release := make(chan struct{})
		faulty.On(objstore.VerbGet, format.LogKey(2), storetest.Times(1, storetest.HoldReply(release)))
		done := make(chan error)
		go func() {
			_, err := sleeper.Fetch(t.Context(), "t", 0, seb.At(0), seb.FetchOptions{Limit: 1})
			done <- err
		}()
		synctest.Wait()
		_, err := sleeper.Topic(t.Context(), "unknown") // makes the sleeper load the checkpoint
		wantCode(t, err, seb.CodeTopicNotFound)
		close(release)
		err = <-done
		wantCode(t, err, seb.CodeTopicNotFound)
	})
}

// A read that named no offset must not be refused because of its offset. If the load of a checkpoint
// shows that the first record was deleted meanwhile, the read begins at the new start of the
// partition.
func TestReadFromTheStartOvertakenByALoadMovesUpWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		opts := forgetful()
		other := openOnly(t, memory, opts)
		for _, v := range numbered("v", 3) { // in slots 2 to 4
			mustAppend(t, other, "t", v)
		}
		if err := other.Close(); err != nil { // writes a checkpoint, so that the sleeper has nothing cached
			t.Fatal(err)
		}
		sleeper := open(t, faulty, opts)
		other = openOnly(t, memory, opts)
		if _, err := other.DeleteRecords(t.Context(), "t", 0, 2); err != nil {
			t.Fatal(err)
		}
		for _, v := range numbered("v", 3) {
			mustAppend(t, other, "u", v)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Hour)
		for _, s := range []format.Seq{1, 2, 3, 5, 6, 7, 8} {
			remove(t, memory, format.LogKey(s))
		}
		release := make(chan struct{})
		faulty.On(objstore.VerbGet, format.LogKey(2), storetest.Times(1, storetest.HoldReply(release)))
		var got seb.Fetched
		done := make(chan error)
		go func() {
			f, err := sleeper.Fetch(t.Context(), "t", 0, seb.Earliest, seb.FetchOptions{Limit: 1})
			got = f
			done <- err
		}()
		synctest.Wait()
		_, err := sleeper.Topic(t.Context(), "unknown") // makes the sleeper load the checkpoint
		wantCode(t, err, seb.CodeTopicNotFound)
		close(release)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if len(got.Records) == 0 || got.Records[0].Offset != 2 || got.Start != 2 {
			t.Errorf("got %+v", got)
		}
	})
}

// A partition may start in the middle of a batch, even when the load of a checkpoint moves a read to
// that start.
func TestReadOvertakenByALoadGoesOnInTheBatchThatTheStartIsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		opts := forgetful()
		other := openOnly(t, memory, opts)
		mustAppend(t, other, "t", numbered("v", 4)...) // in slot 2
		mustAppend(t, other, "t", "last")
		if _, err := other.DeleteRecords(t.Context(), "t", 0, 2); err != nil {
			t.Fatal(err)
		}
		if err := other.Close(); err != nil { // writes a checkpoint, so that the sleeper has nothing cached
			t.Fatal(err)
		}
		sleeper := open(t, faulty, opts)
		other = openOnly(t, memory, opts)
		for _, v := range numbered("v", 3) {
			mustAppend(t, other, "u", v)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Hour)
		for _, s := range []format.Seq{1, 4, 5, 6, 7, 8} {
			remove(t, memory, format.LogKey(s))
		}
		release := make(chan struct{})
		faulty.On(objstore.VerbGet, format.LogKey(2), storetest.Times(1, storetest.HoldReply(release)))
		var got seb.Fetched
		done := make(chan error)
		go func() {
			f, err := sleeper.Fetch(t.Context(), "t", 0, seb.At(2), seb.FetchOptions{Limit: 1})
			got = f
			done <- err
		}()
		synctest.Wait()
		_, err := sleeper.Topic(t.Context(), "unknown") // makes the sleeper load the checkpoint
		wantCode(t, err, seb.CodeTopicNotFound)
		close(release)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if len(got.Records) == 0 || got.Records[0].Offset != 2 || got.Start != 2 {
			t.Errorf("got %+v", got)
		}
	})
}
