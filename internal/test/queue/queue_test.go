package queue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/sebprom"
)

func TestQueueHandsEachRecordToOneWorkerUntilItIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		appendTo(t, b, 0, 5)
		one := mustReceive(t, q, 2, 0)
		two := mustReceive(t, q, 10, 0)
		wantHanded(t, one, "[0#1 1#1]")
		wantHanded(t, two, "[2#1 3#1 4#1]")
		wantHanded(t, mustReceive(t, q, 1, time.Second), "[]")
		mustAck(t, q, one[1], two[0], two[2])
		time.Sleep(30 * time.Second)
		wantHanded(t, mustReceive(t, q, 10, time.Second), "[0#2 3#2]")
		wantHanded(t, mustReceive(t, q, 10, time.Second), "[]")
		info, err := q.Describe(t.Context())
		if err != nil || info.Leased != 2 || info.Ready != 0 {
			t.Fatalf("%+v, %v", info, err)
		}
	})
}

func TestDelayedRecordsAreHandedOutWhenTheyAreDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), kit.InVirtualTime(immediate()))
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		appendTo(t, b, 0, 1)
		if _, err := b.Append(t.Context(), "t", values("later", "later"), seb.Delay(time.Minute)); err != nil {
			t.Fatal(err)
		}
		appendTo(t, b, 0, 1)
		wantHanded(t, mustReceive(t, q, 10, 0), "[0#1 3#1]")
		info, err := q.Describe(t.Context())
		if err != nil || info.Delayed != 2 || info.Leased != 2 || info.Ready != 0 {
			t.Fatalf("%+v, %v", info, err)
		}
		mustSet(t, q, seb.QueueUpdate{Lease: ptr(10 * time.Minute)})
		began := time.Now()
		wantHanded(t, mustReceive(t, q, 10, 2*time.Minute), "[0#2 3#2]")
		wantHanded(t, mustReceive(t, q, 10, 2*time.Minute), "[1#1 2#1]")
		if waited := time.Since(began); waited < 59*time.Second || waited > 61*time.Second {
			t.Fatalf("handed out after %v", waited)
		}
	})
}

func TestRecordThatKeepsFailingIsADeadLetterAndRedriven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), kit.InVirtualTime(immediate()))
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(3)})
		appendTo(t, b, 0, 2)
		for n := range 3 {
			ms := mustReceive(t, q, 10, time.Minute)
			wantHanded(t, ms, fmt.Sprintf("[0#%d 1#%d]", n+1, n+1))
			if err := q.Nack(t.Context(), seb.NackOptions{Reason: "no", Delay: ptr(time.Duration(0))}, ms[0].Token); err != nil {
				t.Fatal(err)
			}
			time.Sleep(31 * time.Second)
		}
		wantHanded(t, mustReceive(t, q, 10, time.Minute), "[]")
		dead, _, more, err := q.Dead(t.Context(), seb.DeadOptions{})
		if err != nil || more || len(dead) != 2 || dead[0].Reason != "no" || dead[1].Reason != "its lease ran out" || dead[1].Attempts != 3 {
			t.Fatalf("%+v, %v, %v", dead, more, err)
		}
		if n, err := q.Redrive(t.Context(), seb.RedriveOptions{}); err != nil || n != (seb.Redriven{Records: 2}) {
			t.Fatal(n, err)
		}
		ms := mustReceive(t, q, 10, time.Minute)
		wantHanded(t, ms, "[0#1 1#1]")
		mustAck(t, q, ms...)
		mustAck(t, q, ms...) // again, as if the first answer was lost
		if n, err := q.Redrive(t.Context(), seb.RedriveOptions{}); err != nil || n != (seb.Redriven{}) {
			t.Fatal(n, err)
		}
	})
}

