package state

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb/internal/format"
)

func pushTo(url string) *format.QueuePush {
	return &format.QueuePush{
		URL: url, Secret: "whsec_AAAA", Stopped: "HTTP 410 Gone", TimeoutMS: 30_000, InFlight: 64,
		Headers: []format.PushHeader{{Name: "Authorization", Value: "Bearer x"}, {Name: "X-Empty"}},
	}
}

func commitOf(s *State, entries ...format.Entry) *format.Commit {
	return &format.Commit{Seq: s.Seq() + 1, Time: s.Time(), Entries: entries}
}

func TestQueueKnowsWhereItIsPushedTo(t *testing.T) {
	s := queueState(t)
	before := s.Memory()
	set := func(queue format.QueueID, p *format.QueuePush) *format.QueuePushSet {
		return &format.QueuePushSet{Queue: queue, Push: p}
	}
	mustApply(t, s, commitOf(s, set(1, pushTo("http://a/")), set(3, pushTo("http://c/"))))
	mustApply(t, s, commitOf(s, set(1, pushTo("http://longer/")), queueSet(5, 1, "new"), set(5, pushTo("http://e/")), set(4, nil)))
	for id, url := range map[format.QueueID]string{1: "http://longer/", 3: "http://c/", 5: "http://e/"} {
		if diff := cmp.Diff(pushTo(url), s.QueueByID(id).Push); diff != "" {
			t.Errorf("queue %d: %s", id, diff)
		}
	}
	if s.QueueByID(4).Push != nil || s.memory-before <= 3*int64(pushTo("http://a/").TextBytes()) {
		t.Errorf("queue 4 is pushed to %v; all take %d", s.QueueByID(4).Push, s.memory-before)
	}
	// A later change of the queue does not change the target, and a checkpoint keeps the target.
	mustApply(t, s, commitOf(s, queueSet(5, 1, "new"), owned(5, 1, 4)))
	snapshot := s.View().Encode()
	again := mustDecode(t, s.Seq(), snapshot)
	requireSame(t, again, s)
	if diff := cmp.Diff(pushTo("http://e/"), again.QueueByID(5).Push); diff != "" {
		t.Error(diff)
	}
	for cut := range snapshot {
		if _, err := Decode(s.Seq(), snapshot[:cut]); err == nil {
			t.Fatalf("%d of %d bytes are taken for a snapshot", cut, len(snapshot))
		}
	}
	mustApply(t, s, commitOf(s, set(1, nil), set(3, nil), &format.QueueDeleted{ID: 5}))
	if s.memory != before || s.QueueByID(1).Push != nil {
		t.Errorf("%d bytes, and %d before there was anything to push", s.memory, before)
	}
}

// pushedState returns a state that has queues with and without a target.
func pushedState(t testing.TB) *State {
	s := New()
	mustApply(t, s, commitOf(s,
		&format.TopicCreated{ID: 1, Partitions: 1, Name: "t"}, queueSet(1, 1, "a"), queueSet(2, 1, "b"), queueSet(3, 1, "c"),
		&format.QueuePushSet{Queue: 1, Push: pushTo("http://a/")}, owned(1, 1, 5),
		&format.QueuePushSet{Queue: 3, Push: &format.QueuePush{URL: "h", TimeoutMS: 1, InFlight: 1}},
	))
	return s
}

const pushGolden = "testdata/snapshot.4.push.golden"

// The file is a snapshot of version 4; it never changes.
func TestGoldenSnapshotOfPush(t *testing.T) {
	file, want := golden(t, pushGolden), pushedState(t)
	if v := want.View(); !v.Is(file) || string(v.withoutSessions()[1:]) != string(file[1:]) {
		t.Fatalf("encoded\n%x\nwant\n%x", v.withoutSessions(), file)
	}
	requireSame(t, mustDecode(t, want.Seq(), file), want)
}

func TestDraftKnowsWhereAQueueIsPushedTo(t *testing.T) {
	s := queueState(t)
	mustApply(t, s, commitOf(s, &format.QueuePushSet{Queue: 1, Push: pushTo("http://a/")}))
	d := s.Draft(s.Time())
	if p := d.QueuePush(1); p == nil || p.URL != "http://a/" {
		t.Errorf("it is %v", p)
	}
	if err := d.Take(&format.QueuePushSet{Queue: 1}); err != nil || d.QueuePush(1) != nil {
		t.Errorf("%v, %v", d.QueuePush(1), err)
	}
}

func TestTargetThatCanNotBeIsRefused(t *testing.T) {
	s := queueState(t)
	take := func(queue format.QueueID, change func(p *format.QueuePush)) error {
		p := pushTo("http://a/")
		change(p)
		return s.Draft(s.Time()).Take(&format.QueuePushSet{Queue: queue, Push: p})
	}
	if err := take(1, func(*format.QueuePush) {}); err != nil {
		t.Fatal(err)
	}
	many := make([]format.PushHeader, PushHeadersMax+1)
	for i := range many {
		many[i].Name = "X-" + strconv.Itoa(1000+i)
	}
	for name, change := range map[string]func(p *format.QueuePush){
		"no URL":          func(p *format.QueuePush) { p.URL = "" },
		"no requests":     func(p *format.QueuePush) { p.InFlight = 0 },
		"no timeout":      func(p *format.QueuePush) { p.TimeoutMS = 0 },
		"long timeout":    func(p *format.QueuePush) { p.TimeoutMS = QueueMSMax + 1 },
		"long texts":      func(p *format.QueuePush) { p.Secret = strings.Repeat("s", PushTextBytesMax) },
		"many headers":    func(p *format.QueuePush) { p.Headers = many },
		"unnamed header":  func(p *format.QueuePush) { p.Headers = []format.PushHeader{{}} },
		"headers falling": func(p *format.QueuePush) { slices.Reverse(p.Headers) },
		"header twice":    func(p *format.QueuePush) { p.Headers[1] = p.Headers[0] },
	} {
		if err := take(1, change); !errors.Is(err, ErrNonsense) || strings.Contains(err.Error(), "whsec") {
			t.Errorf("%s: %v", name, err)
		}
		p := pushTo("http://a/")
		change(p)
		r := &reader{b: appendPush(nil, p)}
		if decodePush(r); r.err == nil {
			t.Errorf("%s: read from a snapshot", name)
		}
	}
	if err := take(2, func(*format.QueuePush) {}); !errors.Is(err, ErrNonsense) {
		t.Errorf("a queue that is gone: %v", err)
	}
}
