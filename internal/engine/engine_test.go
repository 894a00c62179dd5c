package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/mesh"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/internal/test/loglines"
	"github.com/simple-event-broker/seb/internal/test/meshtest"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// timed is a Batching that commits a batch set after 10 ms.
type timed struct{}

func (timed) Wait(open engine.Fill) time.Duration { return 10*time.Millisecond - open.Age }
func (timed) Admits(engine.Fill) bool             { return true }

func options(t testing.TB) engine.Options {
	began := time.Now()
	return engine.Options{
		Batching: timed{}, AppendTimeout: 30 * time.Second, StaleMax: time.Second,
		CheckpointCommits: 1000, CheckpointLarge: 1 << 20, IdempotencyKeys: 100,
		Memory: 16 << 20, StateMemory: 16 << 20, Session: format.SessionID{1}, DeleteDelay: 24 * time.Hour, Margin: time.Hour,
		Logger: loglines.Text(t, t.Output(), slog.LevelInfo),
		Boot:   func() time.Duration { return time.Since(began) },

		DecodeChange: decodeTopic,
		Wall:         time.Now,
	}
}

// open returns an engine that ends with the test.
func open(t *testing.T, store objstore.Store, observers ...engine.Observer) *engine.Engine {
	t.Helper()
	return openAs(t, format.SessionID{1}, store, observers...)
}

func openAs(t *testing.T, session format.SessionID, store objstore.Store, observers ...engine.Observer) *engine.Engine {
	t.Helper()
	opts := options(t)
	opts.Session = session
	e := engine.New(store, opts)
	e.Observe(observers...)
	if err := e.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Shutdown(nil); err != nil {
			t.Error(err)
		}
	})
	return e
}

// createTopic is a change that creates a topic of one partition, unless it exists.
type createTopic string

var errExists = errors.New("the topic exists")

func (name createTopic) Apply(d *state.Draft) ([]format.Entry, error) {
	if _, _, ok := d.TopicID(string(name)); ok {
		return nil, errExists
	}
	return []format.Entry{&format.TopicCreated{ID: d.NextTopicID(), Partitions: 1, Name: string(name)}}, nil
}

// create creates a topic, and returns its id from the entries of its change.
func create(t *testing.T, e *engine.Engine, name string) format.TopicID {
	t.Helper()
	ticket, err := e.Submit(t.Context(), &engine.Request{Change: createTopic(name), Synced: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := ticket.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return ticket.Entries()[0].(*format.TopicCreated).ID
}

type values []string

func (vs values) Record(i int, r *record.Record) { r.Value = []byte(vs[i]) }

// appending returns an append of values to partition 0 of a topic.
func appending(topic format.TopicID, vs ...string) *engine.Append {
	return &engine.Append{ID: topic, Topic: "t", Count: len(vs), Bytes: 1024, IfEnd: -1, Records: values(vs)}
}

func submit(t *testing.T, e *engine.Engine, r *engine.Request) *engine.Ticket {
	t.Helper()
	ticket, err := e.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

func TestAppendsOfOneCommitAreReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		e := open(t, store)
		topic := create(t, e, "t")
		before := e.Applied()
		first := submit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, "a", "b")}})
		second := submit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, "c")}})
		for i, ticket := range []*engine.Ticket{first, second} {
			if err := ticket.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := engine.Range{Offset: format.Offset(2 * i), Count: 2 - i}
			if got := ticket.Ranges(0); len(got) != 1 || got[0] != want {
				t.Errorf("append %d is at %v, want %v", i, got, want)
			}
		}
		if n := e.Applied() - before; n != 1 {
			t.Errorf("%d commits, want one for both appends", n)
		}
		other := open(t, store) // its cache is empty
		var got sink
		start, end, err := other.NewCursor("t", topic, 0, 0).Next(t.Context(), all, &got)
		if err != nil || start != 0 || end != 3 || got.batches != 1 {
			t.Fatalf("read %d batches in %d to %d: %v", got.batches, start, end, err)
		}
		if got.text != "abc" {
			t.Errorf("read %q, want abc", got.text)
		}
	})
}

