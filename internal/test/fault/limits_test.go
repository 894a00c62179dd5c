package fault_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestEachLimitNamesItself(t *testing.T) {
	opts := seb.Options{Limits: seb.Limits{RecordBytes: 100, RequestBytes: 250, RecordHeaders: 2, Topics: 2, Partitions: 3}}
	b := open(t, objstore.NewMemory(), opts)
	mustCreateTopic(t, b, "t", 1)
	appending := func(rs ...seb.Record) func() error {
		return func() error { _, err := b.Append(t.Context(), "t", rs); return err }
	}
	hundred := strings.Repeat("x", 100)
	tests := map[string]struct {
		do    func() error
		code  seb.Code
		limit int64
	}{
		"record by value":  {appending(seb.Record{Value: []byte(hundred + "x")}), seb.CodeRecordTooLarge, 100},
		"record by key":    {appending(seb.Record{Key: []byte(hundred), Value: []byte("x")}), seb.CodeRecordTooLarge, 100},
		"record by header": {appending(seb.Record{Headers: []seb.Header{{Name: "n", Value: []byte(hundred)}}}), seb.CodeRecordTooLarge, 100},
		"request":          {appending(values(hundred, hundred, hundred)...), seb.CodeRequestTooLarge, 250},
		"headers":          {appending(seb.Record{Headers: make([]seb.Header, 3)}), seb.CodeTooManyHeaders, 2},
		"partitions of a new topic": {func() error {
			_, _, err := b.CreateTopic(t.Context(), "wide", seb.TopicOptions{Partitions: 4})
			return err
		}, seb.CodeTooManyPartitions, 3},
		"partitions added": {func() error {
			_, err := b.UpdateTopic(t.Context(), "t", seb.TopicUpdate{Partitions: new(int32(4))})
			return err
		}, seb.CodeTooManyPartitions, 3},
	}
	for name, test := range tests {
		err := test.do()
		e := wantError(t, err, test.code)
		if e.Limit != test.limit || !strings.Contains(e.Error(), fmt.Sprint(test.limit)) {
			t.Errorf("%s: %v names the limit %d, want %d", name, e, e.Limit, test.limit)
		}
		wantOutcome(t, err, seb.NotCommitted)
	}
	if _, err := b.Append(t.Context(), "t", values(hundred, hundred)); err != nil {
		t.Errorf("a request within all limits: %v", err)
	}
}

// A record that may be appended can be read, and copied to a dead-letter topic.
func TestMostHeadersThatARecordMayEverHave(t *testing.T) {
	const most = 32_768
	opts := immediate()
	opts.Limits.RecordHeaders = most + 1
	if _, err := seb.Open(t.Context(), objstore.NewMemory(), opts); seb.CodeOf(err) != seb.CodeInvalidRequest || !strings.Contains(err.Error(), fmt.Sprint(most)) {
		t.Errorf("%d headers: %v", most+1, err)
	}
	opts.Limits.RecordHeaders = most
	b := open(t, objstore.NewMemory(), opts)
	mustCreateTopic(t, b, "t", 1)
	mustCreateTopic(t, b, "dead", 1)
	q := b.Queue("t", "work")
	mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1), DeadLetterTopic: ptr("dead")})
	if _, err := b.Append(t.Context(), "t", []seb.Record{{Headers: slices.Repeat([]seb.Header{{Name: "a"}}, most)}}); err != nil {
		t.Fatal(err)
	}
	if err := q.Nack(t.Context(), seb.NackOptions{}, tokens(mustReceive(t, q, 1, 0))...); err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]int{"t": most, "dead": most + 7} {
		f, err := b.Fetch(t.Context(), topic, 0, seb.Earliest, seb.FetchOptions{})
		if err != nil || len(f.Records) != 1 || len(f.Records[0].Headers) != want {
			t.Errorf("%s: %d records, %v", topic, len(f.Records), err)
		}
	}
}

func TestTopicLimitHoldsWithinOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		opts := immediate()
		opts.Limits.Topics = 3
		b := open(t, faulty, opts)
		release := make(chan struct{})
		faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Hold(release))
		var wg sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			wg.Go(func() {
				_, _, errs[i] = b.CreateTopic(t.Context(), fmt.Sprintf("t%d", i), seb.TopicOptions{})
			})
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		created := 0
		for _, err := range errs {
			if err == nil {
				created++
				continue
			}
			if e := wantError(t, err, seb.CodeTooManyTopics); e.Limit != 3 {
				t.Errorf("the error names the limit %d, want 3", e.Limit)
			}
		}
		if created != 3 {
			t.Errorf("%d topics were created, the limit is 3", created)
		}
	})
}

