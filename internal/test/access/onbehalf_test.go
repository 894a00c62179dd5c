package access_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// subjects are what [changes] needs by id: an API key, and the tokens of a record of queue q and of a record of
// queue last, in its last attempt. changes also needs topics t and u, consumer c of t, and these queues of t: dead,
// with a dead letter; pushed; and stopped, whose push was stopped.
type subjects struct {
	key         format.KeyID
	token, last string
}

// changes has one change of each kind that a caller may ask for. Takeovers of queues are not among them: a broker
// commits those for itself.
func changes(b *seb.Broker, of subjects) map[string]func(ctx context.Context) error {
	key, token := of.key, of.token
	q, pushed := b.Queue("t", "q"), b.Queue("t", "pushed")
	return map[string]func(ctx context.Context) error{
		"create a key": func(ctx context.Context) error {
			_, _, err := b.CreateKey(ctx, seb.KeyOptions{Name: "new", Scopes: seb.ScopeAdmin})
			return err
		},
		"revoke a key": func(ctx context.Context) error { _, err := b.RevokeKey(ctx, key); return err },
		"create a topic": func(ctx context.Context) error {
			_, _, err := b.CreateTopic(ctx, "new", seb.TopicOptions{})
			return err
		},
		"create a topic by appending": func(ctx context.Context) error {
			_, err := b.Append(ctx, "appended", values("x"))
			return err
		},
		"update a topic": func(ctx context.Context) error {
			_, err := b.UpdateTopic(ctx, "t", seb.TopicUpdate{Partitions: new(int32(2))})
			return err
		},
		"delete a topic": func(ctx context.Context) error { return b.DeleteTopic(ctx, "t") },
		"delete records": func(ctx context.Context) error { _, err := b.DeleteRecords(ctx, "t", 0, 1); return err },
		"create a consumer": func(ctx context.Context) error {
			_, _, err := b.Consumer("t", "new").Create(ctx)
			return err
		},
		"create a consumer by reading": func(ctx context.Context) error {
			_, err := b.Consumer("t", "read").Follower(ctx, seb.AllPartitions)
			return err
		},
		"reset a consumer to offsets": func(ctx context.Context) error {
			_, _, err := b.Consumer("t", "c").ResetTo(ctx, seb.Offsets{0: 1})
			return err
		},
		"reset a consumer":  func(ctx context.Context) error { _, _, err := b.Consumer("t", "c").Reset(ctx, seb.Latest); return err },
		"delete a consumer": func(ctx context.Context) error { return b.Consumer("t", "c").Delete(ctx) },
		"move a consumer": func(ctx context.Context) error {
			_, err := b.Consumer("t", "c").Commit(ctx, seb.Offsets{0: 1})
			return err
		},
		"create a queue": func(ctx context.Context) error {
			_, _, err := b.Queue("t", "new").Set(ctx, seb.QueueUpdate{}, seb.Earliest)
			return err
		},
		"update a queue": func(ctx context.Context) error {
			_, err := q.Update(ctx, seb.QueueUpdate{Paused: new(true)})
			return err
		},
		"delete a queue": func(ctx context.Context) error { return q.Delete(ctx) },
		"purge a queue":  func(ctx context.Context) error { _, err := q.Purge(ctx); return err },
		"acknowledge":    func(ctx context.Context) error { return q.Ack(ctx, token) },
		"put back":       func(ctx context.Context) error { return q.Nack(ctx, seb.NackOptions{}, token) },
		"put back after the last attempt": func(ctx context.Context) error {
			return b.Queue("t", "last").Nack(ctx, seb.NackOptions{}, of.last)
		},
		"redrive": func(ctx context.Context) error {
			_, err := b.Queue("t", "dead").Redrive(ctx, seb.RedriveOptions{})
			return err
		},
		"set a push": func(ctx context.Context) error {
			_, _, _, err := q.SetPush(ctx, seb.PushUpdate{URL: new("https://example.com/")})
			return err
		},
		"remove a push": func(ctx context.Context) error { return pushed.RemovePush(ctx) },
		"resume a push": func(ctx context.Context) error { _, err := b.Queue("t", "stopped").ResumePush(ctx); return err },
		"append to several topics": func(ctx context.Context) error {
			_, err := b.Commit(ctx, seb.Commit{Appends: []seb.CommitAppend{{Topic: "t", Records: values("x")}, {Topic: "u", Records: values("x")}}})
			return err
		},
		"append and move a consumer": func(ctx context.Context) error {
			_, err := b.Commit(ctx, seb.Commit{
				Appends:   []seb.CommitAppend{{Topic: "u", Records: values("x")}},
				Positions: []seb.CommitPositions{{Topic: "t", Consumer: "c", Offsets: seb.Offsets{0: 1}}},
			})
			return err
		},
		"append and acknowledge": func(ctx context.Context) error {
			_, err := b.Commit(ctx, seb.Commit{
				Appends: []seb.CommitAppend{{Topic: "u", Records: values("x")}},
				Acks:    []seb.CommitAcks{{Topic: "t", Queue: "q", Tokens: []string{token}}},
			})
			return err
		},
	}
}

