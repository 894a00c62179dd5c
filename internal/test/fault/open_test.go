package fault_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// S3 may answer 409 to one of two creates that race: nothing was decided, and the client should try
// again. Other stores throttle the writers of one key.
func TestProbeAsksAgainWhereARacerGotNoAnswer(t *testing.T) {
	for name, fault := range map[string]storetest.Fault{"refused": storetest.Fail, "reply lost": storetest.LoseReply} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				faulty.On(objstore.VerbCreate, format.ProbePrefix, everyOther(fault))
				open(t, faulty, immediate())
				if left := keys(t, memory, format.ProbePrefix); len(left) > 0 {
					t.Errorf("%v are left", left)
				}
			})
		})
	}
}

// A proxy that repeats a create answers "exists" to the winner. An answer may lack its date. Answers
// may be damaged on the way. None of these shows that the store breaks its promise.
func TestProbeAsksAgainWhereAnAnswerProvesNothing(t *testing.T) {
	twice := func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
		if _, err := next(ctx, r); err != nil {
			return storetest.Answer{}, err
		}
		return next(ctx, r)
	}
	const racers = 8
	faults := map[string]struct {
		verb  objstore.Verb
		fault storetest.Fault
		first int // how many requests get the fault
	}{
		"own success answered as exists": {objstore.VerbCreate, twice, racers},
		"no date":                        {objstore.VerbGet, storetest.NoTime, 1},
		"bent on the way":                {objstore.VerbGet, storetest.FlipByte(0), 4},
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, faulty := newFaulty()
				faulty.On(f.verb, format.ProbePrefix, storetest.Times(f.first, f.fault))
				open(t, faulty, immediate())
			})
		})
		t.Run(name+", always", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, faulty := newFaulty()
				faulty.On(f.verb, format.ProbePrefix, f.fault)
				_, err := seb.Open(t.Context(), faulty, immediate())
				wantCode(t, err, seb.CodeStoreUnusable)
			})
		})
	}
}

// everyOther applies fault to every other request.
func everyOther(fault storetest.Fault) storetest.Fault {
	var n atomic.Int64
	return func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
		if n.Add(1)%2 == 0 {
			return fault(ctx, r, next)
		}
		return next(ctx, r)
	}
}

// A slow first request does not change how long the broker waits for a Get.
func TestSlowFirstCreateDoesNotSlowTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		b := open(t, faulty, immediate())
		heal := faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Times(1, storetest.Delay(14*time.Second)))
		mustCreateTopic(t, b, "t", 1)
		heal()
		faulty.On("", "", storetest.Delay(5*time.Millisecond))
		begun := time.Now()
		for range 200 {
			mustAppend(t, b, "t", "v")
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("200 commits of 5 ms each took %v", took)
		}
	})
}

// No batch can hold a record of 2 GiB, so no limit may allow such a record.
func TestRequestLimitBeyondTheFormatIsRefused(t *testing.T) {
	opts := immediate()
	opts.Memory = 64 << 30
	opts.Limits = seb.Limits{RequestBytes: 4 << 30, RecordBytes: 3 << 30}
	b, err := seb.Open(t.Context(), objstore.NewMemory(), opts)
	if err == nil {
		kill(t, b)
	}
	wantCode(t, err, seb.CodeInvalidRequest)
}

// The state can hold only so many keys, consumers and queues. A limit above these numbers would never be
// reached.
func TestLimitBeyondTheStateIsRefused(t *testing.T) {
	for i, limits := range []seb.Limits{{Keys: 10_001}, {Consumers: 1<<20 + 1}, {Queues: 1<<16 + 1}} {
		opts := immediate()
		opts.Limits = limits
		b, err := seb.Open(t.Context(), objstore.NewMemory(), opts)
		if err == nil {
			kill(t, b)
		}
		if wantCode(t, err, seb.CodeInvalidRequest); err != nil && !strings.Contains(err.Error(), "it must be at most") {
			t.Errorf("limit %d: %v", i, err)
		}
	}
}

// A start copes with one bad answer, like a commit.
func TestOpenOutlivesOneBadAnswer(t *testing.T) {
	for _, verb := range []objstore.Verb{objstore.VerbGet, objstore.VerbList, objstore.VerbCreate} {
		for _, fill := range []string{"empty", "with a log"} {
			t.Run(string(verb)+" "+fill, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					memory, faulty := newFaulty()
					if fill != "empty" {
						b := openOnly(t, memory, immediate())
						mustAppend(t, b, "t", "v")
						kill(t, b)
					}
					faulty.On(verb, "", storetest.Times(1, storetest.Fail))
					b, err := seb.Open(t.Context(), faulty, immediate())
					if err != nil {
						t.Fatal(err)
					}
					if err := b.Close(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// Of several reads at the same time, the store may execute the first long after the last, for example
// if the machine sleeps meanwhile. That does not mean that the store's clock stepped back.
func TestReadsExecutedOutOfOrderAreNoClockThatStepsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		opts := immediate()
		opts.Cluster = seb.ClusterOptions{DeleteDelay: 40 * time.Second, Margin: 10 * time.Second}
		b := openOnly(t, memory, opts)
		mustAppend(t, b, "t", "a", "b")
		kill(t, b)
		faulty.On(objstore.VerbGet, format.LogKey(1), storetest.Times(1, storetest.Delay(12*time.Second)))
		wantValues(t, open(t, faulty, opts), "t", "a", "b")
	})
}

// A start that ends before it has read damaged bytes often enough must not call the log damaged.
func TestStartOnABadNetworkBlamesTheNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		mustAppend(t, open(t, faulty, immediate()), "t", "v")
		faulty.On(objstore.VerbGet, format.LogPrefix, storetest.Times(2, storetest.Fail))
		faulty.On(objstore.VerbGet, format.LogPrefix, storetest.FlipByte(60))
		_, err := seb.Open(t.Context(), faulty, immediate())
		wantCode(t, err, seb.CodeStoreUnavailable)
	})
}

// A store that begins each page of a List at the start would be asked for pages for ever.
func TestListThatDoesNotGetOnIsRefused(t *testing.T) {
	for name, lie := range map[string]storetest.Fault{"never ends": storetest.EndlessList, "in no order": storetest.ShuffleList(newRand(1))} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				opts := immediate()
				opts.CheckpointCommits = 2
				b := openOnly(t, memory, opts)
				for _, v := range numbered("v", 8) {
					mustAppend(t, b, "t", v)
					synctest.Wait()
				}
				kill(t, b)
				faulty.On(objstore.VerbList, "", lie)
				faulty.On(objstore.VerbList, "", storetest.Delay(5*time.Millisecond))
				begun := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				b, err := seb.Open(ctx, faulty, opts)
				if err == nil {
					kill(t, b)
				}
				wantCode(t, err, seb.CodeStoreUnavailable)
				wantText(t, err, "list "+format.CheckpointPrefix, "order")
				if took := time.Since(begun); took > 10*time.Second {
					t.Errorf("the start gave up after %v", took)
				}
			})
		})
	}
}
