package push_test

import (
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/loglines"
	"github.com/simple-event-broker/seb/objstore"
)

func TestPushedRecordIsRetriedAndThenDeadLettered(t *testing.T) {
	h := newHook(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Webhook-Signature") == "" || r.Header.Get("Seb-Queue") != "work" {
			w.WriteHeader(http.StatusOK) // this would count as done
			return
		}
		http.Error(w, "no such customer", http.StatusUnprocessableEntity)
	})
	b := open(t, objstore.NewMemory(), pushes())
	mustCreateTopic(t, b, "dead", 1)
	deliver(t, b)
	q := pushedQueue(t, b, seb.QueueUpdate{
		MaxAttempts: ptr(3), BackoffMin: ptr(10 * time.Millisecond), BackoffMax: ptr(20 * time.Millisecond), DeadLetterTopic: ptr("dead"),
	}, h.URL)
	appendValues(t, b, "a")
	h.want(t, "a#1")
	h.want(t, "a#2")
	h.want(t, "a#3")
	wantDone(t, q, 1)
	dead, _, _, err := q.Dead(t.Context(), seb.DeadOptions{})
	if err != nil || len(dead) != 1 || !strings.Contains(dead[0].Reason, "422 Unprocessable Entity: no such customer") {
		t.Errorf("%+v, %v", dead, err)
	}
	f, err := b.Fetch(t.Context(), "dead", 0, seb.Earliest, seb.FetchOptions{})
	if err != nil || len(f.Records) != 1 || string(f.Records[0].Value) != "a" {
		t.Errorf("%+v, %v", f, err)
	}
	h.wantNothingMore(t)
}

// A push that begins gives its queue defaults for pushes, unless somebody chose other values.
func TestNewPushChangesTheDefaultsOfItsQueue(t *testing.T) {
	b := open(t, objstore.NewMemory(), pushes())
	mustCreateTopic(t, b, "t", 1)
	config := func(q *seb.Queue) seb.QueueConfig {
		t.Helper()
		info, err := q.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.Config
	}
	const url = "http://127.0.0.1:1/"
	for name, u := range map[string]seb.QueueUpdate{
		"attempts": {MaxAttempts: ptr(6)}, "backoff": {BackoffMin: ptr(2 * time.Second)}, "longest": {BackoffMax: ptr(2 * time.Hour)},
	} {
		q := b.Queue("t", name)
		mustSet(t, q, u)
		before := config(q)
		if mustPush(t, q, url); config(q) != before {
			t.Errorf("%s: %+v, not %+v", name, config(q), before)
		}
	}
	q := b.Queue("t", "new")
	mustSet(t, q, seb.QueueUpdate{Lease: ptr(time.Minute), Order: ptr(seb.OrderKey)})
	mustPush(t, q, url)
	want := seb.QueueConfig{
		Lease: time.Minute, Order: seb.OrderKey, MaxAttempts: seb.PushedMaxAttemptsDefault,
		BackoffMin: seb.QueueBackoffMinDefault, BackoffMax: seb.PushedBackoffMaxDefault,
	}
	if config(q) != want {
		t.Errorf("a new push: %+v, not %+v", config(q), want)
	}
	// A push that exists keeps what it has.
	mustSet(t, q, seb.QueueUpdate{MaxAttempts: ptr(seb.QueueMaxAttemptsDefault), BackoffMax: ptr(seb.QueueBackoffMaxDefault)})
	before := config(q)
	if mustPush(t, q, url+"other"); config(q) != before {
		t.Errorf("an old push: %+v, not %+v", config(q), before)
	}
}