// connect lets the engines with the sessions 1 and 2 send each other their commits.
func connect(t *testing.T, one, two *engine.Engine) (near, far *meshtest.Pipe) {
	t.Helper()
	near, far = meshtest.NewPipe(10)
	one.Mesh().Open(mesh.Options{})
	two.Mesh().Open(mesh.Options{})
	go one.Mesh().Serve(near, format.SessionID{2})
	go two.Mesh().Serve(far, format.SessionID{1})
	synctest.Wait()
	return near, far
}

// A commit that another broker sends reaches a waiting reader at once, and without a request to the store.
func TestReaderGetsACommitThatAnotherBrokerSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		e := open(t, memory)
		topic := create(t, e, "t")
		store := storetest.NewFaulty(memory)
		other := openAs(t, format.SessionID{2}, store)
		connect(t, e, other)
		var got sink
		read := make(chan error, 1)
		go func() {
			opts := all
			opts.Wait = time.Hour
			_, _, err := other.NewCursor("t", topic, 0, 0).Next(t.Context(), opts, &got)
			read <- err
		}()
		synctest.Wait() // the reader waits
		requests, begin := store.Count("", ""), time.Now()
		if err := submit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, "a")}}).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-read; err != nil || got.text != "a" {
			t.Fatalf("read %q: %v", got.text, err)
		}
		if n, took := store.Count("", "")-requests, time.Since(begin); n != 0 || took != 10*time.Millisecond { // what the batch waits
			t.Errorf("%d requests, %v", n, took)
		}
	})
}

// While a connected broker commits, readers that wait need no further polls: the commits come without them.
func TestReadersOfSentCommitsNeedNoPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		stores := []*storetest.Faulty{storetest.NewFaulty(memory), storetest.NewFaulty(memory)}
		e := open(t, stores[0])
		topic := create(t, e, "t")
		other := openAs(t, format.SessionID{2}, stores[1])
		connect(t, e, other)
		texts := waitingReader(t, other, topic)
		time.Sleep(time.Minute) // the reader polls every 10 s now
		gets := func() int { return stores[0].Count(objstore.VerbGet, "") + stores[1].Count(objstore.VerbGet, "") }
		before := gets()
		for range 30 {
			if err := submit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, "a")}}).Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if n := gets() - before; n > 32 { // one for each read, which makes sure that it is at the end: the last proof is a second old
			t.Errorf("%d Gets in 30 s", n)
		}
		if len(texts) != 30 {
			t.Errorf("the reader got %d of 30 records", len(texts))
		}
	})
}

// A broker asks the one that wrote the last commit where the log ends, instead of the store. If that one does not answer, or
// its commits do not come, the broker reads the log itself.
func TestSyncAsksTheLastWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		stores := []*storetest.Faulty{storetest.NewFaulty(memory), storetest.NewFaulty(memory)}
		e, other := open(t, stores[0]), openAs(t, format.SessionID{2}, stores[1])
		create(t, e, "t")
		if err := other.Sync(t.Context()); err != nil { // without a connection
			t.Fatal(err)
		}
		near, far := connect(t, e, other)
		gets := func(i int) int { return stores[i].Count(objstore.VerbGet, format.LogPrefix) }
		create(t, e, "u")
		before, last := []int{gets(0), gets(1)}, e.Applied()
		if err := other.Sync(t.Context()); err != nil || other.Applied() != last {
			t.Fatalf("at slot %d instead of %d: %v", other.Applied(), last, err)
		}
		if got := []int{gets(0) - before[0], gets(1) - before[1]}; got[0] != 1 || got[1] != 0 {
			t.Errorf("Gets of the two brokers: %v", got)
		}

		restore := stores[0].On(objstore.VerbGet, format.LogPrefix, storetest.Fail) // the last writer can't find it out
		begin := time.Now()
		if err := other.Sync(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < 300*time.Millisecond || took > time.Second {
			t.Errorf("it took %v", took)
		}
		begin = time.Now()
		if err := other.Sync(t.Context()); err != nil || time.Since(begin) != 0 {
			t.Errorf("after it had not answered, a sync took %v: %v", time.Since(begin), err)
		}
		restore()
		create(t, e, "v")
		near.Close()
		far.Close()
		synctest.Wait()
		begin = time.Now()
		if err := other.Sync(t.Context()); err != nil || time.Since(begin) != 0 {
			t.Errorf("without a connection it took %v: %v", time.Since(begin), err)
		}
	})
}