// wantReckoning fails unless err is a refusal for lack of memory for the state whose figures explain it: what the
// state takes and what the request needs are together more than the limit.
func wantReckoning(t *testing.T, err error) {
	t.Helper()
	e := wantError(t, err, seb.CodeOverStateBudget)
	var used, most, need, limit int64
	figures := regexp.MustCompile(`\d+`).FindAllString(e.Detail, -1)
	if _, err := fmt.Sscan(strings.Join(figures, " "), &used, &most, &need, &limit); err != nil || used > limit || need < 1 || used+need <= limit || limit > most {
		t.Errorf("%q does not explain the refusal: %v", e.Detail, err)
	}
}

func TestOverStateBudgetRefusesAppendsButNotDeletes(t *testing.T) {
	b := open(t, objstore.NewMemory(), seb.Options{Batching: seb.Immediate(), StateMemory: 20_000})
	mustCreateTopic(t, b, "t", 1)
	var err error
	for range 10_000 {
		if _, err = b.Append(t.Context(), "t", values("v")); err != nil {
			break
		}
	}
	if e := wantError(t, err, seb.CodeOverStateBudget); e.Limit != 20_000 || e.Hint == "" {
		t.Errorf("%+v names no limit, or does not say what to do", e)
	}
	wantOutcome(t, err, seb.NotCommitted)
	wantReckoning(t, err)
	_, _, err = b.CreateTopic(t.Context(), "more", seb.TopicOptions{Partitions: 100})
	wantReckoning(t, err)
	if _, err := b.Fetch(t.Context(), "t", 0, seb.Earliest, seb.FetchOptions{}); err != nil {
		t.Errorf("read while the state is full: %v", err)
	}
	if err := b.DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatalf("delete a topic, as the hint says: %v", err)
	}
	if _, err := b.Append(t.Context(), "t", values("v")); err != nil {
		t.Errorf("append after the topic was deleted: %v", err)
	}
}

func TestMoreAppendsThanMemoryAreAllAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := immediate()
		opts.Memory = 8 << 20
		b := open(t, storetest.Slow(objstore.NewMemory(), 20*time.Millisecond), opts)
		mustCreateTopic(t, b, "t", 1)
		const callers = 100
		value := []byte(large("v", 900<<10))
		var (
			wg       sync.WaitGroup
			mu       sync.Mutex
			acked    int
			overfull int
		)
		for i := range callers {
			wg.Go(func() {
				ctx := t.Context()
				if i%10 == 9 { // some callers give up while they wait for memory
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Duration(i)*time.Millisecond)
					defer cancel()
				}
				_, err := b.Append(ctx, "t", []seb.Record{{Value: value}})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					acked++
				case seb.CodeOf(err) == seb.CodeOverMemoryBudget || i%10 == 9:
					overfull++
				default:
					t.Errorf("caller %d: %v", i, err)
				}
			})
		}
		synctest.Wait()
		if used := kit.MemoryInUse(b); used > opts.Memory {
			t.Errorf("%d bytes in use, the budget is %d", used, opts.Memory)
		}
		wg.Wait()
		synctest.Wait()
		if used := kit.MemoryInUse(b); used != 0 {
			t.Errorf("%d bytes are still taken", used)
		}
		topic, err := b.Topic(t.Context(), "t")
		if err != nil || int(topic.Partitions[0].End) < acked || acked+overfull != callers || acked < callers/2 {
			t.Errorf("%d of %d acknowledged, %d refused, end is %d, %v", acked, callers, overfull, topic.Partitions[0].End, err)
		}
	})
}

