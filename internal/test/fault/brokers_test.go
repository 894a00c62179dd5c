package fault_test

import (
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

// TestThreeBrokersAppendAndReadAtOnce runs readers while writers append. Each reader must see the
// whole log in order, and each record once.
func TestThreeBrokersAppendAndReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const brokers, callers, each = 3, 3, 25
		store := storetest.Slow(objstore.NewMemory(), 5*time.Millisecond)
		var bs []*seb.Broker
		for range brokers {
			bs = append(bs, open(t, store, immediate()))
		}
		mustCreateTopic(t, bs[0], "t", 1)
		var wg sync.WaitGroup
		seen := make([][]string, brokers)
		for i, b := range bs {
			wg.Go(func() {
				for r, err := range b.Follow(t.Context(), "t", 0, seb.Earliest) {
					if err != nil {
						t.Errorf("broker %d follows: %v", i, err)
						return
					}
					if int(r.Offset) != len(seen[i]) {
						t.Errorf("broker %d reads offset %d where %d should be", i, r.Offset, len(seen[i]))
					}
					seen[i] = append(seen[i], string(r.Value))
					if len(seen[i]) == brokers*callers*each {
						return
					}
				}
			})
			for c := range callers {
				wg.Go(func() {
					for n := range each {
						if _, err := b.Append(t.Context(), "t", values(fmt.Sprintf("%d.%d %d", i, c, n))); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
		}
		wg.Wait()
		next := map[string]int{}
		for at, v := range seen[0] {
			var who string
			var n int
			if _, err := fmt.Sscanf(v, "%s %d", &who, &n); err != nil || n != next[who] {
				t.Errorf("offset %d: %s comes after its caller's record %d", at, v, next[who]-1)
			}
			next[who]++
			for i := range seen {
				if seen[i][at] != v {
					t.Fatalf("offset %d is %q to one reader and %q to another", at, v, seen[i][at])
				}
			}
		}
	})
}

func TestTopicCreatedThroughTwoBrokersAtOnce(t *testing.T) {
	for _, partitions := range [][2]int32{{3, 3}, {3, 4}} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := objstore.NewMemory()
				var (
					wg      sync.WaitGroup
					created [2]bool
					errs    [2]error
					topics  [2]seb.Topic
				)
				for i := range 2 {
					b := open(t, storetest.Slow(memory, 5*time.Millisecond), immediate())
					wg.Go(func() {
						topics[i], created[i], errs[i] = b.CreateTopic(t.Context(), "t", seb.TopicOptions{Partitions: partitions[i]})
					})
				}
				wg.Wait()
				if created[0] == created[1] {
					t.Errorf("created: %v", created)
				}
				winner := 0
				if created[1] {
					winner = 1
				}
				if errs[winner] != nil {
					t.Error(errs[winner])
				}
				if loser := 1 - winner; partitions[0] == partitions[1] {
					if errs[loser] != nil || topics[0].ID != topics[1].ID {
						t.Errorf("topics %+v, errors %v", topics, errs)
					}
				} else {
					wantCode(t, errs[loser], seb.CodeTopicExists)
					wantOutcome(t, errs[loser], seb.NotCommitted)
				}
			})
		})
	}
}

// If a slot is lost to another broker, all requests of the commit are checked again.
func TestRefusalIsDecidedAgainAfterALostRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b := open(t, faulty, immediate())
		other := open(t, memory, immediate())
		release := make(chan struct{})
		faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Hold(release))
		var (
			wg   sync.WaitGroup
			errs [3]error
		)
		create := func(i int, name string, n int32) {
			wg.Go(func() { _, _, errs[i] = b.CreateTopic(t.Context(), name, seb.TopicOptions{Partitions: n}) })
			synctest.Wait()
		}
		create(0, "opener", 1) // its PUT is held while the next commit collects requests
		create(1, "t", 1)
		create(2, "t", 2)
		release <- struct{}{}
		synctest.Wait() // the commit of both requests was sent, and leaves out the refused one
		mustCreateTopic(t, other, "t", 2)
		close(release)
		wg.Wait()
		if errs[0] != nil {
			t.Error(errs[0])
		}
		wantCode(t, errs[1], seb.CodeTopicExists)
		if errs[2] != nil {
			t.Errorf("creating a topic that exists with the same config: %v", errs[2])
		}
	})
}

func TestPartitionAddedThroughAnotherBrokerIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b, other := open(t, memory, immediate()), open(t, memory, immediate())
		mustCreateTopic(t, b, "t", 1)
		if _, err := other.UpdateTopic(t.Context(), "t", seb.TopicUpdate{Partitions: new(int32(2))}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Append(t.Context(), "t", values("v"), seb.ToPartition(1)); err != nil {
			t.Errorf("append to a partition that another broker added: %v", err)
		}
		if _, err := b.Fetch(t.Context(), "t", 1, seb.Earliest, seb.FetchOptions{}); err != nil {
			t.Errorf("fetch from a partition that another broker added: %v", err)
		}
		_, err := b.Append(t.Context(), "t", values("v"), seb.ToPartition(2))
		wantCode(t, err, seb.CodePartitionNotFound)
	})
}

// A reader that names a topic by its tag gets no records of another topic with that name, even through
// a broker that has not learned of the last deletion or creation.
func TestFetchKeepsToTheTopicThatIsMeant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b, other := open(t, memory, immediate()), open(t, memory, immediate())
		mustAppend(t, b, "t", "old", "old")
		fetch := func(b *seb.Broker, from seb.Position, tag string) (seb.Fetched, error) {
			return b.Fetch(t.Context(), "t", 0, from, seb.FetchOptions{TopicTag: tag})
		}
		first, err := fetch(b, seb.Earliest, "")
		if err != nil || first.TopicTag == "" {
			t.Fatalf("%+v, %v", first, err)
		}
		if f, err := fetch(other, seb.At(1), first.TopicTag); err != nil || len(f.Records) != 1 || f.TopicTag != first.TopicTag {
			t.Fatalf("%+v, %v", f, err)
		}
		if err := other.DeleteTopic(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, other, "t", "new", "new", "new")
		for _, from := range []seb.Position{seb.Earliest, seb.At(1), seb.At(2), seb.At(9), seb.Latest} {
			_, err := fetch(other, from, first.TopicTag)
			if e := wantError(t, err, seb.CodeTopicRecreated); e.Outcome != "" {
				t.Errorf("a read has outcome %q", e.Outcome)
			}
		}
		second, err := fetch(other, seb.Earliest, "")
		if err != nil || second.TopicTag == first.TopicTag {
			t.Fatalf("%+v, %v", second, err)
		}
		f, err := fetch(b, seb.At(0), second.TopicTag) // b knows only the first topic
		if err != nil || len(f.Records) != 3 || string(f.Records[0].Value) != "new" {
			t.Errorf("%+v, %v", f, err)
		}
	})
}

func TestTopicRecreatedThroughAnotherBrokerIsRead(t *testing.T) {
	reads := map[string]func(*testing.T, *seb.Broker) ([]seb.Record, error){
		"fetch": func(t *testing.T, b *seb.Broker) ([]seb.Record, error) {
			f, err := b.Fetch(t.Context(), "t", 0, seb.Earliest, seb.FetchOptions{})
			return f.Records, err
		},
		"read": func(t *testing.T, b *seb.Broker) (rs []seb.Record, err error) {
			for r, err := range b.Read(t.Context(), "t", 0, seb.Earliest) {
				if err != nil {
					return nil, err
				}
				rs = append(rs, r)
			}
			return rs, nil
		},
	}
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := objstore.NewMemory()
				b, other := open(t, memory, immediate()), open(t, memory, immediate())
				mustCreateTopic(t, b, "t", 1)
				if err := other.DeleteTopic(t.Context(), "t"); err != nil {
					t.Fatal(err)
				}
				mustAppend(t, other, "t", "new")
				time.Sleep(time.Minute)
				rs, err := read(t, b)
				if err != nil || len(rs) != 1 || string(rs[0].Value) != "new" {
					t.Errorf("read %v, %v", rs, err)
				}
			})
		})
	}
}
