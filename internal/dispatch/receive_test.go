package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/format"
)

// receive returns what a receiver gets, as "key#attempt".
func (f *fake) receive(o dispatch.ReceiveOptions) (string, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = 1 << 20
	}
	got, err := f.all.Receive(f.t.Context(), o, func() (*dispatch.Dispatcher, error) {
		d := f.all.Of(1)
		if d == nil {
			return nil, dispatch.ErrNotOwner
		}
		return d, nil
	})
	list := make([]string, len(got))
	for i, x := range got {
		list[i] = fmt.Sprintf("%s#%d", x.Records.Key(x.Index), x.Attempt)
		if x.Token.Queue != 1 || x.Until.Before(time.Now()) {
			f.t.Errorf("received %+v, leased until %v", x.Token, x.Until)
		}
	}
	return strings.Join(list, " "), err
}

func (f *fake) wantReceived(o dispatch.ReceiveOptions, want string) {
	f.t.Helper()
	if got, err := f.receive(o); err != nil || got != want {
		f.t.Errorf("received %q, %v; want %q", got, err, want)
	}
}

func within(d time.Duration) time.Time { return time.Now().Add(d) }

func TestReceiverWaitsForARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.open()
		began := time.Now()
		f.wantReceived(dispatch.ReceiveOptions{Max: 1, Deadline: within(time.Minute)}, "")
		if waited := time.Since(began); waited != time.Minute {
			t.Errorf("a receiver waited %v for nothing, want a minute", waited)
		}
		go func() {
			time.Sleep(time.Second)
			if n := f.followers.Load(); n != 1 {
				t.Errorf("%d waiting receivers follow the log, want one", n)
			}
			f.append("a")
		}()
		began = time.Now()
		f.wantReceived(dispatch.ReceiveOptions{Max: 1, Deadline: within(time.Minute)}, "a#1")
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("the record came after a second, and its receiver had it after %v", waited)
		}
		if n := f.followers.Load(); n != 0 {
			t.Errorf("%d receivers follow the log after the last one left", n)
		}
	})
}

// The limit keeps back the ninth record, so the receiver causes a commit that raises the limit. When the receiver
// gives up, the state has applied this commit, but the dispatcher has not noted it yet.
func TestReceiverThatDoesNotWaitGetsWhatTheLimitKeptBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.append("a", "b", "c", "d", "e", "f", "g", "h", "i")
		d := f.open()
		if got := d.Take(time.Now(), dispatch.Want{Max: reach, Admitted: reach}); len(got.Out) != reach {
			t.Fatalf("taken %+v, want %d records", got, reach)
		}
		f.between = func() { time.Sleep(time.Second) }
		slow := func(context.Context) (int, func(), error) {
			return 1, func() { time.Sleep(time.Second / 2) }, nil
		}
		f.wantReceived(dispatch.ReceiveOptions{Max: 1, Deadline: time.Now(), Admit: slow}, "i#1")
		f.tasks.Wait()
	})
}

func TestReceiverThatWaitsGetsWhatComesDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.append("a")
		f.open()
		f.wantReceived(dispatch.ReceiveOptions{Max: 1}, "a#1")
		began := time.Now()
		f.wantReceived(dispatch.ReceiveOptions{Max: 1, Deadline: within(time.Minute)}, "a#2")
		if waited := time.Since(began); waited != 10*time.Second { // the lease
			t.Errorf("the record came again after %v, want 10s", waited)
		}
	})
}

// While the log can't be read, the broker can't tell whether it still owns the queue.
func TestNothingIsHandedOutWhileTheLogCantBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.append("a")
		d := f.open()
		unreadable := errors.New("the store is away")
		f.unreadable.Store(&unreadable)
		if got, err := f.receive(dispatch.ReceiveOptions{Max: 1}); got != "" || !errors.Is(err, unreadable) {
			t.Errorf("received %q, %v", got, err)
		}
		f.unreadable.Store(nil)
		wantTaken(t, d, 1, "0#1")
		go func() {
			time.Sleep(time.Second)
			f.unreadable.Store(&unreadable)
			f.append("b")
		}()
		if got, err := f.receive(dispatch.ReceiveOptions{Max: 1, Deadline: within(5 * time.Second)}); got != "" || !errors.Is(err, unreadable) {
			t.Errorf("received %q, %v after a wait", got, err)
		}
		f.unreadable.Store(nil)
		wantTaken(t, d, 1, "1#1")
	})
}

