package storetest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestFaultyWithoutFaultsConforms(t *testing.T) {
	storetest.Run(t, func(*testing.T) objstore.Store { return storetest.NewFaulty(objstore.NewMemory()) })
}

func setUp() (*objstore.Memory, *storetest.Faulty) {
	memory := objstore.NewMemory()
	return memory, storetest.NewFaulty(memory)
}

func mustCreate(t *testing.T, store objstore.Store, key, body string) {
	t.Helper()
	if _, err := store.Create(t.Context(), key, []byte(body)); err != nil {
		t.Fatal(err)
	}
}

func exists(t *testing.T, store objstore.Store, key string) bool {
	t.Helper()
	page, err := store.List(t.Context(), key, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	return len(page.Keys) == 1
}

func isUnknown(err error) bool {
	return errors.Is(err, storetest.ErrInjected) && !errors.Is(err, objstore.ErrExists) && !errors.Is(err, objstore.ErrNotFound)
}

func TestFailNeverExecutes(t *testing.T) {
	memory, faulty := setUp()
	remove := faulty.On(objstore.VerbCreate, "log/", storetest.Fail)
	if _, err := faulty.Create(t.Context(), "log/1"); !isUnknown(err) {
		t.Errorf("Create = %v, want an unknown outcome", err)
	}
	if exists(t, memory, "log/1") {
		t.Error("the request was executed")
	}
	mustCreate(t, faulty, "data/1", "x") // the key does not match
	if !exists(t, faulty, "data/1") {    // the verb does not match
		t.Error("a request that no rule matches went astray")
	}
	remove()
	mustCreate(t, faulty, "log/1", "x")
}

func TestLoseReplyExecutes(t *testing.T) {
	memory, faulty := setUp()
	faulty.On(objstore.VerbCreate, "", storetest.Times(2, storetest.LoseReply))
	for range 2 { // without the fault the second would get ErrExists
		if _, err := faulty.Create(t.Context(), "log/1", []byte("x")); !isUnknown(err) {
			t.Errorf("Create = %v, want an unknown outcome", err)
		}
	}
	if !exists(t, memory, "log/1") {
		t.Error("the request was not executed")
	}
	if _, err := faulty.Create(t.Context(), "log/1", []byte("x")); !errors.Is(err, objstore.ErrExists) {
		t.Errorf("third Create = %v, want ErrExists", err)
	}
}

func TestLateExecutesOnRelease(t *testing.T) {
	memory, faulty := setUp()
	var late storetest.Late
	remove := faulty.On(objstore.VerbCreate, "", late.Fault)
	ctx, cancel := context.WithCancel(t.Context())
	body := []byte("sent")
	for range 2 {
		if _, err := faulty.Create(ctx, "log/1", body); !isUnknown(err) {
			t.Errorf("Create = %v, want an unknown outcome", err)
		}
	}
	cancel()
	copy(body, "????")
	remove()
	if exists(t, memory, "log/1") || late.Held() != 2 {
		t.Fatalf("executed before its time, or %d held", late.Held())
	}
	outcomes := late.Release()
	if len(outcomes) != 2 || outcomes[0] != nil || !errors.Is(outcomes[1], objstore.ErrExists) {
		t.Errorf("outcomes %v, want success and ErrExists", outcomes)
	}
	object, err := memory.Get(t.Context(), "log/1", 0, -1)
	if err != nil || string(object.Body) != "sent" {
		t.Errorf("object is %q, %v; want what was sent", object.Body, err)
	}
}

func TestHoldAndDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := setUp()
		mustCreate(t, memory, "log/1", "x")
		release := make(chan struct{})
		faulty.On(objstore.VerbGet, "", storetest.Hold(release))
		done := make(chan error)
		get := func(ctx context.Context) {
			_, err := faulty.Get(ctx, "log/1", 0, -1)
			done <- err
		}
		ctx, cancel := context.WithCancel(t.Context())
		go get(ctx)
		go get(t.Context())
		synctest.Wait()
		if faulty.Count(objstore.VerbGet, "log/") != 2 {
			t.Error("the held requests weren't counted")
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("held Get whose caller left = %v", err)
		}
		close(release)
		if err := <-done; err != nil {
			t.Errorf("released Get = %v", err)
		}

		slow, begun := storetest.Slow(memory, 100*time.Millisecond), time.Now()
		mustCreate(t, slow, "log/2", "x")
		if took := time.Since(begun); took != 100*time.Millisecond {
			t.Errorf("slow Create took %v", took)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := slow.Create(ctx, "log/3"); !errors.Is(err, context.DeadlineExceeded) || exists(t, memory, "log/3") {
			t.Errorf("slow Create past its deadline = %v", err)
		}
	})
}

func TestHoldReplyExecutesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := setUp()
		release := make(chan struct{})
		faulty.On(objstore.VerbCreate, "", storetest.HoldReply(release))
		done := make(chan error)
		go func() {
			_, err := faulty.Create(t.Context(), "log/1")
			done <- err
		}()
		synctest.Wait()
		if !exists(t, memory, "log/1") {
			t.Error("not executed while the reply is held")
		}
		close(release)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestBodyFaultsChangeGetsOnly(t *testing.T) {
	memory, faulty := setUp()
	mustCreate(t, memory, "log/1", "abc")
	tests := []struct {
		fault storetest.Fault
		want  string
	}{
		{storetest.Truncate(2), "ab"},
		{storetest.Truncate(9), "abc"},
		{storetest.FlipByte(0), "\x9ebc"},
		{storetest.FlipByte(-1), "ab\x9c"},
		{storetest.FlipByte(3), "abc"},
		{storetest.After(1, storetest.Truncate(0)), "abc"},
		{storetest.After(0, storetest.Truncate(0)), ""},
	}
	for i, test := range tests {
		remove := faulty.On("", "log/", test.fault)
		object, err := faulty.Get(t.Context(), "log/1", 0, -1)
		if err != nil || string(object.Body) != test.want || object.Size != 3 {
			t.Errorf("fault %d: Get = %q of %d, %v; want %q", i, object.Body, object.Size, err, test.want)
		}
		remove()
	}
	object, err := memory.Get(t.Context(), "log/1", 0, -1)
	if err != nil || string(object.Body) != "abc" {
		t.Errorf("faults reached the store: %q, %v", object.Body, err)
	}
}

func TestFaultsNestInTheOrderAdded(t *testing.T) {
	_, faulty := setUp()
	var order []int
	for i := range 3 {
		faulty.On("", "", func(ctx context.Context, request storetest.Request, next storetest.Next) (storetest.Answer, error) {
			order = append(order, i)
			return next(ctx, request)
		})
	}
	mustCreate(t, faulty, "log/1", "x")
	if !slices.Equal(order, []int{0, 1, 2}) {
		t.Errorf("faults ran in order %v", order)
	}
}

func TestTimeFaults(t *testing.T) {
	at := time.Unix(1_000_000, 0).UTC()
	faulty := storetest.NewFaulty(objstore.NewMemory(objstore.WithClock(func() time.Time { return at })))
	remove := faulty.On("", "", storetest.ShiftTime(func() time.Duration { return -time.Hour }))
	object, err := faulty.Get(t.Context(), "log/1", 0, -1)
	if !errors.Is(err, objstore.ErrNotFound) || !object.Time.Equal(at.Add(-time.Hour)) {
		t.Errorf("shifted answer = %v, %v", object.Time, err)
	}
	remove()
	faulty.On(objstore.VerbList, "", storetest.NoTime)
	if page, err := faulty.List(t.Context(), "", "", 0); err != nil || !page.Time.IsZero() {
		t.Errorf("answer without time = %v, %v", page.Time, err)
	}
}

func TestOutageAndCounts(t *testing.T) {
	memory, faulty := setUp()
	faulty.SetDown(true)
	if _, err := faulty.Create(t.Context(), "log/1"); !isUnknown(err) || exists(t, memory, "log/1") {
		t.Errorf("Create during an outage = %v", err)
	}
	faulty.SetDown(false)
	mustCreate(t, faulty, "log/1", "x")
	mustCreate(t, faulty, "data/1", "x")
	if _, err := faulty.Delete(t.Context(), "data/1"); err != nil {
		t.Fatal(err)
	}
	counts := []int{faulty.Count("", ""), faulty.Count(objstore.VerbCreate, "log/"), faulty.Count("", "data/"), faulty.Count(objstore.VerbGet, "")}
	if !slices.Equal(counts, []int{4, 2, 2, 0}) {
		t.Errorf("counts %v", counts)
	}
}
