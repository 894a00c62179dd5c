package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/httpapi"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
)

// serve serves the broker's HTTP API on a loopback port, and returns its URL.
func serve(t testing.TB, b *seb.Broker) string {
	t.Helper()
	h := httpapi.New(b, httpapi.Options{})
	ts := httptest.NewUnstartedServer(nil)
	ts.Config = httpapi.NewServer(h, nil)
	ts.Start()
	t.Cleanup(ts.Close)
	return ts.URL
}

func newClient(t testing.TB, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func open(t testing.TB) *seb.Broker { return kit.Open(t, objstore.NewMemory(), kit.Immediate()) }

// A program that uses an API gets the same results from a broker in its process as from one behind HTTP.
func TestEmbeddedAndRemoteDoTheSame(t *testing.T) {
	embedded := transcript(t, client.Embedded(open(t)))
	remote := transcript(t, newClient(t, client.Options{Servers: []string{serve(t, open(t))}}))
	if diff := cmp.Diff(embedded, remote); diff != "" {
		t.Errorf("-embedded +remote:\n%s", diff)
	}
	if len(embedded) < 80 {
		t.Errorf("only %d steps: %v", len(embedded), embedded)
	}
}

// steps records what the methods of an API return.
type steps struct {
	t     *testing.T
	lines []string
}

func (s *steps) add(what string, v any, err error) {
	s.lines = append(s.lines, fmt.Sprintf("%s: %+v; %s", what, v, describe(err)))
}

// describe returns what programs can see of an error, without its texts.
func describe(err error) string {
	var tokens *seb.TokensError
	if errors.As(err, &tokens) {
		var each []string
		for _, err := range tokens.Errors {
			each = append(each, describe(err))
		}
		return "[" + strings.Join(each, ", ") + "]"
	}
	var e *seb.Error
	if !errors.As(err, &e) {
		return fmt.Sprint(err)
	}
	return fmt.Sprintf("%s %s part %q limit %d start %d end %d retry %t", e.Code, e.Outcome, e.Part, e.Limit, e.Start, e.End, e.RetryAfter > 0)
}

// transcript uses every method of api on an empty log.
func transcript(t *testing.T, api client.API) []string {
	t.Helper()
	s := &steps{t: t}
	ctx := t.Context()
	s.topics(ctx, api)
	s.records(ctx, api)
	s.followers(ctx, api)
	s.consumers(ctx, api)
	s.queues(ctx, api)
	s.pushes(ctx, api)
	s.commits(ctx, api)
	s.conditions(ctx, api)
	s.keys(ctx, api)
	s.add("delete topic", nil, api.DeleteTopic(ctx, "orders"))
	s.add("delete topic again", nil, api.DeleteTopic(ctx, "orders"))
	return s.lines
}

func topic(x seb.Topic) string {
	created := time.Since(x.Created) < time.Minute
	for i := range x.Partitions {
		x.Partitions[i].LastTimestamp = time.Time{} // records without a timestamp get the time of their append
	}
	return fmt.Sprintf("%d %s %t %+v %+v", x.ID, x.Name, created, x.Config, x.Partitions)
}

func (s *steps) topics(ctx context.Context, api client.API) {
	x, created, err := api.CreateTopic(ctx, "orders", seb.TopicOptions{Partitions: 2, Config: seb.TopicConfig{Retention: time.Hour}})
	s.add("create", topic(x)+fmt.Sprint(created), err)
	x, created, err = api.CreateTopic(ctx, "orders", seb.TopicOptions{Partitions: 2})
	s.add("create again", topic(x)+fmt.Sprint(created), err)
	_, _, err = api.CreateTopic(ctx, "orders", seb.TopicOptions{Partitions: 3})
	s.add("create another", nil, err)
	_, _, err = api.CreateTopic(ctx, "no/name", seb.TopicOptions{})
	s.add("bad name", nil, err)
	_, err = api.Topic(ctx, "..")
	s.add("dots", nil, err)
	_, err = api.Topic(ctx, "nothing")
	s.add("no topic", nil, err)
	x, err = api.UpdateTopic(ctx, "orders", seb.TopicUpdate{Partitions: new(int32(3)), RetentionBytes: new(int64(1 << 20))})
	s.add("update", topic(x), err)
	_, err = api.UpdateTopic(ctx, "orders", seb.TopicUpdate{Partitions: new(int32(1))})
	s.add("shrink", nil, err)
	for i := range 3 {
		_, _, err := api.CreateTopic(ctx, fmt.Sprintf("t%d", i), seb.TopicOptions{})
		s.add("create more", nil, err)
	}
	for x, err := range api.Topics(ctx, seb.ListOptions{After: "orders", May: func(name string) bool { return name != "t1" }}) {
		s.add("list", topic(x), err)
	}
}

func record(r seb.Record) string {
	committed := time.Since(r.LogTime) < time.Minute && r.LogTime.UnixNano()%1000 == 0
	return fmt.Sprintf("%d/%d %t %d %q %t %q %t %q", r.Partition, r.Offset, committed, r.Timestamp.UnixMilli(), r.Key, r.Key == nil, r.Value, r.Value == nil, r.Headers)
}

func (s *steps) addRecords(what string, rs []seb.Record, err error) {
	list := make([]string, len(rs))
	for i, r := range rs {
		list[i] = record(r)
	}
	s.add(what, list, err)
}

// samples are records with everything that a record can have.
func samples() []seb.Record {
	at := time.UnixMilli(1_800_000_000_123).UTC()
	return []seb.Record{
		{Value: []byte("plain <&>\u2028"), Timestamp: at},
		{Key: []byte("k"), Value: []byte{0, 0xff}, Timestamp: at},
		{Key: []byte{}, Value: nil, Timestamp: at},
		{Key: []byte{0xfe}, Timestamp: at, Headers: []seb.Header{{Name: "a", Value: []byte("2")}, {Name: "b", Value: []byte("3")}, {Name: "b", Value: []byte("1")}}},
		{Timestamp: at, Headers: []seb.Header{{Name: "y", Value: []byte{0xff}}, {Name: "z", Value: []byte{0xfe}}}},
	}
}

func (s *steps) records(ctx context.Context, api client.API) {
	a, err := api.Append(ctx, "orders", samples(), seb.ToPartition(1))
	s.add("append", a, err)
	a, err = api.Append(ctx, "orders", samples(), seb.ToPartitions([]int32{0, 1, 2, 2, 0}))
	s.add("append to partitions", a, err)
	_, err = api.Append(ctx, "orders", samples(), seb.ToPartitions([]int32{0}))
	s.add("too few partitions", nil, err)
	_, err = api.Append(ctx, "orders", samples(), seb.ToPartition(7))
	s.add("no partition", nil, err)
	_, err = api.Append(ctx, "orders", kit.Values("v"), seb.ToPartition(-3))
	s.add("negative partition", nil, err)
	_, err = api.Append(ctx, "orders", kit.Values("v"), seb.ToPartitions([]int32{-5}))
	s.add("negative partition of a record", nil, err)
	_, err = api.Commit(ctx, seb.Commit{Appends: []seb.CommitAppend{{Topic: "orders", Records: kit.Values("v"), Options: []seb.AppendOption{seb.ToPartition(-3)}}}})
	s.add("negative partition in a commit", nil, err)
	_, err = api.Commit(ctx, seb.Commit{Appends: []seb.CommitAppend{{Topic: "orders", Records: kit.Values("v"), Options: []seb.AppendOption{seb.ToPartitions([]int32{-5})}}}})
	s.add("negative partition of a record in a commit", nil, err)
	_, err = api.Append(ctx, "orders", nil)
	s.add("no records", nil, err)
	_, err = api.Append(ctx, "orders", kit.Values("v"), seb.ToPartition(1), seb.IfOffset(3))
	s.add("conflict", nil, err)
	_, err = api.Append(ctx, "orders", kit.Values("v"), seb.ToPartition(1), seb.IfOffset(-1))
	s.add("bad condition", nil, err)
	for range 2 {
		a, err = api.Append(ctx, "orders", kit.Values("v"), seb.ToPartition(1), seb.IfOffset(6), seb.IdempotencyKey("once"))
		s.add("once", a, err)
	}
	_, err = api.Append(ctx, "orders", kit.Values("w"), seb.ToPartition(1), seb.IfOffset(6), seb.IdempotencyKey("once"))
	s.add("key reused", nil, err)
	_, err = api.Append(ctx, "orders", kit.Values("v"), seb.IdempotencyKey(""))
	s.add("empty key", nil, err)
	_, err = api.Append(ctx, "orders", []seb.Record{{Value: make([]byte, 9<<20)}})
	s.add("large", nil, err)

	// The last record has the time of its append.
	for _, from := range []seb.Position{seb.Earliest, seb.Latest, seb.At(2), seb.Last(3), seb.AtTime(time.UnixMilli(1_800_000_000_124)), seb.AtOrAfter(5)} {
		f, err := api.Fetch(ctx, "orders", 1, from, seb.FetchOptions{})
		if n := len(f.Records); n > 0 && f.Records[n-1].Offset == 6 {
			f.Records[n-1].Timestamp = time.Time{}
		}
		s.addRecords(fmt.Sprintf("fetch %v: %d of %d to %d", from, f.Next, f.Start, f.End), f.Records, err)
	}
	f, err := api.Fetch(ctx, "orders", 1, seb.Earliest, seb.FetchOptions{Limit: 2})
	s.addRecords("limit", f.Records, err)
	_, err = api.Fetch(ctx, "orders", 1, seb.Earliest, seb.FetchOptions{TopicTag: "0123abcd.7"})
	s.add("tag", nil, err)
	_, err = api.Fetch(ctx, "orders", 1, seb.At(99), seb.FetchOptions{})
	s.add("beyond the end", nil, err)
	_, err = api.Fetch(ctx, "orders", 1, seb.Earliest, seb.FetchOptions{Wait: -time.Second})
	s.add("negative wait", nil, err)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = api.Append(canceled, "orders", kit.Values("v"))
	s.add("canceled before it is sent", nil, err)
	_, err = api.Fetch(ctx, "orders", 1, seb.At(-5), seb.FetchOptions{})
	s.add("negative offset", nil, err)
	_, err = api.Fetch(ctx, "nothing", 1, seb.At(-5), seb.FetchOptions{})
	s.add("negative offset in no topic", nil, err)
	f, err = api.Fetch(ctx, "orders", 1, seb.AtOrAfter(-2), seb.FetchOptions{Limit: 1})
	s.addRecords("at or after a negative offset", f.Records, err)
	for r, err := range api.Read(ctx, "orders", 1, seb.At(-5)) {
		s.add("read from a negative offset", r.Offset, err)
	}
	p, err := api.DeleteRecords(ctx, "orders", 1, 2)
	s.add("delete records", fmt.Sprint(p.Partition, p.Start, p.End), err)
	_, err = api.DeleteRecords(ctx, "orders", 1, 99)
	s.add("delete too many", nil, err)
	_, err = api.Fetch(ctx, "orders", 1, seb.At(1), seb.FetchOptions{})
	s.add("deleted", nil, err)
	f, err = api.Fetch(ctx, "orders", 1, seb.AtOrAfter(1), seb.FetchOptions{Limit: 1})
	s.addRecords("at or after", f.Records, err)
	for r, err := range api.Read(ctx, "orders", 1, seb.At(3)) {
		s.add("read", r.Offset, err)
	}
	for r, err := range api.Read(ctx, "nothing", 1, seb.At(3)) {
		s.add("read nothing", r, err)
	}
	for r, err := range api.Follow(ctx, "orders", 1, seb.At(3)) {
		s.add("follow", r.Offset, err)
		if r.Offset == 6 {
			break
		}
	}
}

func (s *steps) followers(ctx context.Context, api client.API) {
	f, err := api.NewFollower(ctx, "orders", 0, seb.Earliest)
	if err != nil {
		s.t.Fatal(err)
	}
	mark := f.Bookmark()
	s.add("bookmark", mark.Offsets, nil)
	rs, err := f.Next(ctx, seb.FetchOptions{Limit: 1, Wait: time.Minute})
	s.addRecords("next", rs, err)
	s.add("bookmark", f.Bookmark().Offsets, nil)
	_, err = f.Next(ctx, seb.FetchOptions{Wait: -time.Second})
	s.add("next with a negative wait", nil, err)
	some, err := f.Wait(ctx, time.Minute)
	s.add("wait", some, err)
	rs, err = f.Next(ctx, seb.FetchOptions{Wait: time.Minute})
	s.addRecords("next", rs, err)
	rs, err = f.Next(ctx, seb.FetchOptions{Wait: time.Millisecond})
	s.addRecords("at the end", rs, err)
	f, err = api.ResumeFollower(ctx, "orders", mark)
	if err != nil {
		s.t.Fatal(err)
	}
	rs, err = f.Next(ctx, seb.FetchOptions{Limit: 1, Wait: time.Minute})
	s.addRecords("resumed", rs, err)
	mark.Topic += 7
	_, err = api.ResumeFollower(ctx, "orders", mark)
	s.add("another topic", nil, err)
	for _, partition := range []int32{1, seb.AllPartitions} {
		_, err = api.NewFollower(ctx, "orders", partition, seb.At(-2))
		s.add("follow from a negative offset", nil, err)
	}
	_, err = api.NewFollower(ctx, "nothing", seb.AllPartitions, seb.Latest)
	s.add("follow nothing", nil, err)

	all, err := api.NewFollower(ctx, "orders", seb.AllPartitions, seb.Earliest)
	if err != nil {
		s.t.Fatal(err)
	}
	count := map[int32]int{}
	for n := 0; n < 9; {
		rs, err := all.Next(ctx, seb.FetchOptions{Wait: time.Minute})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, r := range rs {
			count[r.Partition]++
			n++
		}
	}
	s.add("all", fmt.Sprint(count, all.Bookmark().Offsets), nil)
}

func consumer(x seb.ConsumerInfo) string {
	return fmt.Sprintf("%s %s %t %t %s %+v", x.Topic, x.Name, x.Created.IsZero(), x.Moved.IsZero(), x.Version, x.Positions)
}

func (s *steps) consumers(ctx context.Context, api client.API) {
	c := api.Consumer("orders", "billing")
	_, err := c.Describe(ctx)
	s.add("no consumer", nil, err)
	_, err = c.Commit(ctx, seb.Offsets{0: 1})
	s.add("commit of nobody", nil, err)
	for range 2 {
		x, created, err := c.Create(ctx)
		s.add("create consumer", consumer(x)+fmt.Sprint(created), err)
	}
	x, created, err := c.Reset(ctx, seb.Latest)
	s.add("reset", consumer(x)+fmt.Sprint(created), err)
	x, _, err = c.Reset(ctx, seb.AtTime(time.UnixMilli(1_700_000_000_000)))
	s.add("reset to a time", consumer(x), err)
	_, _, err = c.Reset(ctx, seb.At(1))
	s.add("reset to an offset", nil, err)
	x, _, err = c.ResetTo(ctx, seb.Offsets{0: 1, 1: 3})
	s.add("reset to offsets", consumer(x), err)
	version, err := c.Commit(ctx, seb.Offsets{1: 4})
	s.add("commit", version, err)
	version, err = c.Commit(ctx, seb.Offsets{1: 5}, seb.IfVersion(version))
	s.add("commit of a version", version, err)
	_, err = c.Commit(ctx, seb.Offsets{1: 6}, seb.IfVersion(x.Version))
	s.add("commit of an old version", nil, err)
	_, err = c.Commit(ctx, seb.Offsets{1: 99})
	s.add("commit too far", nil, err)
	_, err = c.Commit(ctx, nil)
	s.add("commit nothing", nil, err)
	f, err := c.Follower(ctx, 1)
	if err != nil {
		s.t.Fatal(err)
	}
	rs, err := f.Next(ctx, seb.FetchOptions{Limit: 1, Wait: time.Minute})
	s.addRecords("follower", rs, err)
	seen := 0
	for _, err := range c.Follow(ctx) {
		if err != nil {
			s.t.Fatal(err)
		}
		if seen++; seen == 5 { // 1 of partition 0, 2 of partition 1, 2 of partition 2
			break
		}
	}
	s.add("follow the consumer", seen, nil)
	for x, err := range api.Consumers(ctx, "orders", seb.ListOptions{}) {
		x.Version = "" // brokers list consumers without their versions
		s.add("consumers", consumer(x), err)
	}
	s.add("delete consumer", nil, c.Delete(ctx))
	s.add("delete consumer again", nil, c.Delete(ctx))
}

func queue(x seb.QueueInfo) string {
	return fmt.Sprintf("%s %s %t %+v ready %d delayed %d leased %d dead %d exact %t", x.Topic, x.Name, x.Created.IsZero(), x.Config, x.Ready, x.Delayed, x.Leased, x.Dead, x.Exact)
}

func (s *steps) queues(ctx context.Context, api client.API) {
	q := api.Queue("orders", "mail")
	_, err := q.Update(ctx, seb.QueueUpdate{MaxAttempts: new(2)})
	s.add("no queue", nil, err)
	x, created, err := q.Set(ctx, seb.QueueUpdate{MaxAttempts: new(1), BackoffMax: new(time.Minute)}, seb.Earliest)
	s.add("create queue", queue(x)+fmt.Sprint(created), err)
	x, created, err = q.Set(ctx, seb.QueueUpdate{BackoffMin: new(2 * time.Second), DeadLetterTopic: new("t0")}, seb.Latest)
	s.add("set queue", queue(x)+fmt.Sprint(created), err)
	_, err = q.Create(ctx, seb.QueueUpdate{MaxAttempts: new(7)}, seb.Earliest)
	s.add("create a queue that exists", nil, err)
	x, err = api.Queue("orders", "fresh").Create(ctx, seb.QueueUpdate{MaxAttempts: new(7)}, seb.Latest)
	s.add("create another queue", queue(x), err)
	s.add("delete it", nil, api.Queue("orders", "fresh").Delete(ctx))
	x, err = q.Update(ctx, seb.QueueUpdate{Lease: new(time.Minute), DeadLetterTopic: new(""), Paused: new(true)})
	s.add("update queue", queue(x), err)
	x, err = q.Update(ctx, seb.QueueUpdate{Paused: new(false)})
	s.add("resume queue", queue(x), err)
	_, err = q.Update(ctx, seb.QueueUpdate{Order: new(seb.OrderKey)})
	s.add("another order", nil, err)
	_, _, err = api.Queue("orders", "late").Set(ctx, seb.QueueUpdate{}, seb.AtTime(time.Now()))
	s.add("begin at a time", nil, err)

	ms, err := q.Receive(ctx, seb.ReceiveOptions{Max: 3, Wait: time.Minute, Lease: 2 * time.Minute})
	if len(ms) != 3 {
		s.t.Fatalf("%d messages, %v", len(ms), err)
	}
	for _, m := range ms {
		s.add("message", fmt.Sprintf("%d %t", m.Attempt, time.Until(m.LeasedUntil) > time.Minute), nil)
	}
	until, err := q.Extend(ctx, 3*time.Minute, ms[0].Token)
	s.add("extend", time.Until(until) > 2*time.Minute, err)
	for range 2 {
		s.add("ack", nil, q.Ack(ctx, ms[0].Token))
	}
	s.add("nack", nil, q.Nack(ctx, seb.NackOptions{Reason: "no"}, ms[1].Token))
	s.add("ack of a dead letter", nil, q.Ack(ctx, ms[1].Token, ms[2].Token))
	s.add("bad token", nil, q.Ack(ctx, "nonsense"))
	x, err = q.Describe(ctx)
	s.add("describe", queue(x), err)
	for x, err := range api.Queues(ctx, "orders", seb.ListOptions{}) {
		s.add("queues", x.Name, err)
	}
	dead, _, more, err := q.Dead(ctx, seb.DeadOptions{Limit: 1})
	s.add("dead", fmt.Sprint(len(dead), more, dead[0].Attempts, dead[0].Reason, dead[0].Parked.IsZero()), err)
	r, err := q.Redrive(ctx, seb.RedriveOptions{Places: []seb.Place{{Partition: dead[0].Partition, Offset: dead[0].Offset}}})
	s.add("redrive", r, err)
	r, err = q.Redrive(ctx, seb.RedriveOptions{})
	s.add("redrive all", r, err)
	n, err := q.Purge(ctx)
	s.add("purge", n, err)
	_, err = q.Receive(ctx, seb.ReceiveOptions{Wait: -time.Second})
	s.add("receive with a negative wait", nil, err)
	ms, err = q.Receive(ctx, seb.ReceiveOptions{Wait: time.Millisecond})
	s.add("nothing left", len(ms), err)

	a, err := api.Append(ctx, "orders", kit.Values("later"), seb.ToPartition(0), seb.Delay(time.Hour))
	s.add("delayed", a, err)
	a, err = api.Append(ctx, "orders", kit.Values("later"), seb.ToPartition(0), seb.DeliverAt(time.Now().Add(time.Hour)))
	s.add("deliver at", a, err)
	x, err = q.Describe(ctx)
	s.add("describe", queue(x), err)

	var done []string
	work, stop := context.WithCancel(ctx)
	w := &seb.Worker{Source: q, Handle: func(_ context.Context, m seb.Message) error {
		done = append(done, string(m.Value))
		stop()
		return nil
	}}
	a, err = api.Append(ctx, "orders", kit.Values("now"), seb.ToPartition(0))
	s.add("for the worker", a, err)
	s.add("work", done, w.Run(work))
	s.add("worked", done, nil)
	s.add("delete queue", nil, q.Delete(ctx))
	_, err = q.Describe(ctx)
	s.add("deleted queue", nil, err)
}

func (s *steps) pushes(ctx context.Context, api client.API) {
	q := api.Queue("orders", "hooks")
	if _, _, err := q.Set(ctx, seb.QueueUpdate{}, seb.Latest); err != nil {
		s.t.Fatal(err)
	}
	_, err := q.Push(ctx)
	s.add("no push", nil, err)
	p, secret, created, err := q.SetPush(ctx, seb.PushUpdate{URL: new("https://192.0.2.1/hook"), Headers: map[string]string{"X-A": "b"}, MaxInFlight: new(3), Timeout: new(5 * time.Second)})
	s.add("set push", fmt.Sprintf("%+v %t %t", p, secret != "", created), err)
	p, secret, created, err = q.SetPush(ctx, seb.PushUpdate{MaxInFlight: new(4)})
	s.add("set push again", fmt.Sprintf("%+v %t %t", p, secret != "", created), err)
	p, err = q.Push(ctx)
	s.add("push", p, err)
	p, err = q.ResumePush(ctx)
	s.add("resume push", p, err)
	s.add("remove push", nil, q.RemovePush(ctx))
	s.add("remove push again", nil, q.RemovePush(ctx))
}

func (s *steps) commits(ctx context.Context, api client.API) {
	q := api.Queue("t1", "work")
	if _, _, err := q.Set(ctx, seb.QueueUpdate{}, seb.Earliest); err != nil {
		s.t.Fatal(err)
	}
	if _, err := api.Append(ctx, "t1", kit.Values("job")); err != nil {
		s.t.Fatal(err)
	}
	c := api.Consumer("t1", "sum")
	x, _, err := c.Create(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	ms, err := q.Receive(ctx, seb.ReceiveOptions{Wait: time.Minute})
	if len(ms) != 1 {
		s.t.Fatalf("%d messages, %v", len(ms), err)
	}
	all := seb.Commit{
		Appends: []seb.CommitAppend{
			{Topic: "t2", Records: samples(), Options: []seb.AppendOption{seb.IfOffset(0), seb.Delay(time.Hour)}},
			{Topic: "orders", Records: samples()[:2], Options: []seb.AppendOption{seb.ToPartitions([]int32{2, 0})}},
		},
		Positions: []seb.CommitPositions{{Topic: "t1", Consumer: "sum", Expect: seb.Offsets{0: 0}, Version: x.Version, Offsets: seb.Offsets{0: 1}}},
		Acks:      []seb.CommitAcks{{Topic: "t1", Queue: "work", Tokens: []string{ms[0].Token}}},
	}
	for range 2 {
		done, err := api.Commit(ctx, all, seb.IdempotencyKey("all"))
		s.add("commit", done, err)
	}
	_, err = api.Commit(ctx, all)
	s.add("commit again", nil, err)
	all.Appends = nil
	_, err = api.Commit(ctx, all)
	s.add("old version", nil, err)
	all.Positions = nil
	_, err = api.Commit(ctx, all)
	s.add("done already", nil, err)
	_, err = api.Commit(ctx, seb.Commit{})
	s.add("empty commit", nil, err)
	_, err = api.Commit(ctx, all, seb.ToPartition(1))
	s.add("commit with an option", nil, err)
	_, err = api.Commit(ctx, seb.Commit{Appends: []seb.CommitAppend{{Topic: "t2", Records: samples(), Options: []seb.AppendOption{seb.IdempotencyKey("k")}}}})
	s.add("part with a key", nil, err)
}

func (s *steps) conditions(ctx context.Context, api client.API) {
	cut, err := api.Cut(ctx, []string{"orders", "t2"}, seb.CutOptions{})
	if err != nil || len(cut.Topics) != 2 {
		s.t.Fatalf("%+v, %v", cut, err)
	}
	for _, x := range cut.Topics {
		s.add("cut", fmt.Sprint(x.Topic, x.Ends, len(x.ID) > 9, time.Since(cut.LogTime) < time.Minute, cut.LogTime.UnixNano()%1000), nil)
	}
	again, err := api.Cut(ctx, []string{"orders"}, seb.CutOptions{Later: time.Unix(-1, 0)})
	s.add("cut of now", fmt.Sprint(again.LogTime.Equal(cut.LogTime), time.Since(again.StoreTime).Abs() < time.Minute, again.StoreTimeAge < time.Minute), err)
	waiting := make(chan error)
	go func() {
		later, err := api.Cut(ctx, []string{"orders"}, seb.CutOptions{Later: cut.LogTime})
		if err == nil && !later.LogTime.After(cut.LogTime) {
			err = fmt.Errorf("the log time is %v, not after %v", later.LogTime, cut.LogTime)
		}
		waiting <- err
	}()
	defer func() { s.add("cut later", nil, <-waiting) }()
	_, err = api.Cut(ctx, []string{"t2", "nothing"}, seb.CutOptions{})
	s.add("cut of no topic", nil, err)
	_, err = api.Cut(ctx, nil, seb.CutOptions{})
	s.add("cut of nothing", seb.CodeOf(err), nil)
	c := seb.Commit{Ends: cut.Topics, After: cut.LogTime.Add(-time.Nanosecond), Appends: []seb.CommitAppend{{Topic: "t0", Records: samples()[:1]}}}
	done, err := api.Commit(ctx, c)
	s.add("conditions", done, err)
	_, err = api.Append(ctx, "t2", samples())
	s.add("more", nil, err)
	_, err = api.Commit(ctx, c)
	s.add("ends conflict", nil, err)
	c.Ends, c.After = nil, cut.LogTime.Add(time.Hour)
	_, err = api.Commit(ctx, c)
	s.add("too early", fmt.Sprint(seb.CodeOf(err), seb.OutcomeOf(err)), nil)
	c.Appends = nil
	_, err = api.Commit(ctx, c)
	s.add("only conditions", nil, err)
}

func (s *steps) keys(ctx context.Context, api client.API) {
	_, _, err := api.CreateKey(ctx, seb.KeyOptions{Name: "reader", Scopes: seb.ScopeRead})
	s.add("first key must be an admin", nil, err)
	for k, err := range api.Keys(ctx, 0) {
		s.add("keys", k, err)
	}
	_, err = api.RevokeKey(ctx, 7)
	s.add("revoke", nil, err)
}