// toChange creates what [changes] needs. If gone, the URL of a target that answers 410, is "", toChange leaves
// out queue stopped.
func toChange(t testing.TB, b *seb.Broker, gone string) (of subjects) {
	t.Helper()
	mustAppend(t, b, "t", "v")
	mustCreateTopic(t, b, "u", 1)
	if _, _, err := b.Consumer("t", "c").Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"q", "last", "dead", "pushed", "stopped"} {
		mustSet(t, b.Queue("t", name), seb.QueueUpdate{})
	}
	if gone != "" {
		stopPush(t, b, b.Queue("t", "stopped"), gone)
	}
	mustPush(t, b.Queue("t", "pushed"), "https://example.com/")
	once := seb.QueueUpdate{MaxAttempts: new(1)}
	mustSet(t, b.Queue("t", "dead"), once)
	dead := tokens(mustReceive(t, b.Queue("t", "dead"), 1, 0))
	if err := b.Queue("t", "dead").Nack(t.Context(), seb.NackOptions{}, dead...); err != nil {
		t.Fatal(err)
	}
	once.DeadLetterTopic = new("u")
	mustSet(t, b.Queue("t", "last"), once)
	if b.KeysExist() {
		k, _ := createKey(t, b, seb.KeyOptions{Name: "victim"})
		of.key = k.ID
	}
	of.token = tokens(mustReceive(t, b.Queue("t", "q"), 1, 0))[0]
	of.last = tokens(mustReceive(t, b.Queue("t", "last"), 1, 0))[0]
	return of
}

