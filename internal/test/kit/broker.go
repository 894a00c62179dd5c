package kit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/loglines"
	"github.com/simple-event-broker/seb/objstore"
)

// Immediate returns options for tests in virtual time. With them, a broker commits each request at once.
func Immediate() seb.Options {
	return InVirtualTime(seb.Options{Batching: seb.Immediate()})
}

// Open opens a broker, and closes it when the test ends.
func Open(t testing.TB, store objstore.Store, opts seb.Options) *seb.Broker {
	t.Helper()
	b, err := seb.Open(t.Context(), store, checked(t, opts))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

// OpenOnly is like [Open], but the test itself must close the broker.
func OpenOnly(t testing.TB, store objstore.Store, opts seb.Options) *seb.Broker {
	t.Helper()
	b, err := seb.Open(t.Context(), store, checked(t, opts))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// checked returns opts with a logger that checks the broker's log lines, unless opts has one or t is no *testing.T.
func checked(t testing.TB, opts seb.Options) seb.Options {
	if _, test := t.(*testing.T); test && opts.Logger == nil {
		opts.Logger = loglines.Logger(t)
	}
	return opts
}

// MustCreateTopic creates a topic.
func MustCreateTopic(t testing.TB, b *seb.Broker, name string, partitions int32) {
	t.Helper()
	if _, _, err := b.CreateTopic(t.Context(), name, seb.TopicOptions{Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
}

// Values returns records with the given values.
func Values(vs ...string) []seb.Record {
	rs := make([]seb.Record, len(vs))
	for i, v := range vs {
		rs[i].Value = []byte(v)
	}
	return rs
}

// Numbered returns n values that begin with prefix.
func Numbered(prefix string, n int) []string {
	vs := make([]string, n)
	for i := range vs {
		vs[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return vs
}

// Large returns a value of about n bytes that begins with name.
func Large(name string, n int) string {
	return name + strings.Repeat("\x00\x01\x02seb", n/6)
}

// BatchOf returns count records of size bytes each.
func BatchOf(count, size int) []seb.Record {
	rs := make([]seb.Record, count)
	for i := range rs {
		v := make([]byte, size)
		for j := range v {
			v[j] = byte(i + j)
		}
		rs[i].Value = v
	}
	return rs
}

// MustAppend appends values to partition 0 and returns the first one's offset.
func MustAppend(t testing.TB, b *seb.Broker, topic string, vs ...string) seb.Offset {
	t.Helper()
	a, err := b.Append(t.Context(), topic, Values(vs...), seb.ToPartition(0))
	if err != nil {
		t.Fatal(err)
	}
	return a.Ranges[0].Offset
}

// AppendTo appends n empty records to a partition of topic "t".
func AppendTo(t testing.TB, b *seb.Broker, partition int32, n int) {
	t.Helper()
	if _, err := b.Append(t.Context(), "t", make([]seb.Record, n), seb.ToPartition(partition)); err != nil {
		t.Fatal(err)
	}
}

// Take reads the next n records of a follower, and returns each as "partition/offset".
func Take(t testing.TB, f *seb.Follower, n int) []string {
	t.Helper()
	got := []string{}
	for len(got) < n {
		rs, err := f.Next(t.Context(), seb.FetchOptions{Limit: n - len(got), Wait: time.Minute})
		if err != nil || len(rs) == 0 {
			t.Fatalf("after %d of %d records: %d more, %v", len(got), n, len(rs), err)
		}
		for _, r := range rs {
			got = append(got, fmt.Sprintf("%d/%d", r.Partition, r.Offset))
		}
	}
	return got
}

// Timed returns records with the given timestamps, in milliseconds.
func Timed(ms ...int64) []seb.Record {
	rs := make([]seb.Record, len(ms))
	for i, at := range ms {
		rs[i] = seb.Record{Value: fmt.Append(nil, at), Timestamp: time.UnixMilli(at)}
	}
	return rs
}

// ReadAll returns the values of a partition. It fails the test unless the offsets are 0, 1, 2 and so on.
func ReadAll(t testing.TB, b *seb.Broker, topic string, partition int32) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []string
	for r, err := range b.Read(ctx, topic, partition, seb.Earliest) {
		if err != nil {
			t.Fatalf("read %s/%d at %d: %v", topic, partition, len(got), err)
		}
		if int(r.Offset) != len(got) {
			t.Fatalf("offset %d where %d should be", r.Offset, len(got))
		}
		got = append(got, string(r.Value))
	}
	return got
}

// WantValues fails unless partition 0 of a topic holds the given values.
func WantValues(t testing.TB, b *seb.Broker, topic string, want ...string) {
	t.Helper()
	if got := ReadAll(t, b, topic, 0); !slices.Equal(got, want) {
		t.Fatalf("%s holds %.100q, want %.100q", topic, got, want)
	}
}

// End ends a broker like kill -9: it does not wait for the outcome of requests under way. Unlike kill -9, it
// waits until the broker's goroutines have ended.
func End(b *seb.Broker) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return b.Shutdown(ctx)
}

// Kill calls [End], and fails the test if End returns an error.
func Kill(t testing.TB, b *seb.Broker) {
	t.Helper()
	if err := End(b); err != nil {
		t.Error(err)
	}
}