func TestRedrivenRecordHasAllItsAttemptsAndNoneOfItsTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), kit.InVirtualTime(immediate()))
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(2)})
		appendTo(t, b, 0, 1)
		var before []seb.Message
		for n := range 2 {
			ms := mustReceive(t, q, 1, time.Minute)
			wantHanded(t, ms, fmt.Sprintf("[0#%d]", n+1))
			before = append(before, ms...)
		}
		wantHanded(t, mustReceive(t, q, 1, time.Minute), "[]")
		if n, err := q.Redrive(t.Context(), seb.RedriveOptions{}); err != nil || n != (seb.Redriven{Records: 1}) {
			t.Fatal(n, err)
		}
		late := func() {
			for _, m := range before {
				_, extended := q.Extend(t.Context(), time.Hour, m.Token)
				for what, err := range map[string]error{
					"ack": q.Ack(t.Context(), m.Token), "nack": q.Nack(t.Context(), seb.NackOptions{}, m.Token), "extend": extended,
				} {
					if seb.CodeOf(err) != seb.CodeLeaseLost || what == "ack" && !strings.Contains(err.Error(), "before the record was redriven") {
						t.Errorf("%s of attempt %d from before the redrive: %v", what, m.Attempt, err)
					}
				}
			}
		}
		late()
		wantHanded(t, mustReceive(t, q, 1, time.Second), "[0#1]")
		late() // now another worker has the record
		ms := mustReceive(t, q, 1, time.Minute)
		wantHanded(t, ms, "[0#2]")
		mustAck(t, q, ms...)
	})
}

func ptr[T any](v T) *T { return &v }

func TestDeadLetterIsCopiedToTheDeadLetterTopicInTheSameCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), kit.InVirtualTime(immediate()))
		mustCreateTopic(t, b, "t", 1)
		mustCreateTopic(t, b, "dead", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1), DeadLetterTopic: ptr("dead")})
		record := seb.Record{Key: []byte("k"), Value: []byte("v"), Headers: []seb.Header{{Name: "a", Value: []byte("b")}}}
		for range 3 {
			if _, err := b.Append(t.Context(), "t", []seb.Record{record}); err != nil {
				t.Fatal(err)
			}
		}
		ms := mustReceive(t, q, 3, 0)
		synctest.Wait() // a receiver returns a moment before the status shows the commit
		before := b.Status().Applied
		if err := q.Nack(t.Context(), seb.NackOptions{Reason: "no\xff"}, ms[0].Token, ms[0].Token); err != nil {
			t.Fatal(err)
		}
		if after := b.Status().Applied; after != before+1 {
			t.Errorf("%d commits", after-before)
		}
		if f, err := b.Fetch(t.Context(), "dead", 0, seb.Earliest, seb.FetchOptions{}); err != nil || len(f.Records) != 1 {
			t.Fatalf("%+v, %v", f, err)
		}
		mustReceive(t, q, 3, 31*time.Second) // the leases of the other records run out
		f, err := b.Fetch(t.Context(), "dead", 0, seb.Earliest, seb.FetchOptions{Wait: time.Minute})
		if err != nil || len(f.Records) != 3 {
			t.Fatalf("%+v, %v", f, err)
		}
		got := map[string]string{}
		for _, h := range f.Records[0].Headers {
			got[h.Name] = string(h.Value)
		}
		timestamp := ms[0].Timestamp.Format(time.RFC3339Nano)
		want := map[string]string{"a": "b", seb.DeadTopicHeader: "t", seb.DeadPartitionHeader: "0", seb.DeadOffsetHeader: "0", seb.DeadQueueHeader: "work",
			seb.DeadAttemptsHeader: "1", seb.DeadReasonHeader: "no\uFFFD", seb.DeadTimestampHeader: timestamp}
		if fmt.Sprint(got) != fmt.Sprint(want) || string(f.Records[0].Key) != "k" || string(f.Records[0].Value) != "v" {
			t.Errorf("%+v with headers %v, want %v", f.Records[0], got, want)
		}
		dead, _, _, err := q.Dead(t.Context(), seb.DeadOptions{})
		if err != nil || len(dead) != 3 {
			t.Fatalf("%+v, %v", dead, err)
		}
	})
}

func TestMetricsShowQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		b := open(t, objstore.NewMemory(), kit.InVirtualTime(immediate()))
		registry.MustRegister(sebprom.NewCollector(b.Metrics))
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1)})
		appendTo(t, b, 0, 6)
		if _, err := b.Append(t.Context(), "t", values("later", "later"), seb.Delay(time.Hour)); err != nil {
			t.Fatal(err)
		}
		ms := mustReceive(t, q, 4, 0)
		mustAck(t, q, ms[0], ms[1])
		if err := q.Nack(t.Context(), seb.NackOptions{}, ms[2].Token); err != nil {
			t.Fatal(err)
		}
		err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP seb_delayed_appends Appends whose delay is not over; an append counts once for each of its partitions.
