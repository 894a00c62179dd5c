package bucket_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/fsck"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
)

var into = flag.String("bucket.write", "", "write a bucket of this version of Seb, and what its brokers answer, into this new `directory`")

// The directories of testdata never change: a version of Seb that can't use these buckets can't use existing buckets.
// level5 was written before there were segments.
func TestBucketsOfEarlierVersions(t *testing.T) {
	dirs, err := filepath.Glob("testdata/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("%q, %v", dirs, err)
	}
	for _, dir := range dirs {
		for name, without := range map[string]string{
			"as it is":            "",
			"without checkpoints": "checkpoint/*",
			"from a checkpoint":   "log/00000000000000000001", // it creates a topic, and holds no records
		} {
			t.Run(filepath.Base(dir)+"/"+name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "bucket")
				if err := os.CopyFS(path, os.DirFS(filepath.Join(dir, "bucket"))); err != nil {
					t.Fatal(err)
				}
				if without != "" {
					remove(t, path, without)
				}
				want, err := os.ReadFile(filepath.Join(dir, "contents.txt"))
				if err != nil {
					t.Fatal(err)
				}
				b, closeBroker := open(t, path)
				if diff := cmp.Diff(string(want), describe(t, b)); diff != "" {
					t.Errorf("(-as it was written +as it is read)\n%s", diff)
				}
				goOn(t, b)
				closeBroker()
				check(t, path, without)
			})
		}
	}
}

// A broker raises the level of an old log by itself, and moves its records into segments: nothing changes for those who
// read them.
func TestBucketsOfEarlierVersionsAreCompacted(t *testing.T) {
	bounds := engine.Compaction
	t.Cleanup(func() { engine.Compaction = bounds })
	engine.Compaction = engine.Bounds{SegmentBytes: 1 << 20, BatchBytes: 1000, Rows: 1000, Group: 3, Large: 1 << 20, PageBytes: 100, RaiseCommits: 3, RetainMin: time.Minute, RetainMax: time.Hour, RetainGrace: time.Hour}
	path := filepath.Join(t.TempDir(), "bucket")
	must(t, os.CopyFS(path, os.DirFS("testdata/level5/bucket")))
	b, closeBroker := open(t, path)
	want := withoutTopic(describe(t, b), "empty")
	objects := func() int {
		names, err := filepath.Glob(filepath.Join(path, "data", "*"))
		must(t, err)
		return len(names)
	}
	before, added := objects(), 0
	for ; objects() < before+12; added++ {
		if added == 2000 {
			t.Fatalf("after %d appends there are %d data objects, before there were %d", added, objects(), before)
		}
		_, err := b.Append(t.Context(), "empty", kit.Values(fmt.Sprint(added)))
		must(t, err)
	}
	for range 2 {
		if diff := cmp.Diff(want, withoutTopic(describe(t, b), "empty")); diff != "" {
			t.Fatalf("(-before +after)\n%s", diff)
		}
		next := 0
		for r, err := range b.Read(t.Context(), "empty", 0, seb.Earliest) {
			must(t, err)
			if string(r.Value) != fmt.Sprint(next) || r.Offset != seb.Offset(next) {
				t.Fatalf("offset %d has %q, want %d", r.Offset, r.Value, next)
			}
			next++
		}
		if next != added {
			t.Fatalf("%d records of %d", next, added)
		}
		closeBroker()
		b, closeBroker = open(t, path)
	}
	closeBroker()
	check(t, path, "")
}

