package year_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

// shape is a load on a log.
type shape struct {
	Name, About string

	Every      time.Duration // between two commits
	Active     time.Duration // how long commits are made on each day; 0: always
	Topics     int
	Partitions int32         // of each topic
	Touch      int           // partitions that a commit has a record of, in turn
	Record     int           // bytes of a record
	Retention  time.Duration // of each topic; 0: records are kept for ever
	Span       time.Duration // how long the load lasts
	Rows       int           // of the tables
	Samples    int           // in a row
	Delay      time.Duration // the delete delay (D)
	Margin     time.Duration
	Checkpoint int // commits between two checkpoints

	refuses bool // the store refuses to delete
}

const day = 24 * time.Hour

// steady is a commit a second of a record of 300 bytes in one topic, for a year.
var steady = shape{
	Every: time.Second, Topics: 1, Partitions: 1, Touch: 1, Record: 300, Span: 360 * day, Rows: 12, Samples: 60, Delay: day, Margin: time.Hour, Checkpoint: 1000,
}

// with returns the shape with changes.
func (x shape) with(name, about string, change func(x *shape)) shape {
	x.Name, x.About = name, about
	change(&x)
	return x
}

// shapes are the loads of docs/costs.md.
var shapes = []shape{
	steady.with("topics-10000", "like one-topic, to 10,000 topics in turn", func(x *shape) { x.Topics, x.Span = 10_000, 16*day }),
	steady.with("retention", "like one-topic, and the topic keeps 7 days", func(x *shape) { x.Retention, x.Span = 7*day, 21*day }),
	steady.with("topics-1000", "like one-topic, to 1,000 topics in turn", func(x *shape) { x.Topics, x.Span = 1000, 13*day }),
	steady.with("retention-1000", "like one-topic, to 1,000 topics in turn, which keep 2 days", func(x *shape) { x.Topics, x.Retention, x.Span = 1000, 2*day, 8*day }),
	steady.with("wide", "4 commits a second, each of a record of 100 bytes to each of 64 partitions of a topic", func(x *shape) {
		x.Every, x.Partitions, x.Touch, x.Record, x.Span = time.Second/4, 64, 64, 100, 36*time.Hour
	}),
	steady.with("wide-topics", "4 commits a second, each of a record of 100 bytes to each of 1,000 topics", func(x *shape) {
		x.Every, x.Topics, x.Touch, x.Record, x.Span, x.Rows = time.Second/4, 1000, 1000, 100, 30*time.Minute, 6
	}),
	steady.with("burst", "like one-topic, in one hour of each day", func(x *shape) { x.Active = time.Hour }),
	steady.with("large", "a commit every 10 seconds, of one record of 100,000 bytes, to 1 topic", func(x *shape) { x.Every, x.Record, x.Span = 10*time.Second, 100_000, 3*day }),
	steady.with("records-1000", "like one-topic, with records of 1,000 bytes", func(x *shape) { x.Record, x.Span = 1000, 12*day }),
	steady.with("topics-100", "like one-topic, to 100 topics in turn", func(x *shape) { x.Topics, x.Span = 100, 12*day }),
	steady.with("one-topic", "1 commit a second, of one record of 300 bytes, to 1 topic", func(x *shape) { x.Rows = 24 }),
}

// topicName returns the name of topic i.
func topicName(i int) string { return fmt.Sprintf("topic-%05d", i) }

// target is a partition that records go to.
type target struct {
	topic     string
	partition int32
}

func (x shape) targets() (all []target) {
	for i := range x.Topics {
		for p := range x.Partitions {
			all = append(all, target{topicName(i), p})
		}
	}
	return all
}

// eventsBytes is the size of the different records, together: so many that no merged batch has a record twice.
const eventsBytes = 1 << 20

// events returns records that look like events: JSON whose names repeat, with ids, numbers and texts that don't.
func (x shape) events() [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	events := make([][]byte, max(8, eventsBytes/x.Record))
	for i := range events {
		var b strings.Builder
		fmt.Fprintf(&b, `{"id":"%016x","customer":%d,"type":%q`, rng.Uint64(), rng.IntN(100_000), words[rng.IntN(len(words))])
		for n := 0; b.Len() < x.Record-40; n++ {
			fmt.Fprintf(&b, `,"field-%d":"%s %s %06x"`, n, words[rng.IntN(len(words))], words[rng.IntN(len(words))], rng.IntN(1<<24))
		}
		b.WriteString(strings.Repeat(" ", max(0, x.Record-1-b.Len())))
		b.WriteString("}")
		events[i] = []byte(b.String())
	}
	return events
}

var words = []string{
	"account", "address", "amount", "article", "basket", "billing", "cancelled", "carrier", "city", "completed", "country", "created", "currency", "delivered", "discount", "invoice",
	"item", "language", "method", "order", "paid", "parcel", "payment", "pending", "phone", "price", "refund", "region", "returned", "shipping", "status", "voucher",
}

// commitOf returns the appends of commit i.
func (x shape) commitOf(i int, targets []target, events [][]byte) (appends []seb.CommitAppend) {
	for j := range x.Touch {
		n := i*x.Touch + j
		to := targets[n%len(targets)]
		appends = append(appends, seb.CommitAppend{
			Topic: to.topic, Records: []seb.Record{{Value: events[n%len(events)]}}, Options: []seb.AppendOption{seb.ToPartition(to.partition)},
		})
	}
	return appends
}