# TYPE seb_delayed_appends gauge
seb_delayed_appends 1
# HELP seb_queue_acknowledged_records_total Records that were acknowledged through any broker since this broker last took the queue over.
# TYPE seb_queue_acknowledged_records_total counter
seb_queue_acknowledged_records_total{queue="work",topic="t"} 2
# HELP seb_queue_dead_records Records that are dead letters.
# TYPE seb_queue_dead_records gauge
seb_queue_dead_records{queue="work",topic="t"} 1
# HELP seb_queue_delayed_records Records that may not be handed out yet.
# TYPE seb_queue_delayed_records gauge
seb_queue_delayed_records{queue="work",topic="t"} 2
# HELP seb_queue_held_records Records that wait until a lease has passed, because a lost owner may have handed them out; of queues that this broker owns.
# TYPE seb_queue_held_records gauge
seb_queue_held_records{queue="work",topic="t"} 0
# HELP seb_queue_leased_records Records that are with workers, of queues that this broker owns.
# TYPE seb_queue_leased_records gauge
seb_queue_leased_records{queue="work",topic="t"} 1
# HELP seb_queue_left_records Records that are neither done nor dead letters, including those that are leased, held or delayed.
# TYPE seb_queue_left_records gauge
seb_queue_left_records{queue="work",topic="t"} 5
# HELP seb_queue_received_records_total Records that this broker has handed out since it last took the queue over.
# TYPE seb_queue_received_records_total counter
seb_queue_received_records_total{queue="work",topic="t"} 4
# HELP seb_queues Queues of all topics.
# TYPE seb_queues gauge
seb_queues 1
`), "seb_delayed_appends", "seb_queue_acknowledged_records_total", "seb_queue_dead_records", "seb_queue_delayed_records", "seb_queue_held_records", "seb_queue_leased_records",
			"seb_queue_left_records", "seb_queue_received_records_total", "seb_queues")
		if err != nil {
			t.Error(err)
		}
	})
}

// A record is parked without a copy only if no copy can ever be made.
func TestDeadLetterWaitsForTheRoomThatItsCopyNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		opts := kit.InVirtualTime(immediate())
		b := openOnly(t, memory, opts)
		mustCreateTopic(t, b, "t", 1)
		mustCreateTopic(t, b, "dead", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(1), DeadLetterTopic: ptr("dead")})
		appendTo(t, b, 0, 1)
		ms := mustReceive(t, q, 1, 0)
		kill(t, b)
		opts.StateMemory = 1
		b = openOnly(t, memory, opts)
		q = b.Queue("t", "work")
		wantCode(t, q.Nack(t.Context(), seb.NackOptions{}, ms[0].Token), seb.CodeOverStateBudget)
		if info, err := q.Describe(t.Context()); err != nil || info.Dead != 0 {
			t.Fatalf("%+v, %v", info, err)
		}
		kill(t, b)
		opts.StateMemory = 0
		b = open(t, memory, opts)
		q = b.Queue("t", "work")
		if err := q.Nack(t.Context(), seb.NackOptions{}, ms[0].Token); err != nil {
			t.Fatal(err)
		}
		wantValues(t, b, "dead", "")
	})
}

// If the caller of a list of queues gives up, the list ends; it may take long.
func TestListOfQueuesEndsWithItsCaller(t *testing.T) {
	b := open(t, objstore.NewMemory(), immediate())
	mustCreateTopic(t, b, "t", 1)
	for _, name := range []string{"a", "b", "c"} {
		mustSet(t, b.Queue("t", name), seb.QueueUpdate{})
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var listed []string
	var err error
	for q, e := range b.Queues(ctx, "t", seb.ListOptions{}) {
		leave()
		if err = e; e == nil {
			listed = append(listed, q.Name)
		}
	}
	if len(listed) != 1 || seb.CodeOf(err) != seb.CodeCanceled {
		t.Errorf("listed are %v, %v", listed, err)
	}
}