// Two brokers that commit may ask each other at the same time. Neither waits for the other.
func TestBrokersThatAskEachOtherDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		store := storetest.NewFaulty(memory)
		e := open(t, store)
		topic := create(t, e, "t")
		other := openAs(t, format.SessionID{2}, memory)
		connect(t, e, other)
		create(t, e, "u") // so e is the last writer
		store.On(objstore.VerbGet, format.LogPrefix, func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
			time.Sleep(100 * time.Millisecond)
			return next(ctx, r)
		})
		begin := time.Now()
		synced := make(chan error, 2)
		go func() { synced <- e.Sync(t.Context()) }() // occupies e
		time.Sleep(time.Millisecond)
		go func() { synced <- other.Sync(t.Context()) }() // asks e
		time.Sleep(time.Millisecond)
		if err := submit(t, other, &engine.Request{Appends: []*engine.Append{appending(topic, "a")}}).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-synced; err != nil || time.Since(begin) > 150*time.Millisecond { // e commits after its own sync
			t.Errorf("the commit has not answered the sync, which took %v: %v", time.Since(begin), err)
		}
		if err := <-synced; err != nil {
			t.Error(err)
		}
		if err := e.Sync(t.Context()); err != nil || time.Since(begin) > 500*time.Millisecond {
			t.Errorf("it took %v: %v", time.Since(begin), err)
		}
	})
}

// After a failed request to the store, a connected broker sends requests of its own until one succeeds.
func TestConnectedBrokerNoticesThatItsStoreAnswersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		store := storetest.NewFaulty(memory)
		e := open(t, memory)
		create(t, e, "t")
		other := openAs(t, format.SessionID{2}, store)
		store.SetDown(true)
		if err := other.Sync(t.Context()); err == nil || other.StoreErr() == nil {
			t.Fatalf("the store answers: %v, %v", err, other.StoreErr())
		}
		connect(t, e, other)
		create(t, e, "u")
		store.SetDown(false)
		time.Sleep(engine.FollowIntervalMax + time.Second)
		if err := other.StoreErr(); err != nil {
			t.Errorf("it still says %v", err)
		}
	})
}

// waitingReader reads a topic at an engine, and passes on what it reads.
func waitingReader(t *testing.T, e *engine.Engine, topic format.TopicID) <-chan string {
	t.Helper()
	texts := make(chan string, 100)
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { leave(); <-done })
	go func() {
		defer close(done)
		opts := all
		opts.Wait = time.Hour
		cursor := e.NewCursor("t", topic, 0, 0)
		for {
			var got sink
			if _, _, err := cursor.Next(ctx, opts, &got); err != nil {
				return
			}
			texts <- got.text
		}
	}()
	return texts
}

// If commits of a connected broker come and one before them does not, readers wait for it no longer than without the
// connection.
func TestCommitThatIsNotSentReachesReadersSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		e := open(t, memory)
		topic := create(t, e, "t")
		other, third := openAs(t, format.SessionID{2}, memory), openAs(t, format.SessionID{3}, memory)
		connect(t, e, other)
		texts := waitingReader(t, other, topic)
		time.Sleep(time.Minute) // the reader polls every 10 s now
		for i, from := range []*engine.Engine{third, e} {
			if err := submit(t, from, &engine.Request{Appends: []*engine.Append{appending(topic, string('a'+rune(i)))}}).Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		wantSoon(t, texts, "ab")
	})
}

// wantSoon wants a reader to get the text within half a second.
func wantSoon(t *testing.T, texts <-chan string, want string) {
	t.Helper()
	begin, got := time.Now(), ""
	for got != want {
		select {
		case text := <-texts:
			got += text
		case <-time.After(time.Minute):
			t.Fatalf("read %q, want %q", got, want)
		}
	}
	if took := time.Since(begin); took > 500*time.Millisecond {
		t.Errorf("it took %v", took)
	}
}