// withoutTopic returns what describe says about all topics but one, and about keys, without the sizes of partitions.
func withoutTopic(text, name string) string {
	var lines []string
	in := false
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, " ") {
			in = strings.HasPrefix(line, "topic ") && strings.Contains(line, " "+name+": ")
		}
		if i := strings.Index(line, " bytes, last timestamp"); i > 0 {
			line = line[:strings.LastIndex(line[:i], ",")] + line[i:]
		}
		if !in {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func remove(t *testing.T, path, pattern string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(path, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("%q, %v", names, err)
	}
	for _, name := range names {
		must(t, os.Remove(name))
	}
}

// open opens a broker on a directory. The result closes it.
func open(t *testing.T, path string) (b *seb.Broker, closeBroker func()) {
	t.Helper()
	store, err := objstore.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	b = kit.OpenOnly(t, store, seb.Options{Batching: seb.Immediate(), CheckpointCommits: 10})
	closed := false
	closeBroker = func() {
		if closed {
			return
		}
		closed = true
		if err := errors.Join(b.Close(), store.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	t.Cleanup(closeBroker)
	return b, closeBroker
}

// goOn writes to a bucket as its users would go on.
func goOn(t *testing.T, b *seb.Broker) {
	t.Helper()
	ctx := t.Context()
	before, err := b.Topic(ctx, "orders")
	must(t, err)
	for range 12 { // so that the broker writes a checkpoint
		_, err = b.Append(ctx, "orders", []seb.Record{{Key: []byte("k"), Value: []byte("later")}}, seb.ToPartition(1))
		must(t, err)
	}
	f, err := b.Fetch(ctx, "orders", 1, seb.At(before.Partitions[1].End), seb.FetchOptions{})
	must(t, err)
	if len(f.Records) != 12 || string(f.Records[0].Value) != "later" {
		t.Errorf("%d records follow: %v", len(f.Records), f.Records)
	}
	got, err := b.Queue("work", "jobs").Receive(ctx, seb.ReceiveOptions{Max: 1, Wait: 10 * time.Second})
	must(t, err)
	if len(got) != 1 {
		t.Fatalf("received %v", got)
	}
	must(t, b.Queue("work", "jobs").Ack(ctx, got[0].Token))
	must(t, b.DeleteTopic(ctx, "orders"))
}

// check checks a bucket from which the test may have removed objects.
func check(t *testing.T, path, without string) {
	t.Helper()
	store, err := objstore.OpenDirReadOnly(path)
	must(t, err)
	defer func() { must(t, store.Close()) }()
	report, err := fsck.Check(t.Context(), store, fsck.Options{Deep: true})
	must(t, err)
	for _, f := range report.Findings {
		if f.Class == fsck.Deleted && without != "" {
			continue // the log does not need the object
		}
		if f.Class == fsck.InUse {
			continue // the broker was closed while it wrote a segment
		}
		t.Errorf("%+v (the test has removed %q)", f, without)
	}
}

// describe returns what a broker answers about its log: all topics, records, consumers, queues and API keys.
func describe(t *testing.T, b *seb.Broker) string {
	t.Helper()
	ctx := t.Context()
	var out strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	topics, err := seb.Collect(b.Topics(ctx, seb.ListOptions{}))
	must(t, err)
	for _, x := range topics {
		say("topic %d %s: created %s, retention %v, %d bytes", x.ID, x.Name, stamp(x.Created), x.Config.Retention, x.Config.RetentionBytes)
		for _, p := range x.Partitions {
			say("  partition %d: %d to %d, %d bytes, last timestamp %s", p.Partition, p.Start, p.End, p.Bytes, stamp(p.LastTimestamp))
			for r, err := range b.Read(ctx, x.Name, p.Partition, seb.Earliest) {
				must(t, err)
				say("    %d: %s", r.Offset, line(r))
			}
		}
		consumers, err := seb.Collect(b.Consumers(ctx, x.Name, seb.ListOptions{}))
		must(t, err)
		for _, c := range consumers {
			say("  consumer %s: created %s, moved %s, version %s, %v", c.Name, stamp(c.Created), stamp(c.Moved), c.Version, c.Positions)
		}
		queues, err := seb.Collect(b.Queues(ctx, x.Name, seb.ListOptions{}))
		must(t, err)
		for _, q := range queues {
			say("  queue %s: created %s, %+v, %d not done, %d dead, epoch %d", q.Name, stamp(q.Created), q.Config, q.Ready+q.Delayed+q.Leased+q.Held, q.Dead, q.Epoch)
			dead, _, more, err := b.Queue(x.Name, q.Name).Dead(ctx, seb.DeadOptions{})
			if must(t, err); more {
				t.Error("there are more dead letters")
			}
			for _, d := range dead {
				say("    dead after %d attempts (%s): %s", d.Attempts, d.Reason, line(d.Record))
			}
		}
	}
	keys, err := seb.Collect(b.Keys(ctx, 0))
	must(t, err)
	for _, k := range keys {
		say("key %d %s: %v %q, created %s, expires %s", k.ID, k.Name, k.Scopes, k.Topics, stamp(k.Created), stamp(k.Expires))
	}
	return out.String()
}

func line(r seb.Record) string {
	value := fmt.Sprintf("%q", r.Value)
	if len(r.Value) > 64 {
		value = fmt.Sprintf("%d bytes, SHA-256 %x", len(r.Value), sha256.Sum256(r.Value))
	}
	key := "no key"
	if r.Key != nil {
		key = fmt.Sprintf("key %q", r.Key)
	}
	return fmt.Sprintf("%s, %s, %q, %s", key, value, r.Headers, stamp(r.Timestamp))
}

func stamp(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return at.UTC().Format(time.RFC3339Nano)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWriteBucket writes a directory for testdata. Do so before a change of what brokers write.
func TestWriteBucket(t *testing.T) {
	if *into == "" {
		t.Skip("it writes a bucket for testdata: go test ./internal/test/bucket -run TestWriteBucket -bucket.write DIRECTORY")
	}
	path := filepath.Join(*into, "bucket")
	must(t, os.MkdirAll(path, 0o755))
	one, closeOne := open(t, path)
	two, closeTwo := open(t, path)
	history(t, one, two)
	text := describe(t, two)
	closeOne()
	closeTwo()
	check(t, path, "")
	must(t, os.WriteFile(filepath.Join(*into, "contents.txt"), []byte(text), 0o600))
}

// history uses all that a log can hold, through two brokers in turn.
func history(t *testing.T, one, two *seb.Broker) {
	t.Helper()
	ctx := t.Context()
	create := func(name string, o seb.TopicOptions) {
		_, _, err := one.CreateTopic(ctx, name, o)
		must(t, err)
	}
	create("orders", seb.TopicOptions{Partitions: 2})
	create("gone", seb.TopicOptions{})
	create("work", seb.TopicOptions{})
	create("dead", seb.TopicOptions{})
	create("empty", seb.TopicOptions{Config: seb.TopicConfig{Retention: 24 * time.Hour, RetentionBytes: 1 << 30}})

	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	add := func(b *seb.Broker, topic string, partition int32, records ...seb.Record) {
		_, err := b.Append(ctx, topic, records, seb.ToPartition(partition))
		must(t, err)
	}
	for i := range 20 {
		b := []*seb.Broker{one, two}[i%2]
		r := seb.Record{Key: fmt.Appendf(nil, "customer %d", i%3), Value: fmt.Appendf(nil, "order %d", i), Timestamp: at.Add(time.Duration(i%7) * time.Minute)}
		if i%5 == 0 {
			r.Key = nil
			r.Headers = []seb.Header{{Name: "trace", Value: []byte{0, 1, 2}}, {Name: "trace", Value: nil}}
		}
		more := seb.Record{Key: []byte{}, Value: nil, Timestamp: at}
		add(b, "orders", int32(i%2), r, more)
		add(b, "gone", 0, r)
	}
	// While another broker wins slots, 70 KB become a data object.
	for i := range 2 {
		b := []*seb.Broker{one, two}[i%2]
		add(b, "orders", 0, seb.Record{Value: []byte(strings.Repeat(string(rune('a'+i)), 70_000)), Timestamp: at})
	}
	three := int32(3)
	_, err := one.UpdateTopic(ctx, "orders", seb.TopicUpdate{Partitions: &three})
	must(t, err)
	add(one, "orders", 2, seb.Record{Value: []byte("in a partition that came later"), Timestamp: at})
	_, err = one.Append(ctx, "orders", []seb.Record{{Value: []byte("once"), Timestamp: at}}, seb.ToPartition(1), seb.IdempotencyKey("a key"))
	must(t, err)
	_, err = one.DeleteRecords(ctx, "orders", 0, 3)
	must(t, err)
	must(t, one.DeleteTopic(ctx, "gone"))
	consumersAndKeys(ctx, t, one)
	work(ctx, t, two)
	add(two, "orders", 1, seb.Record{Value: []byte("the last one"), Timestamp: at})
}

func consumersAndKeys(ctx context.Context, t *testing.T, b *seb.Broker) {
	t.Helper()
	c := b.Consumer("orders", "mail")
	_, _, err := c.Reset(ctx, seb.Earliest)
	must(t, err)
	_, err = c.Commit(ctx, seb.Offsets{0: 5, 1: 1})
	must(t, err)
	_, _, err = b.Consumer("orders", "unused").Create(ctx)
	must(t, err)
	must(t, b.Consumer("orders", "unused").Delete(ctx))
	for _, o := range []seb.KeyOptions{
		{Name: "admin", Scopes: seb.ScopeAdmin},
		{Name: "reader", Scopes: seb.ScopeRead, Topics: []string{"ord*", "work"}},
		{Name: "revoked", Scopes: seb.ScopeWrite, Expires: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		key, _, err := b.CreateKey(ctx, o)
		must(t, err)
		if o.Name == "revoked" {
			_, err := b.RevokeKey(ctx, key.ID)
			must(t, err)
		}
	}
}

// work leaves records of a queue that are done, ready, delayed, and dead with a copy in another topic.
func work(ctx context.Context, t *testing.T, b *seb.Broker) {
	t.Helper()
	_, err := b.Append(ctx, "work", kit.Values(kit.Numbered("job", 8)...))
	must(t, err)
	_, err = b.Append(ctx, "work", kit.Values("later"), seb.Delay(24*time.Hour))
	must(t, err)
	q := b.Queue("work", "jobs")
	attempts, to, none := 2, "dead", time.Duration(0)
	_, err = q.Create(ctx, seb.QueueUpdate{MaxAttempts: &attempts, DeadLetterTopic: &to, BackoffMin: &none, BackoffMax: &none}, seb.Earliest)
	must(t, err)
	for range 4 {
		got, err := q.Receive(ctx, seb.ReceiveOptions{Max: 1, Wait: 10 * time.Second})
		must(t, err)
		must(t, q.Ack(ctx, got[0].Token))
	}
	for {
		got, err := q.Receive(ctx, seb.ReceiveOptions{Max: 1, Wait: 10 * time.Second})
		must(t, err)
		must(t, q.Nack(ctx, seb.NackOptions{Reason: "it does not parse", Delay: &none}, got[0].Token))
		dead, _, _, err := q.Dead(ctx, seb.DeadOptions{})
		must(t, err)
		if len(dead) > 0 {
			break
		}
	}
	got, err := q.Receive(ctx, seb.ReceiveOptions{Max: 1, Wait: 10 * time.Second})
	must(t, err)
	must(t, q.Nack(ctx, seb.NackOptions{Reason: "it failed once"}, got[0].Token))
}
