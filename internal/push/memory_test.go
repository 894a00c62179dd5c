package push_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/simple-event-broker/seb/internal/budget"
	"github.com/simple-event-broker/seb/internal/push"
)

const memoryLimit = 16 << 20 // the share is 4 MiB

func newMemory() (*push.Memory, *budget.Budget) {
	of := budget.New(memoryLimit, func(int64) {})
	return push.NewMemory(of, memoryLimit), of
}

func TestPushersHoldTheirShareAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, of := newMemory()
		if err := m.Take(t.Context(), 3<<20); err != nil {
			t.Fatal(err)
		}
		took := make(chan error, 1)
		go func() { took <- m.Take(t.Context(), 2<<20) }()
		synctest.Wait()
		select {
		case err := <-took:
			t.Fatalf("5 MiB of a share of 4 were taken: %v", err)
		default:
		}
		m.Give(3 << 20)
		if err := <-took; err != nil {
			t.Fatal(err)
		}
		if n := of.InUse(); n != 2<<20 {
			t.Errorf("the broker has %d bytes in use, want 2 MiB", n)
		}
		m.Give(2 << 20)
		if n := of.InUse(); n != 0 {
			t.Errorf("%d bytes are in use for nothing", n)
		}
	})
}

func TestPusherThatGetsNoMemoryOfTheBrokerHoldsNoneOfTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, of := newMemory()
		if err := of.Take(t.Context(), budget.Batches, memoryLimit); err != nil {
			t.Fatal(err)
		}
		if err := m.Take(t.Context(), 4<<20); err == nil {
			t.Fatal("a pusher got memory that others hold")
		}
		of.Give(budget.Batches, memoryLimit)
		if err := m.Take(t.Context(), 4<<20); err != nil {
			t.Errorf("the share is held for nothing: %v", err)
		}
	})
}

func TestTwoPushersFitInTheShare(t *testing.T) {
	m, _ := newMemory()
	for _, test := range []struct {
		messagesMax int
		bytesMax    int64
		messages    int
		bytes       int64
	}{
		{1000, 1 << 20, 1000, 1 << 20},
		{10, 100, 10, 100},
		{1 << 20, 1 << 30, 2048, 1 << 20},
	} {
		messages, bytes, ahead := m.Plan(test.messagesMax, test.bytesMax)
		if messages != test.messages || bytes != test.bytes {
			t.Errorf("of %d messages with %d bytes %d with %d come at a time", test.messagesMax, test.bytesMax, messages, bytes)
		}
		if ahead > 2<<20 || ahead < bytes {
			t.Errorf("%d bytes are taken ahead, of a share of 4 MiB", ahead)
		}
	}
}

func TestMemoryIsSettledToWhatMessagesHold(t *testing.T) {
	m, of := newMemory()
	const ahead = 1 << 20
	if held := m.Held(1 << 30); held != 4<<20 {
		t.Errorf("a message that is larger than the share holds %d bytes, want all of it", held)
	}
	for _, size := range []int64{100, 2 << 20} {
		if err := m.Take(context.Background(), ahead); err != nil {
			t.Fatal(err)
		}
		held := m.Held(size)
		if err := m.Settle(t.Context(), ahead, held); err != nil {
			t.Fatal(err)
		}
		if n := of.InUse(); n != held || n <= size {
			t.Errorf("a message of %d bytes holds %d, and %d are in use", size, held, n)
		}
		m.Give(held)
	}
}
