package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
)

// shift is the past of queue 1, "jobs" of topic "t". Its three records have the keys k, k and none. It
// allows two attempts, keeps order by key, and has leases of ten seconds.
type shift struct {
	*past
	run   *simulation
	slots int
}

func newShift() *shift {
	p := &past{history: newHistory(func() time.Duration { return 0 }), log: []string{"a", "b", "c"}, lives: map[string]time.Duration{"A1": 0}}
	p.append("c", 1, "", 0, "a", "b", "c")
	p.topic = incarnation{name: "t", partitions: []partition{{ids: p.log, info: []recordInfo{{key: "k"}, {key: "k"}, {}}}}, queues: map[format.QueueID]*work{}, delayed: map[spot]delaying{}}
	s := &shift{past: p, run: &simulation{history: p.history, begun: time.UnixMicro(0)}}
	config := format.QueueConfig{LeaseMS: 10_000, Attempts: 2, Ordered: true, DeadLetterTopic: dead}
	s.log(2, &format.QueueSet{ID: 1, Topic: 1, Name: jobs, Config: config})
	s.log(3, &format.QueueOwned{Queue: 1, Epoch: 1, Windows: []format.Offset{100}})
	return s
}

// log adds entries to the log, in one commit at that second.
func (s *shift) log(at int, entries ...format.Entry) {
	s.slots++
	g := &deadLetters{sim: s.run}
	m := moment{time.Duration(at) * time.Second, format.Seq(s.slots)}
	for _, entry := range entries {
		if _, copied := entry.(*format.Batch); copied {
			g.copies = append(g.copies, deadLetter{"t", jobs, spot{0, 0}})
			continue
		}
		s.run.tellQueue(truth{1: &s.topic}, entry, m, m.Microseconds(), g)
	}
	g.check(m)
}

// do adds an operation with the queue, from second at to the next one.
func (s *shift) do(at int, what kind) *op {
	o := queueRef{"t", jobs}.op(what)
	o.client, o.broker, o.via, o.call = "w", "A1", viaLibrary, time.Duration(at)*time.Second
	o.ret = o.call + time.Second
	s.add(o)
	return o
}

func handed(offset seb.Offset, number uint32) message {
	return message{delivery: delivery{1, spot{0, offset}, number}, topic: "t", queueName: jobs, id: string(rune('a' + offset)), toldAttempt: int(number)}
}

// get adds a delivery with a lease of ten seconds.
func (s *shift) get(at int, offset seb.Offset, number uint32) *op {
	o := s.do(at, receives)
	m := handed(offset, number)
	m.until = o.ret + 10*time.Second
	o.messages = []message{m}
	return o
}

// say adds an answer for a delivery; verdict is the error of its token, or "".
func (s *shift) say(at int, what kind, offset seb.Offset, number uint32, verdict seb.Code) *op {
	o := s.do(at, what)
	o.tokens, o.verdicts = []message{handed(offset, number)}, []seb.Code{verdict}
	return o
}

func (s *shift) done(at int, offset format.Offset, number uint32) {
	s.log(at, &format.RecordsDone{Queue: 1, Runs: []format.Run{{Offset: offset, Count: 1, Number: number}}})
}

func (s *shift) attempted(at int, epoch format.Epoch, offset format.Offset, number uint32) {
	s.log(at, &format.RecordsAttempted{Queue: 1, Epoch: epoch, Attempts: []format.Attempt{{Offset: offset, Number: number}}})
}

func putBack(offset format.Offset, number uint32, dead bool, reason string) *format.RecordPutBack {
	return &format.RecordPutBack{Queue: 1, Attempt: format.Attempt{Offset: offset, Number: number}, NotBefore: 7e6, DeadLetter: dead, Reason: reason}
}

// work adds a delivery of a record and its acknowledgement.
func (s *shift) work(at int, offset seb.Offset) {
	s.get(at, offset, 1)
	s.say(at+1, acks, offset, 1, "")
	s.done(at+1, offset, 1)
}

// rest adds the work on all records that are left, at the end.
func (s *shift) rest() {
	for o := range seb.Offset(3) {
		if at := (spot{0, o}); !s.topic.queues[1].over(at) {
			last, _ := s.topic.queues[1].last(at)
			last = max(1, last)
			s.say(90+int(o), acks, o, last, "")
			s.done(90+int(o), o, last)
		}
	}
}

