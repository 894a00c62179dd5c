package seb_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

func TestAppendedRecordsAreReadBackInOrderAlsoAfterReopening(t *testing.T) {
	store := objstore.NewMemory()
	b := open(t, store, seb.Options{Batching: seb.Immediate()})
	var want []string
	for i := range 20 {
		v := fmt.Sprintf("v%d", i)
		got, err := b.Append(t.Context(), "orders", values(v))
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Ranges) != 1 || got.Ranges[0] != (seb.Range{Offset: seb.Offset(i), Count: 1}) {
			t.Fatalf("append %d went to %+v", i, got.Ranges)
		}
		want = append(want, v)
	}
	check := func(b *seb.Broker) {
		t.Helper()
		if got := readAll(t, b, "orders", 0); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("read %v, want %v", got, want)
		}
	}
	check(b)
	check(open(t, store, seb.Options{})) // while the first broker is open
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	check(open(t, store, seb.Options{}))
}

// A broker that knows a part of the log reads up to the end that it knows. Then it must sync, since
// other brokers may have appended more.
func TestReadUpToTheKnownEndFindsWhatOthersAppended(t *testing.T) {
	store := objstore.NewMemory()
	a := open(t, store, seb.Options{Batching: seb.Immediate()})
	b := open(t, store, seb.Options{Batching: seb.Immediate(), StaleMax: time.Nanosecond})
	for i := range 3 {
		if _, err := a.Append(t.Context(), "t", values("v")); err != nil {
			t.Fatal(err)
		}
		f, err := b.Fetch(t.Context(), "t", 0, seb.Earliest, seb.FetchOptions{})
		if err != nil || len(f.Records) != i+1 || f.End != seb.Offset(i+1) {
			t.Fatalf("after %d appends: %d records, end %d, %v", i+1, len(f.Records), f.End, err)
		}
	}
}

// The state of a closed broker is not up to date.
func TestClosedBrokerDescribesNoTopics(t *testing.T) {
	b := open(t, objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	if _, err := b.Append(t.Context(), "orders", values("one")); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if topics, err := seb.Collect(b.Topics(t.Context(), seb.ListOptions{})); seb.CodeOf(err) != seb.CodeBrokerClosed {
		t.Errorf("topics are %+v, %v", topics, err)
	}
	if topic, err := b.Topic(t.Context(), "orders"); seb.CodeOf(err) != seb.CodeBrokerClosed {
		t.Errorf("topic is %+v, %v", topic, err)
	}
}

func TestTwoBrokersOnOneStore(t *testing.T) {
	store := objstore.NewMemory()
	brokers := []*seb.Broker{
		open(t, store, seb.Options{Batching: seb.Immediate(), StaleMax: time.Nanosecond}),
		open(t, store, seb.Options{Batching: seb.Immediate(), StaleMax: time.Nanosecond}),
	}
	const callers, each = 4, 50
	var (
		wg sync.WaitGroup
		mu sync.Mutex
		at = map[seb.Offset]string{}
	)
	for i, b := range brokers {
		for c := range callers {
			wg.Go(func() {
				last := seb.Offset(-1)
				for n := range each {
					v := fmt.Sprintf("%d.%d.%d", i, c, n)
					got, err := b.Append(context.Background(), "t", values(v))
					if err != nil {
						t.Error(err)
						return
					}
					o := got.Ranges[0].Offset
					if o <= last {
						t.Errorf("%s at %d after %d", v, o, last)
					}
					last = o
					mu.Lock()
					at[o] = v
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	for _, b := range brokers {
		got := readAll(t, b, "t", 0)
		if len(got) != 2*callers*each {
			t.Fatalf("read %d records of %d", len(got), 2*callers*each)
		}
		for o, v := range got {
			if at[seb.Offset(o)] != v {
				t.Fatalf("offset %d holds %q, acknowledged was %q", o, v, at[seb.Offset(o)])
			}
		}
	}
}
