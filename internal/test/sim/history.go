package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/simple-event-broker/seb"
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
	grants  kind = "grant"  // an API key
	revokes kind = "revoke" // one
	shows   kind = "show"   // one, to be let in

	// With a consumer.
	consumes  kind = "consume" // reads with it, which may create it
	commits   kind = "commit"
	sets      kind = "set" // creates or resets it
	describes kind = "describe"
	lists     kind = "list" // all of a topic
	forgets   kind = "forget"

	// With a queue.
	receives  kind = "receive"
	acks      kind = "ack"
	nacks     kind = "nack"
	extends   kind = "extend"
	opens     kind = "open" // creates it
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

// op is one operation of one client, and all that the client learned from its answer.
type op struct {
	client string
	broker string // the life it was sent to
	via    string
	kind   kind
	topic  string
	// partition is that of a read or trim. For an append it is -1 if the broker chooses;
	// for an update the new number of partitions, 0 if that stays; for a read with a
	// consumer that of the records, or -1 if any will do.
	partition int
	call, ret time.Duration

	values []string // ids of what an append sends, in order
	key    string   // its idempotency key, "" if it has none
	// ifOffset is the end that an append insists on, or nil.
	ifOffset *seb.Offset

	// The answer. A failure is an error's code, "" if the operation succeeded;
	// outcome is that of a failed write.
	failure seb.Code
	outcome seb.Outcome
	detail  string
	ranges  []seb.Range // of an append

	consumer string
	to       string      // where a set moves it, "" if it only creates it
	offsets  seb.Offsets // that are committed or set
	version  string      // that the commit insists on, or ""
	created  bool        // the answer to a set tells that it created the consumer
	told     []positions // what an answer tells of consumers

	before seb.Offset // to which a trim moves the start
	apiKey uint64     // its id
	config int64      // the retention in bytes that an update sets; no two set the same
	is     shape      // of a topic, from the answer to an update

	from      seb.Position
	records   []seen // of a read
	next, end seb.Offset
	start     seb.Offset // beside end, of a trim, and of what was out of range

	queue    string
	delay    *time.Duration // of an append, or a nack
	reason   string         // of a nack
	lease    time.Duration  // that a receive or an extension asks for
	tokens   []message      // the messages that it answers for
	verdicts []seb.Code     // one for each token, "" if the broker took it
	until    time.Duration  // the end of the extended leases
	messages []message      // that were received
	touched  int64          // how many records were purged or redriven
	with     *together      // the commit that it is a part of, or nil
}

// seen is a record that a read found.
type seen struct {
	offset seb.Offset
	id     string
}

func (o *op) acked() bool { return o.failure == "" }

// asks reports whether an operation only asks, so that it has no outcome.
func (o *op) asks() bool {
	return o.kind == reads || o.kind == consumes || o.kind == describes || o.kind == lists || o.kind == receives || o.kind == extends
}

// String is the operation's line in a story.
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
	values     map[string]string // every value ever sent, by id
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

// violate adds that an invariant does not hold.
func (h *history) violate(invariant, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := invariant + ": " + fmt.Sprintf(format, args...)
	h.violations = append(h.violations, text)
	h.notes = append(h.notes, note{h.now(), "VIOLATED " + text})
}

// send remembers a value.
func (h *history) send(id, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.values[id] = value
}

// identify returns the id of a value that was read, and whether it was sent so.
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