// stopPush sets the push of a queue that has a record to gone, the URL of a target that answers 410, and waits until
// the push has stopped.
func stopPush(t testing.TB, b *seb.Broker, q *seb.Queue, gone string) {
	t.Helper()
	mustPush(t, q, gone)
	defer deliverWith(t, b, seb.PushOptions{})()
	for { // no call waits, so virtual time stands still
		info, err := q.Push(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.Stopped != "" {
			return
		}
	}
}

func kindsOfChange() (names []string) {
	for name := range changes(nil, subjects{}) {
		names = append(names, name)
	}
	return names
}

// wantNotAllowed checks the answer to a caller whose access ended before its change.
func wantNotAllowed(t testing.TB, err error) {
	t.Helper()
	wantCode(t, err, seb.CodeUnauthorized)
	wantOutcome(t, err, seb.NotCommitted)
}

// inCommitOfRevocation revokes an API key in the same commit in which change has its effect; change
// must not need a sync first. It returns when the commit is on its way to the store. finish lets the
// commit arrive there.
func inCommitOfRevocation(t *testing.T, b *seb.Broker, faulty *storetest.Faulty, key format.KeyID, change func()) (finish func()) {
	t.Helper()
	synctest.Wait() // for what the broker commits by itself
	var holds []chan struct{}
	next := format.Seq(b.Status().Applied + 1)
	for i := range format.Seq(4) {
		hold := make(chan struct{})
		t.Cleanup(faulty.On(objstore.VerbCreate, format.LogKey(next+i), storetest.Hold(hold)))
		holds = append(holds, hold)
	}
	var wg sync.WaitGroup
	wg.Go(func() { mustAppend(t, b, "u", "first") })
	synctest.Wait()
	// After a commit this large, the commit loop does not let the callers run first. So the next commit has the
	// third append, but not the revocation yet.
	large := strings.Repeat("x", 100<<10)
	wg.Go(func() { mustAppend(t, b, "u", large) })
	synctest.Wait()
	wg.Go(func() {
		if _, err := b.RevokeKey(t.Context(), key); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	close(holds[0])
	synctest.Wait()
	wg.Go(func() { mustAppend(t, b, "u", "third") })
	synctest.Wait()
	close(holds[1]) // this ends the sync of the revocation
	synctest.Wait()
	wg.Go(change)
	synctest.Wait()
	close(holds[2])
	synctest.Wait()
	return func() { close(holds[3]); wg.Wait() }
}

// The revocation and the change wait for the same commit. Only changes that need no sync can be tested
// in this way. The test tries more than once, since the revocation may get into an earlier commit.
func TestRevocationRefusesChangesInItsOwnCommit(t *testing.T) {
	for _, kind := range []string{"move a consumer", "acknowledge", "put back", "append to several topics", "append and acknowledge"} {
		t.Run(kind, func(t *testing.T) {
			together := false
			for try := 0; !together && try < 20; try++ {
				synctest.Test(t, func(t *testing.T) {
					_, faulty := newFaulty()
					b := open(t, faulty, immediate())
					createKey(t, b, seb.KeyOptions{Name: "ops"})
					caller, secret := createKey(t, b, seb.KeyOptions{Name: "caller"})
					ctx := asCaller(t, b, bySecret(secret))
					of := toChange(t, b, "")
					synctest.Wait()
					next := format.Seq(b.Status().Applied + 1)
					changed := make(chan error, 1)
					inCommitOfRevocation(t, b, faulty, caller.ID, func() { changed <- changes(b, of)[kind](ctx) })()
					wantNotAllowed(t, <-changed)
					together = format.Seq(b.Status().Applied) == next+3
				})
			}
			if !together {
				t.Error("the revocation and the change never shared a commit")
			}
		})
	}
}

// Another broker revokes the key, or creates the first key of the log, and wins the slot for which the
// change was built.
func TestChangeIsDecidedAgainAfterALostRace(t *testing.T) {
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusGone)
	}))
	defer gone.Close()
	opts := immediate()
	opts.PushNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for _, first := range []bool{false, true} {
		for _, kind := range kindsOfChange() {
			if first && kind == "revoke a key" {
				continue // there is no key to revoke
			}
			t.Run(fmt.Sprintf("%s, first key %v", kind, first), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					memory, faulty := newFaulty()
					b, other := open(t, faulty, opts), open(t, memory, opts)
					var caller seb.Key
					var secret string
					if !first {
						createKey(t, b, seb.KeyOptions{Name: "ops"})
						caller, secret = createKey(t, b, seb.KeyOptions{Name: "caller"})
					}
					ctx := asCaller(t, b, bySecret(secret))
					of := toChange(t, b, gone.URL)
					release := make(chan struct{})
					remove := faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Hold(release))
					var wg sync.WaitGroup
					var changed error
					wg.Go(func() { changed = changes(b, of)[kind](ctx) })
					synctest.Wait()
					var err error
					if first {
						_, _, err = other.CreateKey(t.Context(), seb.KeyOptions{Name: "ops", Scopes: seb.ScopeAdmin})
					} else {
						_, err = other.RevokeKey(t.Context(), caller.ID)
					}
					if err != nil {
						t.Fatal(err)
					}
					remove()
					close(release)
					wg.Wait()
					wantNotAllowed(t, changed)
				})
			})
		}
	}
}