// fails adds that the first record was put back after its first delivery, and handed out again.
func (s *shift) fails() {
	s.get(4, 0, 1)
	s.say(5, nacks, 0, 1, "").reason = "x"
	s.log(5, putBack(0, 1, false, "x"))
	s.attempted(8, 1, 0, 2)
	s.get(8, 0, 2)
}

// The checker finds every kind of wrong history of a queue, and accepts correct ones.
func TestShiftsThatDoNotAddUpAreFound(t *testing.T) {
	late := delaying{from: moment{20 * time.Second, 1}, written: 5 * time.Second, delay: 30 * time.Second}
	tests := map[string]struct {
		change func(*shift)
		want   string // "" means that nothing is found
	}{
		"the truth":                  {func(s *shift) { s.work(4, 0); s.work(6, 1) }, ""},
		"a record that is put back":  {(*shift).fails, ""},
		"a delivery that nobody got": {func(s *shift) { s.attempted(8, 1, 0, 2) }, ""},
		"one delivery twice":         {func(s *shift) { s.get(4, 0, 1); s.get(30, 0, 1) }, "OwnNumber"},
		"one before the log has it":  {func(s *shift) { s.get(4, 0, 1); s.get(30, 0, 2) }, "OwnNumber"},
		"one beyond the window": {func(s *shift) {
			s.topic.queues[1].parts[0].limits[0].upTo = 0
			s.get(4, 0, 1)
		}, "OwnNumber"},
		"one that the log passes over":     {func(s *shift) { s.attempted(8, 1, 0, 3) }, "OwnNumber"},
		"one of a record that is done":     {func(s *shift) { s.work(4, 0); s.attempted(8, 1, 0, 2) }, "OwnNumber"},
		"one too many":                     {func(s *shift) { s.fails(); s.attempted(40, 1, 0, 3) }, "AtMost"},
		"one that is told as another try":  {func(s *shift) { s.get(4, 0, 1).messages[0].toldAttempt = 2 }, "AtMost"},
		"one while another has the record": {func(s *shift) { s.get(4, 0, 1); s.attempted(9, 1, 0, 2); s.get(9, 0, 2) }, "NotBeforeDue"},
		"one when its lease ended":         {func(s *shift) { s.get(4, 0, 1); s.attempted(15, 1, 0, 2); s.get(15, 0, 2) }, ""},
		"one when that was extended": {func(s *shift) {
			s.get(4, 0, 1)
			s.say(6, extends, 0, 1, "").until = 17 * time.Second
			s.attempted(16, 1, 0, 2)
			s.get(16, 0, 2)
		}, "NotBeforeDue"},
		"one before it is to be": {func(s *shift) {
			s.get(4, 0, 1)
			s.say(5, nacks, 0, 1, "").reason = "x"
			s.log(5, putBack(0, 1, false, "x"))
			s.attempted(6, 1, 0, 2)
			s.get(6, 0, 2)
		}, "NotBeforeDue"},
		"one too soon after a takeover": {func(s *shift) {
			s.get(4, 0, 1)
			s.log(13, &format.QueueOwned{Queue: 1, Epoch: 2, Windows: []format.Offset{100}})
			s.attempted(16, 2, 0, 2)
			s.get(16, 0, 2)
		}, "NotBeforeDue"},
		"one a lease after a takeover that the owner before had not heard of": {func(s *shift) {
			s.log(7, &format.QueueOwned{Queue: 1, Epoch: 2, Windows: []format.Offset{100}})
			s.get(8, 0, 1)
			s.attempted(17, 2, 0, 2)
			s.get(17, 0, 2)
		}, ""},
		"one sooner than that": {func(s *shift) {
			s.log(7, &format.QueueOwned{Queue: 1, Epoch: 2, Windows: []format.Offset{100}})
			s.get(8, 0, 1)
			s.attempted(16, 2, 0, 2)
			s.get(16, 0, 2)
		}, "NotBeforeDue"},
		"one too soon for an owner that must have heard of the next": {func(s *shift) {
			s.log(7, &format.QueueOwned{Queue: 1, Epoch: 2, Windows: []format.Offset{100}})
			s.get(9, 0, 1)
			s.attempted(17, 2, 0, 2)
			s.get(17, 0, 2)
		}, "NotBeforeDue"},
		"one of the next owner itself that comes too soon": {func(s *shift) {
			s.topic.queues[1].parts[0].limits[0].upTo = 0
			s.topic.queues[1].parts[0].limit = 0
			s.log(7, &format.QueueOwned{Queue: 1, Epoch: 2, Windows: []format.Offset{100}})
			s.get(8, 0, 1)
			s.attempted(17, 2, 0, 2)
			s.get(17, 0, 2)
		}, "NotBeforeDue"},
		"one as the next owner was told": {func(s *shift) {
			s.get(4, 0, 1)
			s.log(13, &format.QueueOwned{Queue: 1, Epoch: 2, Windows: []format.Offset{100}})
			s.say(14, extends, 0, 1, "").until = 15 * time.Second
			s.attempted(16, 2, 0, 2)
			s.get(16, 0, 2)
		}, ""},
		"one sooner than the next owner was told": {func(s *shift) {
			s.get(4, 0, 1)
			s.log(13, &format.QueueOwned{Queue: 1, Epoch: 2, Windows: []format.Offset{100}})
			s.say(15, extends, 0, 1, "").until = 60 * time.Second
			s.attempted(40, 2, 0, 2)
			s.get(40, 0, 2)
		}, "NotBeforeDue"},
		"one sooner than an owner said that was followed": {func(s *shift) {
			s.get(4, 0, 1)
			s.log(13, &format.QueueOwned{Queue: 1, Epoch: 2, Windows: []format.Offset{100}})
			s.say(14, extends, 0, 1, "").until = 60 * time.Second
			s.attempted(40, 2, 0, 2)
			s.get(40, 0, 2)
		}, ""},
		"one before it is due": {func(s *shift) {
			s.topic.delayed[spot{0, 2}] = delaying{delay: time.Minute}
			s.get(4, 2, 1)
		}, "NotBeforeDue"},
		"one that is due by a commit that came late into the log": {func(s *shift) {
			s.log(25, &format.QueueOwned{Queue: 1, Epoch: 2, Windows: []format.Offset{100}})
			s.topic.delayed[spot{0, 2}] = late
			s.get(33, 2, 1)
		}, ""},
		"one before it is due by such a commit": {func(s *shift) {
			s.log(25, &format.QueueOwned{Queue: 1, Epoch: 2, Windows: []format.Offset{100}})
			s.topic.delayed[spot{0, 2}] = late
			s.get(31, 2, 1)
		}, "NotBeforeDue"},
		"one that the owner knows of since such a commit": {func(s *shift) {
			s.topic.delayed[spot{0, 2}] = late
			s.get(33, 2, 1)
		}, "NotBeforeDue"},
		"a delay that the log lacks":  {func(s *shift) { s.history.ops[0].delay = new(time.Minute) }, "NotBeforeDue"},
		"another record":              {func(s *shift) { s.get(4, 0, 1).messages[0].id = "b" }, "QueueAsAsked"},
		"two of a key":                {func(s *shift) { s.get(4, 0, 1); s.get(5, 1, 1) }, "KeysInOrder"},
		"others beside a key":         {func(s *shift) { s.get(4, 0, 1); s.get(5, 2, 1) }, ""},
		"an owner that was followed":  {func(s *shift) { s.log(9, &format.QueueOwned{Queue: 1, Epoch: 2}); s.attempted(20, 1, 0, 2) }, "Fenced"},
		"an owner out of turn":        {func(s *shift) { s.log(9, &format.QueueOwned{Queue: 1, Epoch: 3}) }, "Fenced"},
		"an ack that is not there":    {func(s *shift) { s.get(4, 0, 1); s.say(5, acks, 0, 1, "") }, "AckDurable"},
		"an ack that comes too late":  {func(s *shift) { s.get(4, 0, 1); s.say(5, acks, 0, 1, ""); s.done(7, 0, 1) }, "AckDurable"},
		"work that nobody did":        {func(s *shift) { s.get(4, 0, 1); s.done(7, 0, 1) }, "QueueAsAsked"},
		"work that was refused":       {func(s *shift) { s.get(4, 0, 1); s.done(5, 0, 1); s.say(5, acks, 0, 1, seb.CodeLeaseLost) }, "QueueAsAsked"},
		"work of the one before":      {func(s *shift) { s.fails(); s.say(10, acks, 0, 1, ""); s.done(10, 0, 1) }, "LastCounts"},
		"work that is done twice":     {func(s *shift) { s.work(4, 0); s.done(9, 0, 1) }, "LastCounts"},
		"a refusal of the last":       {func(s *shift) { s.get(4, 0, 1); s.say(5, acks, 0, 1, seb.CodeLeaseLost) }, "LastCounts"},
		"a refusal of the one before": {func(s *shift) { s.fails(); s.say(10, acks, 0, 1, seb.CodeLeaseLost) }, ""},
		"a refusal of an extension":   {func(s *shift) { s.get(4, 0, 1); s.say(5, extends, 0, 1, seb.CodeLeaseLost) }, "LastCounts"},
		"a nack for another reason":   {func(s *shift) { s.get(4, 0, 1); s.say(5, nacks, 0, 1, ""); s.log(5, putBack(0, 1, false, "x")) }, "AckDurable"},
		"a dead letter":               {func(s *shift) { s.fails(); s.log(30, putBack(0, 2, true, reasonLeaseLost), &format.Batch{}) }, ""},
		"one without a copy":          {func(s *shift) { s.fails(); s.log(30, putBack(0, 2, true, reasonLeaseLost)) }, "ParkedOnce"},
		"one with its copy later":     {func(s *shift) { s.log(30, &format.Batch{}) }, "ParkedOnce"},
		"one too early":               {func(s *shift) { s.get(4, 0, 1); s.log(30, putBack(0, 1, true, reasonLeaseLost), &format.Batch{}) }, "AtMost"},
		"one that is tried for ever":  {func(s *shift) { s.fails(); s.log(30, putBack(0, 2, false, "x")) }, "AtMost"},
		"a redrive that nobody wanted": {func(s *shift) {
			s.fails()
			s.log(30, putBack(0, 2, true, reasonLeaseLost), &format.Batch{})
			s.log(31, &format.RecordsRedriven{Queue: 1, Offsets: []format.Offset{0}})
			s.attempted(32, 1, 0, 3)
			s.get(32, 0, 3).messages[0].toldAttempt = 1
		}, "QueueAsAsked"},
		"an answer from before a redrive that is refused": {func(s *shift) {
			s.fails()
			s.log(30, putBack(0, 2, true, reasonLeaseLost), &format.Batch{})
			s.log(31, &format.RecordsRedriven{Queue: 1, Offsets: []format.Offset{0}})
			s.do(31, redrives).touched = 1
			s.say(40, acks, 0, 2, seb.CodeLeaseLost)
			s.attempted(42, 1, 0, 3)
			s.get(42, 0, 3).messages[0].toldAttempt = 1
			s.attempted(60, 1, 0, 4)
			s.get(60, 0, 4).messages[0].toldAttempt = 2
			s.log(80, putBack(0, 4, true, reasonLeaseLost), &format.Batch{})
		}, ""},
		"one from after it that is refused": {func(s *shift) {
			s.fails()
			s.log(30, putBack(0, 2, true, reasonLeaseLost), &format.Batch{})
			s.log(31, &format.RecordsRedriven{Queue: 1, Offsets: []format.Offset{0}})
			s.do(31, redrives).touched = 1
			s.attempted(32, 1, 0, 3)
			s.get(32, 0, 3).messages[0].toldAttempt = 1
			s.say(40, acks, 0, 3, seb.CodeLeaseLost)
		}, "LastCounts"},
		"an answer from before a redrive": {func(s *shift) {
			s.fails()
			s.log(30, putBack(0, 2, true, reasonLeaseLost), &format.Batch{})
			s.log(31, &format.RecordsRedriven{Queue: 1, Offsets: []format.Offset{0}})
			s.do(31, redrives).touched = 1
			s.say(32, acks, 0, 2, "")
			s.done(32, 0, 2)
		}, "LastCounts"},
		"a redrive": {func(s *shift) {
			s.fails()
			s.log(30, putBack(0, 2, true, reasonLeaseLost), &format.Batch{})
			s.log(31, &format.RecordsRedriven{Queue: 1, Offsets: []format.Offset{0}})
			s.do(31, redrives).touched = 1
			s.attempted(32, 1, 0, 3)
			s.get(32, 0, 3).messages[0].toldAttempt = 1
		}, ""},
		"a purge":                         {func(s *shift) { s.log(5, &format.QueuePurged{Queue: 1, Before: 3}); s.do(5, purges).touched = 3 }, ""},
		"a purge that nobody wanted":      {func(s *shift) { s.log(5, &format.QueuePurged{Queue: 1, Before: 3}) }, "QueueAsAsked"},
		"a purge that was not done":       {func(s *shift) { s.do(5, purges).touched = 3 }, "AckDurable"},
		"a pause that was not done":       {func(s *shift) { s.do(5, pauses) }, "AckDurable"},
		"a deletion nobody wanted":        {func(s *shift) { s.log(5, &format.QueueDeleted{ID: 1}) }, "QueueAsAsked"},
		"a queue that is said to be gone": {func(s *shift) { s.do(5, receives).failure = seb.CodeQueueNotFound }, "LossIsLoud"},
		"a pause that does not count":     {func(s *shift) { s.pause(5); s.get(7, 0, 1) }, "QueueAsAsked"},
		"a part of a commit":              {func(s *shift) { s.together(6) }, ""},
		"half of a commit":                {func(s *shift) { s.together(5) }, "AllOrNothing"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newShift()
			test.change(s)
			s.rest()
			got := s.check()
			if test.want == "" && len(got) > 0 {
				t.Fatalf("nothing is wrong, and yet: %v", got)
			}
			if test.want != "" && !strings.HasPrefix(strings.Join(got, "; "), test.want) {
				t.Fatalf("found %v, want %s", got, test.want)
			}
		})
	}
}