// Another broker may take over the queue while a receiver waits for memory or for a permit.
func TestNothingIsHandedOutAfterAWaitForMemoryWithoutASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.append("a")
		d := f.open()
		unreadable := errors.New("the store is away")
		released := 0
		got, err := f.receive(dispatch.ReceiveOptions{Max: 1, Admit: func(context.Context) (int, func(), error) {
			f.unreadable.Store(&unreadable)
			return 1, func() { released++ }, nil
		}})
		if got != "" || !errors.Is(err, unreadable) || released != 1 {
			t.Errorf("received %q, %v, and released the memory %d times", got, err, released)
		}
		f.unreadable.Store(nil)
		wantTaken(t, d, 1, "0#1")
	})
}

func TestReceiverReturnsWhatIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.append("aaaa", "bb", "cccc")
		f.open()
		f.wantReceived(dispatch.ReceiveOptions{Max: 9, MaxBytes: 7}, "aaaa#1 bb#1")
		f.wantReceived(dispatch.ReceiveOptions{Max: 9, MaxBytes: 1}, "cccc#1") // the first record is returned whatever its size
	})
}

func TestRecordsThatCantBeRead(t *testing.T) {
	later := errors.New("the store is away")
	tests := []struct {
		what string
		err  error
		want []string // results of consecutive receives
		out  int64    // how many records are with workers after that
	}{
		{"deleted", &dispatch.ReadError{Err: errors.New("gone"), Deleted: true}, []string{"a#1 c#1"}, 3},
		{"lost", &dispatch.ReadError{Err: errors.New("damaged"), Lost: true}, []string{"a#1", "c#1"}, 3},
		{"for now", later, []string{"a#1", "the store is away"}, 1},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, config())
				f.append("a", "b", "c")
				d := f.open()
				f.failing = map[format.Offset]error{1: test.err}
				for _, want := range test.want {
					got, err := f.receive(dispatch.ReceiveOptions{Max: 9})
					if err != nil {
						got = err.Error()
					}
					if got != want {
						t.Errorf("received %q, want %q", got, want)
					}
				}
				if info := d.Info(); info.Leased != test.out {
					t.Errorf("%d records are with workers, want %d", info.Leased, test.out)
				}
			})
		})
	}
}

func TestReceiverThatGetsNothingReleasesWhatItReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.open()
		held := 0
		o := dispatch.ReceiveOptions{Max: 9, Admit: func(context.Context) (int, func(), error) {
			held++
			return 2, func() { held-- }, nil
		}}
		o.Deadline = within(time.Second)
		f.wantReceived(o, "")
		if held != 0 {
			t.Errorf("a receiver without records holds %d reservations", held)
		}
		f.append("a", "b", "c")
		f.wantReceived(o, "a#1 b#1") // as many as are admitted
		if held != 1 {
			t.Errorf("a receiver with records holds %d reservations, want one", held)
		}
		refusal := errors.New("no memory")
		o.Admit = func(context.Context) (int, func(), error) { return 0, nil, refusal }
		if got, err := f.receive(o); got != "" || !errors.Is(err, refusal) {
			t.Errorf("received %q, %v", got, err)
		}
	})
}

func TestReceiverLearnsAtOnceThatItsDispatcherEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.open()
		go func() {
			time.Sleep(time.Second)
			f.own(format.SessionKey{2}, 2)
		}()
		began := time.Now()
		if got, err := f.receive(dispatch.ReceiveOptions{Max: 1, Deadline: within(time.Minute)}); got != "" || !errors.Is(err, dispatch.ErrNotOwner) {
			t.Errorf("received %q, %v", got, err)
		}
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("the queue had another owner after a second, and a receiver knew of it after %v", waited)
		}
	})
}

func TestReceiverEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		d := f.open()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		o := dispatch.ReceiveOptions{Max: 1, MaxBytes: 1, Deadline: within(time.Hour)}
		if _, err := f.all.Receive(ctx, o, func() (*dispatch.Dispatcher, error) { return d, nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a receiver whose caller went away ended with %v", err)
		}
	})
}

func TestReceiverEndsWithTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.open()
		closed := errors.New("the broker is closed")
		go func() {
			time.Sleep(time.Second)
			f.unreadable.Store(&closed)
			close(f.done)
		}()
		began := time.Now()
		if _, err := f.receive(dispatch.ReceiveOptions{Max: 1, Deadline: within(time.Hour)}); !errors.Is(err, closed) {
			t.Errorf("a receiver of a broker that ended did so with %v", err)
		}
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("the broker ended after a second, and a receiver after %v", waited)
		}
	})
}

// A receiver in line that can't take a record must not keep it from the next receiver.
func TestReceiverThatFailsPassesItsTurnOn(t *testing.T) {
	refusal := errors.New("no memory")
	for _, test := range []struct {
		what       string
		unreadable bool
		second     string // what the second receiver in line gets
	}{
		{"to a receiver", false, "a#1"},
		{"also while the log can't be read", true, "the store is away"},
	} {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, config())
				f.open()
				calls := 0
				o := dispatch.ReceiveOptions{Max: 1, Deadline: within(time.Minute)}
				first := o
				first.Admit = func(context.Context) (int, func(), error) {
					if calls++; calls == 1 {
						return 1, func() {}, nil
					}
					return 0, nil, refusal
				}
				go func() {
					if got, err := f.receive(first); err == nil {
						t.Errorf("the first receiver got %q", got)
					}
				}()
				synctest.Wait()
				go func() {
					time.Sleep(time.Second)
					if test.unreadable {
						away := errors.New("the store is away")
						f.unreadable.Store(&away)
					}
					f.append("a")
				}()
				began := time.Now()
				got, err := f.receive(o)
				if err != nil {
					got = err.Error()
				}
				if waited := time.Since(began); got != test.second || waited != time.Second {
					t.Errorf("the second receiver got %q after %v, want %q after 1s", got, waited, test.second)
				}
			})
		})
	}
}

func TestReceiverThatGivesUpLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.open()
		go f.wantReceived(dispatch.ReceiveOptions{Max: 1, Deadline: within(time.Second)}, "")
		synctest.Wait()
		go func() {
			time.Sleep(2 * time.Second)
			f.append("a")
		}()
		began := time.Now()
		f.wantReceived(dispatch.ReceiveOptions{Max: 1, Deadline: within(time.Minute)}, "a#1")
		if waited := time.Since(began); waited != 2*time.Second {
			t.Errorf("the record came after 2s, and its receiver had it after %v", waited)
		}
	})
}

func TestReceiverGoesOnWithTheNextDispatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config())
		f.open()
		opened := 0
		go func() {
			time.Sleep(time.Second)
			f.commit(&format.QueueDeleted{ID: 1})
		}()
		refusal := errors.New("there is no such queue")
		got, err := f.all.Receive(t.Context(), dispatch.ReceiveOptions{Max: 1, MaxBytes: 1, Deadline: within(time.Minute)}, func() (*dispatch.Dispatcher, error) {
			if opened++; opened == 2 {
				return nil, refusal
			}
			return f.all.Of(1), nil
		})
		if got != nil || !errors.Is(err, refusal) || opened != 2 {
			t.Errorf("received %+v, %v with %d dispatchers", got, err, opened)
		}
	})
}

// A worker never gets another record in the place of a missing one, whether its records were read ahead or not.
func TestReceiverPassesOverOffsetsWithoutARecord(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := config()
			c.Ordered = ordered
			f := newFake(t, c)
			f.missing = map[format.Offset]bool{0: true, 2: true, 3: true, 5: true}
			f.append("a", "b", "c", "d", "e", "f")
			f.open()
			f.wantReceived(dispatch.ReceiveOptions{Max: 6}, "b#1 e#1")
			time.Sleep(10 * time.Second) // the lease
			f.wantReceived(dispatch.ReceiveOptions{Max: 6, Deadline: within(time.Minute)}, "b#2 e#2")
			f.tasks.Wait()
		})
	}
}