func TestKeyThatExpiresWhileAChangeWaitsRefusesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		b := open(t, faulty, immediate())
		createKey(t, b, seb.KeyOptions{Name: "ops"})
		_, secret := createKey(t, b, seb.KeyOptions{Name: "brief", Expires: time.Now().Add(time.Second)})
		ctx := asCaller(t, b, bySecret(secret))
		mustCreateTopic(t, b, "t", 1)
		release := make(chan struct{})
		defer faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Hold(release))()
		var wg sync.WaitGroup
		wg.Go(func() { mustAppend(t, b, "t", "holds the slot") })
		synctest.Wait()
		errs := make([]error, 3)
		wg.Go(func() { _, _, errs[0] = b.CreateTopic(ctx, "new", seb.TopicOptions{}) })
		wg.Go(func() { _, errs[1] = b.Append(ctx, "t", values("late")) })
		wg.Go(func() { _, errs[2] = b.Append(t.Context(), "t", values("the program's own")) })
		time.Sleep(2 * time.Second)
		close(release)
		wg.Wait()
		wantNotAllowed(t, errs[0])
		wantNotAllowed(t, errs[1])
		if errs[2] != nil {
			t.Error(errs[2])
		}
		wantValues(t, b, "t", "holds the slot", "the program's own")
	})
}

func TestAppendWaitingForItsCommitEndsWithItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		b := open(t, faulty, immediate())
		createKey(t, b, seb.KeyOptions{Name: "ops"})
		caller, secret := createKey(t, b, seb.KeyOptions{Name: "caller"})
		ctx := asCaller(t, b, bySecret(secret))
		mustCreateTopic(t, b, "t", 1)
		release := make(chan struct{})
		remove := faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Hold(release))
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := b.RevokeKey(t.Context(), caller.ID); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		errs := make([]error, 3)
		wg.Go(func() { _, errs[0] = b.Append(ctx, "t", values("theirs")) })
		wg.Go(func() { _, errs[1] = b.Append(ctx, "t", values("theirs"), seb.IdempotencyKey("k")) })
		wg.Go(func() { _, errs[2] = b.Append(t.Context(), "t", values("ours")) })
		synctest.Wait()
		remove()
		close(release)
		wg.Wait()
		wantNotAllowed(t, errs[0])
		wantNotAllowed(t, errs[1])
		if errs[2] != nil {
			t.Error(errs[2])
		}
		wantValues(t, b, "t", "ours")
	})
}

// An append is refused while the commit that it waited for is under way. A caller with a valid API key
// that then sends the same idempotency key must not get that refusal.
func TestRefusedAppendIsNotSharedWithACallerWhoMay(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole %v", whole), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, faulty := newFaulty()
				b := open(t, faulty, immediate())
				_, kept := createKey(t, b, seb.KeyOptions{Name: "ops"})
				caller, secret := createKey(t, b, seb.KeyOptions{Name: "caller"})
				revoked, good := asCaller(t, b, bySecret(secret)), asCaller(t, b, bySecret(kept))
				mustCreateTopic(t, b, "t", 1)
				mustCreateTopic(t, b, "u", 1)
				opts := []seb.AppendOption{seb.IdempotencyKey("k")}
				if whole { // a revocation in the same commit refuses the append
					opts = append(opts, seb.IfOffset(0))
				}
				answers := make(chan error, 1)
				refused := func() { _, err := b.Append(revoked, "t", values("v"), opts...); answers <- err }
				finish := inCommitOfRevocation(t, b, faulty, caller.ID, func() {
					if whole {
						refused()
					}
				})
				if !whole { // the append is refused in the commit after that of the revocation
					go refused()
					go func() {
						if _, err := b.Append(t.Context(), "u", values("fourth")); err != nil {
							t.Error(err)
						}
					}()
					synctest.Wait()
					hold := make(chan struct{})
					next := format.Seq(b.Status().Applied + 2)
					defer faulty.On(objstore.VerbCreate, format.LogKey(next), storetest.Hold(hold))()
					finish()
					synctest.Wait()
					finish = func() { close(hold) }
				}
				retried := make(chan error, 1)
				go func() { _, err := b.Append(good, "t", values("v"), opts...); retried <- err }()
				synctest.Wait()
				finish()
				wantNotAllowed(t, <-answers)
				if err := <-retried; err != nil {
					t.Error(err)
				}
				wantValues(t, b, "t", "v")
			})
		})
	}
}