// Each commit in which records of a pushed queue die has a line in the log of the queue's owner.
func TestDeathOfPushedRecordsIsLoggedAndCounted(t *testing.T) {
	h := newHook(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no such customer", http.StatusUnprocessableEntity)
	})
	opts := pushes()
	log := &lockedBuffer{}
	opts.Logger = loglines.Text(t, log, slog.LevelInfo)
	b := open(t, objstore.NewMemory(), opts)
	deliver(t, b)
	q := pushedQueue(t, b, seb.QueueUpdate{MaxAttempts: ptr(2), BackoffMin: ptr(time.Duration(0)), BackoffMax: ptr(time.Duration(0))}, h.URL)
	worked := b.Queue("t", "worked")
	mustSet(t, worked, seb.QueueUpdate{MaxAttempts: ptr(1)})
	appendValues(t, b, "a")
	wantDone(t, q, 1)
	got, err := worked.Receive(t.Context(), seb.ReceiveOptions{})
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	if err := worked.Nack(t.Context(), seb.NackOptions{}, got[0].Token); err != nil {
		t.Fatal(err)
	}
	want := `level=WARN msg="a pushed record died: its last attempt failed, and it is a dead letter now" topic=t queue=work partition=0 offset=0 attempts=2 why="HTTP 422 Unprocessable Entity: no such customer" hint="list dead letters with seb queue dead t work"`
	if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, want) {
		t.Errorf("the log is\n%s", text)
	}
	for _, family := range b.Metrics() {
		if family.Name != "seb_queue_dead_letters_total" {
			continue
		}
		if len(family.Series) != 2 || family.Series[0].Value != 1 || family.Series[1].Value != 1 {
			t.Errorf("%+v", family)
		}
		return
	}
	t.Error("no metric counts dead letters")
}

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestSlowTargetHoldsUpItsOwnQueueAlone(t *testing.T) {
	release := make(chan struct{})
	slow := newHook(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	fast := newHook(t, status(http.StatusOK))
	b := open(t, objstore.NewMemory(), pushes())
	deliver(t, b)
	q := pushedQueue(t, b, seb.QueueUpdate{}, slow.URL)
	if _, _, _, err := q.SetPush(t.Context(), seb.PushUpdate{MaxInFlight: ptr(2)}); err != nil {
		t.Fatal(err)
	}
	other := b.Queue("t", "other")
	mustSet(t, other, seb.QueueUpdate{})
	mustPush(t, other, fast.URL)
	appendValues(t, b, "a", "b", "c", "d", "e")
	slow.want(t, "a#1", "b#1")
	fast.want(t, "a#1", "b#1", "c#1", "d#1", "e#1")
	wantDone(t, other, 0)
	slow.wantNothingMore(t)
	close(release)
	slow.want(t, "c#1", "d#1", "e#1")
	wantDone(t, q, 0)
}

func TestTargetThatAsksForTimeIsLeftAlone(t *testing.T) {
	h := newHook(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	b := open(t, objstore.NewMemory(), pushes())
	deliver(t, b)
	q := pushedQueue(t, b, seb.QueueUpdate{BackoffMin: ptr(time.Millisecond), BackoffMax: ptr(time.Millisecond)}, h.URL)
	appendValues(t, b, "a")
	h.want(t, "a#1")
	began := time.Now()
	h.set(status(http.StatusOK))
	appendValues(t, b, "b")
	h.want(t, "a#2", "b#1")
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("asked again after %v", took)
	}
	wantDone(t, q, 0)
}

func TestTargetThatIsGoneIsPushedToNoMoreAlsoAfterARestart(t *testing.T) {
	h := newHook(t, status(http.StatusGone))
	store := objstore.NewMemory()
	b := openOnly(t, store, pushes())
	end := deliver(t, b)
	// A record that is with a target when its broker ends comes again after a lease.
	q := pushedQueue(t, b, seb.QueueUpdate{Lease: ptr(time.Second), BackoffMin: ptr(time.Millisecond), BackoffMax: ptr(time.Millisecond)}, h.URL)
	appendValues(t, b, "a", "b", "c")
	stopped := func(q *seb.Queue) string {
		p, err := q.Push(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return p.Stopped
	}
	eventually(t, func() string {
		if why := stopped(q); !strings.Contains(why, "410 Gone") {
			return "the push is stopped because of " + why
		}
		return ""
	})
	end()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for len(h.came) > 0 {
		<-h.came // up to three requests were under way
	}
	h.set(status(http.StatusOK))
	b = open(t, store, pushes())
	deliver(t, b)
	q = b.Queue("t", "work")
	marker := newHook(t, status(http.StatusOK)) // when this hook has all records, the first one would have had time to get some
	other := b.Queue("t", "other")
	mustSet(t, other, seb.QueueUpdate{})
	mustPush(t, other, marker.URL)
	marker.want(t, "a#1", "b#1", "c#1")
	h.wantNothingMore(t)
	if why := stopped(q); !strings.Contains(why, "410 Gone") {
		t.Errorf("after a restart the push is stopped because of %q", why)
	}
	if _, err := q.ResumePush(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantDone(t, q, 0)
}

// A target answers 410 (Gone) to one request while another is under way. The push must stop at once. If
// it stopped only after the slow request had ended, it would undo a change of the target made meanwhile.
func TestTargetThatIsGoneIsKnownBeforeItsOtherRequestsEnd(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	h := newHook(t, func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-release
	})
	end := sync.OnceFunc(func() { close(release) })
	defer end()
	b := open(t, objstore.NewMemory(), pushes())
	deliverWith(t, b, seb.PushOptions{})
	q := pushedQueue(t, b, seb.QueueUpdate{}, h.URL)
	appendValues(t, b, "slow")
	<-arrived
	h.set(status(http.StatusGone))
	appendValues(t, b, "gone")
	eventually(t, func() string {
		if p, err := q.Push(t.Context()); err != nil || p.Stopped == "" {
			return "nobody knows that the target is gone"
		}
		return ""
	})
	h.set(status(http.StatusOK))
	if _, err := q.ResumePush(t.Context()); err != nil {
		t.Fatal(err)
	}
	end()
	wantDone(t, q, 0)
	if p, err := q.Push(t.Context()); err != nil || p.Stopped != "" {
		t.Errorf("it is stopped after it was resumed: %+v, %v", p, err)
	}
}

func TestChangesOfAPushTakeEffectAtOnce(t *testing.T) {
	one, two := newHook(t, status(http.StatusOK)), newHook(t, status(http.StatusOK))
	b := open(t, objstore.NewMemory(), pushes())
	deliver(t, b)
	q := pushedQueue(t, b, seb.QueueUpdate{}, one.URL)
	appendValues(t, b, "a")
	one.want(t, "a#1")
	mustPush(t, q, two.URL)
	appendValues(t, b, "b")
	two.want(t, "b#1")
	mustSet(t, q, seb.QueueUpdate{Paused: ptr(true)})
	appendValues(t, b, "c")
	mustSet(t, q, seb.QueueUpdate{Paused: ptr(false)})
	two.want(t, "c#1")
	wantDone(t, q, 0)
	if err := q.RemovePush(t.Context()); err != nil {
		t.Fatal(err)
	}
	appendValues(t, b, "d")
	eventually(t, func() string { // once the pusher has ended
		ms := mustReceive(t, q, 1, 0)
		if len(ms) == 0 {
			return "d is not handed out"
		}
		mustAck(t, q, ms...)
		return ""
	})
	mustPush(t, q, one.URL)
	appendValues(t, b, "e")
	one.want(t, "e#1")
	if err := q.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustSet(t, q, seb.QueueUpdate{})
	if _, err := q.Push(t.Context()); seb.CodeOf(err) != seb.CodePushNotFound {
		t.Errorf("a queue of the same name is pushed: %v", err)
	}
	one.wantNothingMore(t)
	two.wantNothingMore(t)
}

func TestPushWaitsForRequestsUnderWayBeforeItEnds(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	h := newHook(t, func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-release
	})
	store := objstore.NewMemory()
	b := openOnly(t, store, pushes())
	q := pushedQueue(t, b, seb.QueueUpdate{}, h.URL)
	end := deliverWith(t, b, seb.PushOptions{Grace: arrivalMax})
	appendValues(t, b, "a")
	<-arrived
	time.AfterFunc(50*time.Millisecond, func() { close(release) })
	end()
	wantDone(t, q, 0)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// A host name is resolved when a connection is made, so setting the URL does not check its addresses.
func TestPushGoesToNoPrivateAddressUnlessThatIsAllowed(t *testing.T) {
	h := newHook(t, status(http.StatusOK))
	byName := strings.Replace(h.URL, "127.0.0.1", "localhost", 1)
	o := pushes()
	o.PushNetworks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	b := open(t, objstore.NewMemory(), o)
	deliver(t, b)
	q := pushedQueue(t, b, seb.QueueUpdate{MaxAttempts: ptr(1)}, byName)
	if _, _, _, err := q.SetPush(t.Context(), seb.PushUpdate{URL: &h.URL}); seb.CodeOf(err) != seb.CodeInvalidRequest {
		t.Errorf("the address was taken: %v", err)
	}
	appendValues(t, b, "a")
	wantBlocked(t, q, "--push-allow")
	h.wantNothingMore(t)
}

func TestBrokerDeliversPushedRecordsOnceAtATime(t *testing.T) {
	b := open(t, objstore.NewMemory(), pushes())
	h := newHook(t, status(http.StatusOK))
	end := deliver(t, b)
	pushedQueue(t, b, seb.QueueUpdate{}, h.URL)
	appendValues(t, b, "a")
	h.want(t, "a#1") // so the push has begun
	if err := b.DeliverPushed(t.Context(), seb.PushOptions{}); seb.CodeOf(err) != seb.CodeInvalidRequest {
		t.Errorf("a second one: %v", err)
	}
	end()
	deliver(t, b)
	appendValues(t, b, "b")
	h.want(t, "b#1")
}

func TestDeniedNetworksAreNeverPushedTo(t *testing.T) {
	h := newHook(t, status(http.StatusOK))
	store := objstore.NewMemory()
	allowing := openOnly(t, store, pushes())
	pushedQueue(t, allowing, seb.QueueUpdate{MaxAttempts: ptr(1)}, h.URL)
	if err := allowing.Close(); err != nil {
		t.Fatal(err)
	}
	o := pushes()
	o.PushDenied = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/24")}
	b := open(t, store, o)
	q := b.Queue("t", "work")
	if _, _, _, err := q.SetPush(t.Context(), seb.PushUpdate{URL: &h.URL}); seb.CodeOf(err) != seb.CodeInvalidRequest {
		t.Errorf("a target in a denied network is refused with %v", err)
	}
	deliver(t, b)
	appendValues(t, b, "a")
	wantBlocked(t, q, "--push-deny")
	h.wantNothingMore(t)
	o.PushDenied = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")}
	if _, err := seb.Open(t.Context(), store, o); seb.CodeOf(err) != seb.CodeInvalidRequest {
		t.Errorf("a network with host bits is refused with %v", err)
	}
}
