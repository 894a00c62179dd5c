package kit

import (
	"fmt"
	"testing"

	"github.com/simple-event-broker/seb"
)

// Appends returns the part of a commit that appends values to a topic.
func Appends(topic string, vs ...string) seb.CommitAppend {
	return seb.CommitAppend{Topic: topic, Records: Values(vs...)}
}

// Counted returns the commit of a worker that reads topic "in" as the consumer "worker". The commit appends outs, and
// has the condition that the consumer's offset is the argument from, which it changes to the argument to.
func Counted(from, to seb.Offset, outs ...seb.CommitAppend) seb.Commit {
	return seb.Commit{Appends: outs, Positions: []seb.CommitPositions{
		{Topic: "in", Consumer: "worker", Expect: seb.Offsets{0: from}, Offsets: seb.Offsets{0: to}},
	}}
}

// WithWorker creates topic "in" with the given number of records, and the consumer "worker" at the start of
// the topic.
func WithWorker(t testing.TB, b *seb.Broker, records int) *seb.Consumer {
	t.Helper()
	MustAppend(t, b, "in", Numbered("in", records)...)
	c := b.Consumer("in", "worker")
	MustReset(t, c, seb.Earliest)
	return c
}

// MustCommitAll commits c.
func MustCommitAll(t testing.TB, b *seb.Broker, c seb.Commit, opts ...seb.AppendOption) seb.Committed {
	t.Helper()
	done, err := b.Commit(t.Context(), c, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// MustReset resets a consumer to a position.
func MustReset(t testing.TB, c *seb.Consumer, from seb.Position) seb.ConsumerInfo {
	t.Helper()
	info, _, err := c.Reset(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// WantAt fails unless the consumer is at the given offsets, by partition.
func WantAt(t testing.TB, c *seb.Consumer, next ...seb.Offset) seb.ConsumerInfo {
	t.Helper()
	info, err := c.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make([]seb.Offset, len(info.Positions))
	for i, p := range info.Positions {
		got[i] = p.Next
	}
	if fmt.Sprint(got) != fmt.Sprint(next) {
		t.Fatalf("the consumer is at %v, want %v", got, next)
	}
	return info
}