func TestAdaptersThatHoldAllTheirMemoryDoNotStopAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := immediate()
		opts.Memory = 8 << 20
		b := open(t, objstore.NewMemory(), opts)
		mustCreateTopic(t, b, "t", 1)
		release, err := b.Reserve(t.Context(), opts.Memory/2)
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Reserve(t.Context(), 1)
		wantCode(t, err, seb.CodeOverMemoryBudget)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = b.Reserve(ctx, 1)
		wantCode(t, err, seb.CodeCanceled)
		_, err = b.Reserve(t.Context(), opts.Memory)
		wantCode(t, err, seb.CodeOverMemoryBudget)

		for i := range 20 {
			mustAppend(t, b, "t", large(fmt.Sprint(i), 1<<20-100))
		}
		waiting := make(chan error, 1)
		go func() {
			again, err := b.Reserve(t.Context(), 1<<20)
			if err == nil {
				again()
			}
			waiting <- err
		}()
		synctest.Wait()
		release()
		release() // only the first call counts
		if err := <-waiting; err != nil {
			t.Errorf("the caller that waited for memory got %v", err)
		}
		if used := kit.MemoryInUse(b); used != 0 {
			t.Errorf("%d bytes are still taken", used)
		}
	})
}

func TestLargestRecordAndRequest(t *testing.T) {
	memory := objstore.NewMemory()
	b := open(t, memory, seb.Options{Batching: seb.Immediate()})
	limits := b.Limits()
	record := large("record", limits.RecordBytes+6)[:limits.RecordBytes]
	mustAppend(t, b, "record", record)
	var request []string
	for i := range limits.RequestBytes / (1 << 20) {
		request = append(request, large(fmt.Sprintf("%02d", i), 1<<20+6)[:1<<20])
	}
	a, err := b.Append(t.Context(), "request", values(request...))
	if err != nil || a.Count != len(request) {
		t.Fatalf("%+v, %v", a, err)
	}
	for _, b := range []*seb.Broker{b, open(t, memory, seb.Options{})} {
		wantValues(t, b, "record", record)
		wantValues(t, b, "request", request...)
	}
}

func TestThousandsOfTopicsInOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		opts := kit.InVirtualTime(seb.Options{Batching: seb.Timed(time.Second, 64<<20)})
		b := open(t, faulty, opts)
		const topics = 3000
		var wg sync.WaitGroup
		for i := range topics {
			wg.Go(func() {
				if _, _, err := b.CreateTopic(t.Context(), fmt.Sprintf("t%d", i), seb.TopicOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		before := len(keys(t, memory, format.LogPrefix))
		for i := range topics {
			wg.Go(func() {
				if _, err := b.Append(t.Context(), fmt.Sprintf("t%d", i), values("only")); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := len(keys(t, memory, format.LogPrefix)) - before; n != 1 {
			t.Errorf("%d commits for one record in each of %d topics, want 1", n, topics)
		}
		again := open(t, memory, immediate())
		for i := range topics {
			wantValues(t, again, fmt.Sprintf("t%d", i), "only")
		}
	})
}

func TestPartitionIsChosenByKeyElseInTurn(t *testing.T) {
	const partitions = 7
	b := open(t, objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	mustCreateTopic(t, b, "t", partitions)
	var rs []seb.Record
	want := map[string]int32{}
	for i := range 100 {
		key := fmt.Sprintf("key %d", i)
		rs = append(rs, seb.Record{Key: []byte(key), Value: []byte(key)})
		want[key] = record.PartitionForKey([]byte(key), partitions)
	}
	if _, err := b.Append(t.Context(), "t", rs); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for p := range int32(partitions) {
		for r, err := range b.Read(t.Context(), "t", p, seb.Earliest) {
			if err != nil {
				t.Fatal(err)
			}
			seen++
			if want[string(r.Key)] != p || string(r.Value) != string(r.Key) || r.Partition != p {
				t.Errorf("%q is in partition %d, want %d", r.Key, p, want[string(r.Key)])
			}
		}
	}
	if seen != len(rs) {
		t.Errorf("%d records in all partitions, want %d", seen, len(rs))
	}
	turns := map[int32]int{}
	for range 3 * partitions {
		a, err := b.Append(t.Context(), "t", values("a", "b"))
		if err != nil || len(a.Ranges) != 1 || a.Ranges[0].Count != 2 {
			t.Fatalf("records without keys stay together: %+v, %v", a, err)
		}
		turns[a.Ranges[0].Partition]++
	}
	for p := range int32(partitions) {
		if turns[p] != 3 {
			t.Errorf("partition %d had %d turns of %d, want 3", p, turns[p], 3*partitions)
		}
	}
}
