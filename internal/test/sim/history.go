package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
)

// kind is what an operation does.
type kind string

const (
	appends kind = "append"
	reads   kind = "read"
	creates kind = "create"
	deletes kind = "delete"
	trims   kind = "trim"
	updates kind = "update"
	grants  kind = "grant"  // creates an API key
	revokes kind = "revoke" // revokes an API key
	shows   kind = "show"   // authenticates with an API key

	// Operations with a consumer.
	consumes  kind = "consume" // reads with the consumer; may create it
	commits   kind = "commit"
	sets      kind = "set" // creates or resets the consumer
	describes kind = "describe"
	lists     kind = "list" // lists all consumers of a topic
	forgets   kind = "forget"

	// Operations with a queue.
	receives  kind = "receive"
	acks      kind = "ack"
	nacks     kind = "nack"
	extends   kind = "extend"
	opens     kind = "open" // creates the queue
	pauses    kind = "pause"
	resumes   kind = "resume"
	redrives  kind = "redrive"
	purges    kind = "purge"
	dissolves kind = "dissolve"
)

// How a client sent an operation.
const (
	viaLibrary = "library"
	viaHTTP    = "http"
)

// op is one operation of one client, and all that the client learned from the operation's answer.
type op struct {
	client string
	broker string // name of the life that the client called
	via    string
	kind   kind
	topic  string
	// partition is the partition of a read or trim. For an append it is -1 if the broker chooses. For
	// an update it is the new number of partitions, or 0 if the number does not change. For a read with
	// a consumer it is the partition of the records, or -1 if the broker chooses the partition.
	partition int
	call, ret time.Duration

	values []string // ids of the records of an append, in order
	key    string   // idempotency key of the append, or ""
	// ifOffset is the condition of an append: the offset at which the partition must end; nil without a
	// condition.
	ifOffset *seb.Offset
	decision *decision // other conditions of an append; nil without them

	// The answer. failure is the code of an error; "" if the operation succeeded. outcome is the
	// outcome of a failed write.
	failure seb.Code
	outcome seb.Outcome
	detail  string
	ranges  []seb.Range // offsets that an append got

	consumer string
	to       string      // the position to which a set resets the consumer; "" if the set only creates the consumer
	offsets  seb.Offsets // the positions that a commit or a set sets
	version  string      // the version that a commit has as its condition, or ""
	created  bool        // the answer to a set says that the set created the consumer
	told     []positions // what the answer tells about consumers

	before seb.Offset   // the offset that a trim moves the start to
	apiKey format.KeyID // id of the API key
	config int64        // the retention in bytes that an update sets; each update sets a different one
	is     shape        // the topic's shape, from the answer to an update

	from      seb.Position
	records   []seen // records that a read found
	next, end seb.Offset
	start     seb.Offset // start of the partition; only from answers to trims, and errors about an offset out of range

	queue    string
	delay    *time.Duration // delay of an append or a nack
	reason   string         // reason of a nack
	lease    time.Duration  // the lease that a receive or an extension asks for
	tokens   []message      // the messages that the operation acknowledges, puts back or extends
	verdicts []seb.Code     // one for each token; "" if the broker accepted the token
	until    time.Duration  // the end of the extended leases
	messages []message      // messages that were received
	touched  int64          // how many records were purged or redriven
	with     *together      // the commit that the operation is a part of, or nil
}

// seen is a record that a read found.
type seen struct {
	offset seb.Offset
	id     string
}

func (o *op) acked() bool { return o.failure == "" }

// asks reports whether the operation is of a kind whose errors tell no outcome.
func (o *op) asks() bool {
	return o.kind == reads || o.kind == consumes || o.kind == describes || o.kind == lists || o.kind == receives || o.kind == extends
}