// When a connection ends, readers begin to poll often again.
func TestReadersPollWhenAConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		e := open(t, memory)
		topic := create(t, e, "t")
		other := openAs(t, format.SessionID{2}, memory)
		near, _ := connect(t, e, other)
		texts := waitingReader(t, other, topic)
		time.Sleep(time.Minute)
		near.Close()
		synctest.Wait()
		if err := submit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, "a")}}).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantSoon(t, texts, "a")
	})
}

// A change is checked against the commit that would include it. Its caller gets the refusal unchanged.
func TestChangeIsCheckedAgainstTheDraft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, objstore.NewMemory())
		first := submit(t, e, &engine.Request{Change: createTopic("t"), Synced: true})
		second := submit(t, e, &engine.Request{Change: createTopic("t"), Synced: true})
		if err := first.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if err := second.Wait(t.Context()); !errors.Is(err, errExists) {
			t.Errorf("the second change got %v, want its refusal", err)
		}
	})
}

// A request whose change is refused appends nothing. Other requests of the commit are not refused with it.
func TestRequestIsCommittedAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, objstore.NewMemory())
		topic := create(t, e, "t")
		both := submit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, "a")}, Change: createTopic("t"), Synced: true})
		alone := submit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, "b")}})
		if err := both.Wait(t.Context()); !errors.Is(err, errExists) {
			t.Errorf("got %v, want the refusal of the change", err)
		}
		if err := alone.Wait(t.Context()); err != nil || alone.Ranges(0)[0].Offset != 0 {
			t.Errorf("the other append is at %v: %v", alone.Ranges(0), err)
		}
		conflict := appending(topic, "c")
		conflict.IfEnd, conflict.Part = 0, "appends/0"
		err := e.Commit(t.Context(), &engine.Request{Appends: []*engine.Append{conflict}})
		if x, ok := errors.AsType[*engine.EndConflictError](err); !ok || x.End != 1 || x.Part != "appends/0" {
			t.Errorf("got %v, want a conflict with the end 1", err)
		}
	})
}

// watcher is an observer that notes its calls.
type watcher struct {
	mu   sync.Mutex
	told []string
}

func (w *watcher) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, what)
}

func (w *watcher) Loaded(*state.State) { w.note("loaded") }

func (w *watcher) Applying(entries []format.Entry, _ state.Moment) {
	if _, ok := entries[len(entries)-1].(*format.TopicCreated); ok {
		w.note("applying")
	}
}

func (w *watcher) Applied(s *state.State, entries []format.Entry, _ state.Moment) {
	if x, ok := entries[len(entries)-1].(*format.TopicCreated); ok && s.Topic(x.Name) != nil {
		w.note("applied")
	}
}

func TestObserversLearnOfCommitsAndCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, w := objstore.NewMemory(), &watcher{}
		e := engine.New(store, options(t))
		e.Observe(w)
		if err := e.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		create(t, e, "t")
		if err := e.Shutdown(nil); err != nil { // writes a checkpoint
			t.Fatal(err)
		}
		open(t, store, w)
		w.mu.Lock()
		defer w.mu.Unlock()
		if got := w.told; len(got) != 3 || got[0] != "applying" || got[1] != "applied" || got[2] != "loaded" {
			t.Errorf("the observer was told %v", got)
		}
	})
}

// riding is a rider that adds an entry to each commit with a batch.
type riding struct{ topic format.TopicID }

func (r riding) Ride(_ *state.Draft, entries []format.Entry) []format.Entry {
	if _, ok := entries[len(entries)-1].(*format.Batch); ok {
		return []format.Entry{&format.PartitionsAdded{Topic: r.topic, Partitions: 2}}
	}
	return nil
}

func TestRiderAddsToCommitsThatAreMadeAnyway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(objstore.NewMemory(), options(t))
		e.Ride(riding{1})
		if err := e.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		topic := create(t, e, "t")
		before := e.Applied()
		if err := e.Commit(t.Context(), &engine.Request{Appends: []*engine.Append{appending(topic, "a")}}); err != nil {
			t.Error(err)
		}
		e.View(func(s *state.State) {
			if n := len(s.TopicByID(topic).Partitions); n != 2 {
				t.Errorf("the topic has %d partitions, want 2", n)
			}
		})
		if n := e.Applied() - before; n != 1 {
			t.Errorf("%d commits, want 1", n)
		}
		if err := e.Shutdown(nil); err != nil {
			t.Error(err)
		}
	})
}

