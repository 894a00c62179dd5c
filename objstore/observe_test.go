package objstore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := storetest.NewFaulty(storetest.Slow(objstore.NewMemory(), time.Second))
		faulty.On("", "broken/", storetest.Fail)
		var ops []objstore.Op
		store := objstore.Observe(faulty, func(op objstore.Op) { ops = append(ops, op) })
		ctx := t.Context()

		_, first := store.Create(ctx, "log/1", []byte("12345"), []byte("67890"))
		_, second := store.Create(ctx, "log/1", []byte("123"))
		_, third := store.Create(ctx, "broken/1", []byte("1234"))
		object, _ := store.Get(ctx, "log/1", 2, 5)
		_, missing := store.Get(ctx, "log/2", 0, -1)
		left, leave := context.WithCancel(ctx)
		leave()
		_, canceled := store.Get(left, "log/1", 0, -1)
		page, _ := store.List(ctx, "log/", "", 0)
		_, deleted := store.Delete(ctx, "log/1")
		if first != nil || second == nil || third == nil || string(object.Body) != "34567" || missing == nil || canceled == nil || len(page.Keys) != 1 || deleted != nil {
			t.Fatal("the answers of the store got lost")
		}

		want := []objstore.Op{
			{Verb: objstore.VerbCreate, Key: "log/1", Outcome: objstore.OutcomeOK, Bytes: 10, Duration: time.Second},
			{Verb: objstore.VerbCreate, Key: "log/1", Outcome: objstore.OutcomeExists, Err: objstore.ErrExists, Bytes: 3, Duration: time.Second},
			{Verb: objstore.VerbCreate, Key: "broken/1", Outcome: objstore.OutcomeError, Err: storetest.ErrInjected, Bytes: 4},
			{Verb: objstore.VerbGet, Key: "log/1", Outcome: objstore.OutcomeOK, Bytes: 5, Duration: time.Second},
			{Verb: objstore.VerbGet, Key: "log/2", Outcome: objstore.OutcomeNotFound, Err: objstore.ErrNotFound, Duration: time.Second},
			{Verb: objstore.VerbGet, Key: "log/1", Outcome: objstore.OutcomeCanceled, Err: context.Canceled},
			{Verb: objstore.VerbList, Key: "log/", Outcome: objstore.OutcomeOK, Duration: time.Second},
			{Verb: objstore.VerbDelete, Key: "log/1", Outcome: objstore.OutcomeOK, Duration: time.Second},
		}
		if diff := cmp.Diff(want, ops, cmpopts.EquateErrors()); diff != "" {
			t.Errorf("ops (-want +got):\n%s", diff)
		}
	})
}

func TestObservedDirectoryFindsObjects(t *testing.T) {
	var ops []objstore.Op
	report := func(op objstore.Op) { ops = append(ops, op) }
	finder, ok := objstore.Observe(openDir(t), report).(objstore.Finder)
	if !ok {
		t.Fatal("an observed directory finds nothing by its name")
	}
	if _, err := finder.Create(t.Context(), "log/1"); err != nil {
		t.Fatal(err)
	}
	if index, err := finder.FirstMissing(t.Context(), []string{"log/1", "log/2"}); err != nil || index != 1 {
		t.Fatalf("FirstMissing = %d, %v, want 1", index, err)
	}
	if len(ops) != 2 || ops[1].Verb != objstore.VerbList || ops[1].Key != "log/1" || ops[1].Outcome != objstore.OutcomeOK {
		t.Fatalf("reported %+v", ops)
	}
	if _, ok := objstore.Observe(objstore.NewMemory(), report).(objstore.Finder); ok {
		t.Error("an observed store that is no finder says that it is one")
	}
}