// String returns the operation's line in the story of a run.
func (o *op) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%-4s %-4s %s ", o.client, o.broker, o.via)
	switch o.kind {
	case appends:
		fmt.Fprintf(&s, "appends %v to %s/%d", o.values, o.topic, o.partition)
		if o.key != "" {
			fmt.Fprintf(&s, " by key %s", o.key)
		}
		if o.ifOffset != nil {
			fmt.Fprintf(&s, " if it ends at %d", *o.ifOffset)
		}
		if d := o.decision; d != nil {
			fmt.Fprintf(&s, " if %v, after %v", d.cut.Topics, d.after.Format("15:04:05.000000"))
		}
		if o.delay != nil {
			fmt.Fprintf(&s, " in %v", *o.delay)
		}
		for _, r := range o.ranges {
			fmt.Fprintf(&s, ": %d/%d+%d", r.Partition, r.Offset, r.Count)
		}
	case reads:
		fmt.Fprintf(&s, "reads %s/%d from %v", o.topic, o.partition, o.from)
		if o.acked() {
			fmt.Fprintf(&s, ": %v, next %d, end %d", o.records, o.next, o.end)
		}
	case trims:
		fmt.Fprintf(&s, "trims %s/%d before %d", o.topic, o.partition, o.before)
		if o.acked() {
			fmt.Fprintf(&s, ": start %d, end %d", o.start, o.end)
		}
	case updates:
		fmt.Fprintf(&s, "updates %s to %+v", o.topic, shape{o.partition, o.config})
		if o.acked() {
			fmt.Fprintf(&s, ": %+v", o.is)
		}
	case grants, revokes, shows:
		fmt.Fprintf(&s, "%ss API key %d", o.kind, o.apiKey)
	case consumes:
		fmt.Fprintf(&s, "consumes %s/%d as %s", o.topic, o.partition, o.consumer)
		if o.acked() {
			fmt.Fprintf(&s, ": %v, next %d", o.records, o.next)
		}
	case commits:
		fmt.Fprintf(&s, "commits %v for %s of %s", o.offsets, o.consumer, o.topic)
		if o.version != "" {
			fmt.Fprintf(&s, " if it has version %s", o.version)
		}
	case sets:
		fmt.Fprintf(&s, "sets %s of %s to %q %v", o.consumer, o.topic, o.to, o.offsets)
		if o.created {
			s.WriteString(", and creates it")
		}
	case describes, forgets:
		fmt.Fprintf(&s, "%ss %s of %s", o.kind, o.consumer, o.topic)
	case lists:
		fmt.Fprintf(&s, "lists the consumers of %s", o.topic)
	case receives, acks, nacks, extends, opens, pauses, resumes, redrives, purges, dissolves:
		o.writeQueue(&s)
	case creates, deletes:
		fmt.Fprintf(&s, "%ss %s", o.kind, o.topic)
	}
	for i := range o.told {
		fmt.Fprintf(&s, ": %v", &o.told[i])
	}
	if o.failure != "" {
		fmt.Fprintf(&s, ": %s %s (%s)", o.failure, o.outcome, o.detail)
	}
	return s.String()
}

// history has the operations, events and violations of a run.
type history struct {
	now   func() time.Duration
	begun time.Time

	mu         sync.Mutex
	ops        []*op
	notes      []note
	violations []string
	values     map[string]string // every value that was sent, by id
}

type note struct {
	at   time.Duration
	text string
}

func newHistory(now func() time.Duration) *history {
	return &history{now: now, values: map[string]string{}}
}

func (h *history) add(o *op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

func (h *history) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, note{h.now(), fmt.Sprintf(format, args...)})
}

// violate notes that an invariant does not hold.
func (h *history) violate(invariant, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := invariant + ": " + fmt.Sprintf(format, args...)
	h.violations = append(h.violations, text)
	h.notes = append(h.notes, note{h.now(), "VIOLATED " + text})
}

// send remembers a value that a client is about to send.
func (h *history) send(id, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.values[id] = value
}

// identify returns the id of a value that a client has read. ok is true if a client has sent exactly this
// value.
func (h *history) identify(value string) (id string, ok bool) {
	id, _, _ = strings.Cut(value, "|")
	h.mu.Lock()
	defer h.mu.Unlock()
	return id, h.values[id] == value
}

// write writes operations and notes in the order of their times.
func (h *history) write(w *strings.Builder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := slices.Clone(h.notes)
	for _, o := range h.ops {
		lines = append(lines, note{o.ret, fmt.Sprintf("%v  (asked at %v)", o, o.call)})
	}
	slices.SortStableFunc(lines, func(a, b note) int { return int(a.at - b.at) })
	for _, l := range lines {
		fmt.Fprintf(w, "%14v  %s\n", l.at, l.text)
	}
}