// nobody is a caller that may no longer make requests.
type nobody struct{}

var errRevoked = errors.New("revoked")

func (nobody) May(engine.Keyring, time.Time) error { return errRevoked }

// Who says that the key of the caller does not exist.
func (nobody) Who() (format.KeyID, bool, time.Time) { return 99, false, time.Time{} }

func TestRequestOfACallerThatMayNoLongerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, objstore.NewMemory())
		topic := create(t, e, "t")
		requests := map[string]*engine.Request{
			"append": {Appends: []*engine.Append{appending(topic, "a")}, Callers: []engine.Caller{nobody{}}},
			"change": {Change: createTopic("u"), Callers: []engine.Caller{nobody{}}, Synced: true},
		}
		for name, r := range requests {
			if err := e.Commit(t.Context(), r); !errors.Is(err, errRevoked) {
				t.Errorf("%s: got %v, want the refusal of its caller", name, err)
			}
		}
	})
}

// A request that is sent again with its idempotency key gets the first answer, also from another engine.
func TestRequestWithAKeyIsReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		e := open(t, store)
		topic := create(t, e, "t")
		request := func(print byte) *engine.Request {
			return &engine.Request{
				Appends: []*engine.Append{appending(topic, "a")},
				Key:     &engine.Key{Hashes: []format.Digest{{1}}, Print: format.Digest{print}, Topic: topic},
			}
		}
		if err := e.Commit(t.Context(), request(1)); err != nil {
			t.Fatal(err)
		}
		other := open(t, store)
		r := request(1)
		other.Begin(t.Context(), r)
		if !other.Replay(r, other.Now()) {
			t.Fatal("the other engine does not know the key")
		}
		again := other.Confirm(r, other.Sync(t.Context()))
		if err := again.Wait(t.Context()); err != nil || !again.Replayed() || again.Ranges(0)[0] != (engine.Range{Count: 1}) {
			t.Errorf("replayed %v as %v: %v", again.Replayed(), again.Ranges(0), err)
		}
		if err := other.Commit(t.Context(), request(2)); !errors.Is(err, engine.ErrKeyReused) {
			t.Errorf("another request under the key got %v", err)
		}
	})
}

// If a caller gives up before its request is part of a commit, the request is withdrawn. Later it may be
// committed.
func TestRequestOfACallerThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := storetest.NewFaulty(objstore.NewMemory())
		e := open(t, faulty)
		topic := create(t, e, "t")
		faulty.On(objstore.VerbCreate, "log/", storetest.Delay(10*time.Second))
		leave := func(after time.Duration) (unknown bool) {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			ticket := submit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, "a")}})
			err := ticket.Wait(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("left after %v: got %v, want that the context has ended", after, err)
			}
			_, unknown = errors.AsType[*engine.UnknownError](err)
			return unknown
		}
		end := func() format.Offset {
			_, end, err := e.NewCursor("t", topic, 0, 0).Bounds()
			if err != nil {
				t.Error(err)
			}
			return end
		}
		if leave(time.Millisecond) {
			t.Error("an append that waits for its batch may be committed")
		}
		time.Sleep(5 * time.Minute)
		if n := end(); n != 0 {
			t.Errorf("the partition ends at %d: the withdrawn append was committed", n)
		}
		if !leave(time.Second) {
			t.Error("an append whose commit is on its way is certainly not committed")
		}
		time.Sleep(5 * time.Minute)
		if n := end(); n != 1 {
			t.Errorf("the partition ends at %d: the append was not committed", n)
		}
	})
}

func TestRareSyncsAreSharedAndASecondApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, objstore.NewMemory())
		if err := e.SyncRarely(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			began, before := time.Now(), e.StoreUse().Gets
			var callers sync.WaitGroup
			for range 100 {
				callers.Go(func() {
					if err := e.SyncRarely(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			callers.Wait()
			if took := time.Since(began); took != time.Second {
				t.Errorf("the sync came after %v, want a second after the one before", took)
			}
			if n := e.StoreUse().Gets - before; n != 1 {
				t.Errorf("a hundred callers cause %d GETs, want 1", n)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.SyncRarely(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that went away got %v", err)
		}
	})
}