func (s *shift) pause(at int) {
	w := s.topic.queues[1]
	config := w.config
	config.Paused = true
	s.log(at, &format.QueueSet{ID: 1, Topic: 1, Name: jobs, Config: config})
	s.do(at, pauses)
}

// together adds a commit that acknowledges the first record at 5 s and appends d. In the log, d came
// with that slot.
func (s *shift) together(slot format.Seq) {
	s.get(4, 0, 1)
	s.log(4)
	s.log(4)
	s.log(4)
	a := s.say(5, acks, 0, 1, "")
	o := s.append("w", 5, "", 3, "d")
	a.with = &together{append: o, ack: a}
	s.past.log = append(s.past.log, "d")
	s.topic.partitions[0].ids = s.past.log
	s.topic.partitions[0].info = append(s.topic.partitions[0].info, recordInfo{at: moment{5 * time.Second, slot}})
	s.done(5, 0, 1)
	s.work(20, 3)
}

// The checker finds records that no worker has done at the end.
func TestWorkThatIsLeftIsFound(t *testing.T) {
	s := newShift()
	s.work(4, 0)
	if got := strings.Join(s.check(), "; "); !strings.HasPrefix(got, "NothingPassed") {
		t.Fatalf("found %q", got)
	}
}

// Each record that is done must have exactly one result, and other records none.
func TestThingsThatAreMadeInVainAreFound(t *testing.T) {
	tests := map[string]struct {
		made map[string]seb.Offset // the record of each result
		log  []string              // the results that are in the log
		want string                // "" means that nothing is found
	}{
		"the truth":              {map[string]seb.Offset{"x": 0}, []string{"x"}, ""},
		"a try in vain":          {map[string]seb.Offset{"x": 0, "y": 0}, []string{"y"}, ""},
		"two of one record":      {map[string]seb.Offset{"x": 0, "y": 0}, []string{"x", "y"}, "ExactlyOnce"},
		"none":                   {map[string]seb.Offset{"x": 0}, nil, "ExactlyOnce"},
		"one of what isn't done": {map[string]seb.Offset{"x": 0, "y": 1}, []string{"x", "y"}, "ExactlyOnce"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := &incarnation{name: "t", partitions: []partition{{ids: []string{"a", "b"}}}}
			w := &work{id: 1, name: exactlyOnce, of: in}
			w.job(spot{0, 0}).done = true
			in.queues = map[format.QueueID]*work{1: w}
			x := &checker{
				sim: &simulation{sources: map[string]delivery{}}, history: newHistory(func() time.Duration { return 0 }),
				final: &log{all: truth{1: in}}, at: map[string][]position{},
			}
			for id, of := range test.made {
				x.sim.sources[id] = delivery{1, spot{0, of}, 1}
			}
			for i, id := range test.log {
				x.at[id] = append(x.at[id], position{place{made, 0}, seb.Offset(i)})
			}
			x.checkMade()
			if got := strings.Join(x.history.violations, "; "); (got == "") != (test.want == "") || !strings.HasPrefix(got, test.want) {
				t.Fatalf("found %q, want %q", got, test.want)
			}
		})
	}
}