// Two callers send the same append and share its outcome. It is accepted while one of them may append.
func TestSharedAppendIsAllowedWhileOneOfItsCallersIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		b := open(t, faulty, immediate())
		_, kept := createKey(t, b, seb.KeyOptions{Name: "ops"})
		caller, secret := createKey(t, b, seb.KeyOptions{Name: "caller"})
		revoked, good := asCaller(t, b, bySecret(secret)), asCaller(t, b, bySecret(kept))
		mustCreateTopic(t, b, "t", 1)
		release := make(chan struct{})
		remove := faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Hold(release))
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := b.RevokeKey(t.Context(), caller.ID); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		errs := make([]error, 2)
		for i, ctx := range []context.Context{revoked, good} {
			wg.Go(func() { _, errs[i] = b.Append(ctx, "t", values("v"), seb.IdempotencyKey("k")) })
			synctest.Wait()
		}
		remove()
		close(release)
		wg.Wait()
		if errs[1] != nil {
			t.Error(errs[1])
		}
		wantValues(t, b, "t", "v")
	})
}

func TestZeroAccessChangesNothing(t *testing.T) {
	b := open(t, objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	_, _, err := b.CreateTopic(seb.WithAccess(t.Context(), seb.Access{}), "t", seb.TopicOptions{})
	wantNotAllowed(t, err)
	wantNotAllowed(t, b.CheckAccess(t.Context(), seb.Access{}))
}

func TestAccessIsCheckedAgainAsOfThePresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b, other := open(t, faulty, immediate()), open(t, memory, immediate())
		anyone, err := b.Authenticate(t.Context(), seb.Credential{})
		if err != nil || b.CheckAccess(t.Context(), anyone) != nil {
			t.Fatal(err)
		}
		ops, secret := createKey(t, b, seb.KeyOptions{Name: "ops"})
		wantNotAllowed(t, b.CheckAccess(t.Context(), anyone))
		brief, _ := createKey(t, b, seb.KeyOptions{Name: "brief", Expires: time.Now().Add(time.Minute)})
		token, err := seb.SignRead(secret, "t", time.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]seb.Credential{"secret": bySecret(secret), "token": {Token: token, Topic: "t"}, "certificate": {Names: []string{"ops"}}} {
			a, err := b.Authenticate(t.Context(), c)
			if err != nil || b.CheckAccess(t.Context(), a) != nil {
				t.Fatal(name, err)
			}
			defer func() { wantNotAllowed(t, b.CheckAccess(t.Context(), a)) }()
		}
		a, err := b.Authenticate(t.Context(), seb.Credential{Names: []string{"brief"}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(brief.Expires))
		wantNotAllowed(t, b.CheckAccess(t.Context(), a))
		faulty.SetDown(true)
		time.Sleep(time.Minute)
		_, err = b.Authenticate(t.Context(), bySecret(secret))
		if err != nil {
			t.Fatal("a key that the broker knows must be accepted while the store is away", err)
		}
		faulty.SetDown(false)
		if _, err := other.RevokeKey(t.Context(), ops.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // what this broker knows is stale by now
	})
}
