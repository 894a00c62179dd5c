package seb_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// victim has a broker whose methods are made to fail, and the arguments for these methods.
type victim struct {
	b      *seb.Broker
	other  *seb.Broker // another broker of the bucket, whose session the log does not name yet
	topic  string      // has a queue q with a record that is with a worker, and a consumer c
	token  string      // of that record
	bad    bool        // methods get invalid arguments, even those without a topic
	access seb.Access

	follower *seb.Follower // at the end of the topic t
}

func (v *victim) queue() *seb.Queue       { return v.b.Queue(v.topic, "q") }
func (v *victim) consumer() *seb.Consumer { return v.b.Consumer(v.topic, "c") }

// or returns the right argument, or the wrong one if v.bad is set.
func or[T any](v *victim, right, wrong T) T {
	if v.bad {
		return wrong
	}
	return right
}

// first returns the error that a list begins with.
func first[T any](list iter.Seq2[T, error]) error {
	for _, err := range list {
		return err
	}
	return nil
}

// failures are the failures of the table's columns, in order. meet makes methods of the victim
// fail in that way, and returns the context for the call.
var failures = []struct {
	name  string
	codes []seb.Code // the error has one of them
	meet  func(t *testing.T, v *victim, store *storetest.Faulty) context.Context
}{
	{"closed", []seb.Code{seb.CodeBrokerClosed}, func(t *testing.T, v *victim, _ *storetest.Faulty) context.Context {
		for _, b := range []*seb.Broker{v.b, v.other} {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		return t.Context()
	}},
	{"stopped", []seb.Code{seb.CodeBrokerStopped, seb.CodeBrokerClosed, seb.CodeCanceled}, func(t *testing.T, v *victim, store *storetest.Faulty) context.Context {
		store.On("", "", func(context.Context, storetest.Request, storetest.Next) (storetest.Answer, error) {
			return storetest.Answer{}, objstore.ErrStopped
		})
		_, err := v.b.Append(t.Context(), v.topic, values("last"))
		wantOutcome(t, err, seb.Unknown)
		<-v.b.Stopped()
		return t.Context()
	}},
	{"canceled", []seb.Code{seb.CodeCanceled}, func(t *testing.T, _ *victim, store *storetest.Faulty) context.Context {
		store.On("", "", storetest.Hold(nil))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return ctx
	}},
	{"no topic", []seb.Code{seb.CodeTopicNotFound, seb.CodeUnauthorized}, func(t *testing.T, v *victim, _ *storetest.Faulty) context.Context {
		v.topic = "none"
		return t.Context()
	}},
	{"invalid", []seb.Code{seb.CodeInvalidTopicName, seb.CodeInvalidRequest, seb.CodeOverMemoryBudget, seb.CodeUnauthorized, seb.CodeForbidden, seb.CodeKeyNotFound},
		func(t *testing.T, v *victim, _ *storetest.Faulty) context.Context {
			v.topic, v.bad = "no/name", true
			return t.Context()
		}},
	{"store down", []seb.Code{seb.CodeStoreUnavailable}, func(t *testing.T, _ *victim, store *storetest.Faulty) context.Context {
		store.SetDown(true)
		return t.Context()
	}},
	{"not confirmed", []seb.Code{seb.CodeStoreUnavailable, seb.CodeUnauthorized}, func(t *testing.T, _ *victim, store *storetest.Faulty) context.Context {
		store.On(objstore.VerbCreate, "", storetest.Hold(nil))
		return t.Context()
	}},
	{"given up", []seb.Code{seb.CodeCanceled, seb.CodeUnauthorized}, func(t *testing.T, _ *victim, store *storetest.Faulty) context.Context {
		store.On(objstore.VerbCreate, "", storetest.Hold(nil))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		t.Cleanup(cancel)
		return ctx
	}},
}

// outcomes has the outcomes of the public methods for each failure: ok means no error, "-" an
// error without an outcome, "not" the outcome NotCommitted, "may" the outcome Unknown.
var outcomes = []struct {
	method string
	want   string
	call   func(context.Context, *victim) error
}{
	//                      closed stopped canceled no-topic invalid down unconfirmed given-up
	{"Broker.Append", "not not not not not may may may", func(ctx context.Context, v *victim) error {
		_, err := v.b.Append(ctx, v.topic, values("x"))
		return err
	}},
	{"Broker.AppendAsync", "not not not not not ok ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.b.AppendAsync(ctx, v.topic, values("x"))
		return err
	}},
	{"Broker.Commit", "not not not not not may may may", func(ctx context.Context, v *victim) error {
		_, err := v.b.Commit(ctx, seb.Commit{Appends: []seb.CommitAppend{{Topic: v.topic, Records: values("x")}}})
		return err
	}},
	{"Broker.Commit of positions", "not not not not not may may may", func(ctx context.Context, v *victim) error {
		_, err := v.b.Commit(ctx, seb.Commit{Positions: []seb.CommitPositions{{Topic: v.topic, Consumer: "c", Offsets: seb.Offsets{0: 1}}}})
		return err
	}},
	{"Broker.Commit of acks", "not not not not not may may may", func(ctx context.Context, v *victim) error {
		_, err := v.b.Commit(ctx, seb.Commit{Acks: []seb.CommitAcks{{Topic: v.topic, Queue: "q", Tokens: []string{v.token}}}})
		return err
	}},
	{"Broker.CommitAsync", "not not not not not ok ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.b.CommitAsync(ctx, seb.Commit{Appends: []seb.CommitAppend{{Topic: v.topic, Records: values("x")}}})
		return err
	}},
	{"Broker.CreateTopic", "not not not ok not not may may", func(ctx context.Context, v *victim) error {
		_, _, err := v.b.CreateTopic(ctx, or(v, "new", v.topic), seb.TopicOptions{})
		return err
	}},
	{"Broker.UpdateTopic", "not not not not not not may may", func(ctx context.Context, v *victim) error {
		_, err := v.b.UpdateTopic(ctx, v.topic, seb.TopicUpdate{Partitions: new(int32(3))})
		return err
	}},
	{"Broker.DeleteTopic", "not not not not not not may may", func(ctx context.Context, v *victim) error { return v.b.DeleteTopic(ctx, v.topic) }},
	{"Broker.DeleteRecords", "not not not not not not may may", func(ctx context.Context, v *victim) error {
		_, err := v.b.DeleteRecords(ctx, v.topic, 0, 1)
		return err
	}},
	{"Broker.CreateKey", "not not not ok not not may may", func(ctx context.Context, v *victim) error {
		_, _, err := v.b.CreateKey(ctx, seb.KeyOptions{Name: or(v, "another", "*"), Scopes: seb.ScopeAdmin})
		return err
	}},
	{"Broker.RevokeKey", "not not not ok not not may may", func(ctx context.Context, v *victim) error {
		_, err := v.b.RevokeKey(ctx, or(v, v.access.Key.ID, 99))
		return err
	}},
	{"Broker.NameSession", "not may may ok ok may may may", func(ctx context.Context, v *victim) error { return v.other.NameSession(ctx) }},
	{"Consumer.Create", "not not not not not not may may", func(ctx context.Context, v *victim) error {
		_, _, err := v.b.Consumer(v.topic, "new").Create(ctx)
		return err
	}},
	{"Consumer.Reset", "not not not not not not may may", func(ctx context.Context, v *victim) error {
		_, _, err := v.consumer().Reset(ctx, seb.Latest)
		return err
	}},
	{"Consumer.Reset to a time", "not not not not not not may may", func(ctx context.Context, v *victim) error {
		_, _, err := v.consumer().Reset(ctx, seb.AtTime(time.Now()))
		return err
	}},
	{"Consumer.ResetTo", "not not not not not not may may", func(ctx context.Context, v *victim) error {
		_, _, err := v.consumer().ResetTo(ctx, seb.Offsets{0: 1})
		return err
	}},
	{"Consumer.Commit", "not not not not not may may may", func(ctx context.Context, v *victim) error {
		_, err := v.consumer().Commit(ctx, seb.Offsets{0: 1})
		return err
	}},
	{"Consumer.Delete", "not not not not not not may may", func(ctx context.Context, v *victim) error { return v.consumer().Delete(ctx) }},
	{"Queue.Set", "not not not not not not may may", func(ctx context.Context, v *victim) error {
		_, _, err := v.b.Queue(v.topic, "new").Set(ctx, seb.QueueUpdate{}, seb.Earliest)
		return err
	}},
	{"Queue.Create", "not not not not not not may may", func(ctx context.Context, v *victim) error {
		_, err := v.b.Queue(v.topic, "new").Create(ctx, seb.QueueUpdate{}, seb.Earliest)
		return err
	}},
	{"Queue.Update", "not not not not not not may may", func(ctx context.Context, v *victim) error {
		_, err := v.queue().Update(ctx, seb.QueueUpdate{Paused: new(true)})
		return err
	}},
	{"Queue.Purge", "not not not not not not may may", func(ctx context.Context, v *victim) error {
		_, err := v.queue().Purge(ctx)
		return err
	}},
	{"Queue.Redrive", "not not not not not not ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.queue().Redrive(ctx, seb.RedriveOptions{})
		return err
	}},
	{"Queue.Delete", "not not not not not not may may", func(ctx context.Context, v *victim) error { return v.queue().Delete(ctx) }},
	{"Queue.SetPush", "not not not not not not may may", func(ctx context.Context, v *victim) error {
		_, _, _, err := v.queue().SetPush(ctx, seb.PushUpdate{URL: new("https://example.com/another")})
		return err
	}},
	{"Queue.ResumePush", "not not not not not not ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.queue().ResumePush(ctx)
		return err
	}},
	{"Queue.RemovePush", "not not not not not not may may", func(ctx context.Context, v *victim) error { return v.queue().RemovePush(ctx) }},
	{"Queue.Ack", "not not not not not may may may", func(ctx context.Context, v *victim) error { return v.queue().Ack(ctx, v.token) }},
	{"Queue.Ack of what is no token", "not not not ok not may may may", func(ctx context.Context, v *victim) error {
		return v.b.Queue("t", "q").Ack(ctx, or(v, v.token, "none"))
	}},
	{"Queue.Nack", "not not not not not may may may", func(ctx context.Context, v *victim) error {
		return v.queue().Nack(ctx, seb.NackOptions{}, v.token)
	}},

	{"Broker.Authenticate", "not not not ok not ok ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.b.Authenticate(ctx, seb.Credential{Secret: or(v, "", "none"), KeyID: or(v, v.access.Key.ID, 0)})
		return err
	}},
	{"Broker.Authenticate by a key that is not known", "not not not not ok not not not", func(ctx context.Context, v *victim) error {
		_, err := v.b.Authenticate(ctx, seb.Credential{KeyID: or[seb.KeyID](v, 99, 1)})
		return err
	}},
	{"Broker.AuthenticateKnown", "ok ok ok ok not ok ok ok", func(_ context.Context, v *victim) error {
		_, err := v.b.AuthenticateKnown(seb.Credential{Secret: or(v, "", "none"), KeyID: or(v, v.access.Key.ID, 0)})
		return err
	}},
	{"Broker.CheckAccess", "not not not ok not ok ok ok", func(ctx context.Context, v *victim) error {
		return v.b.CheckAccess(ctx, or(v, v.access, seb.Access{}))
	}},
	{"Access.CheckScope", "ok ok ok ok not ok ok ok", func(_ context.Context, v *victim) error {
		return or(v, v.access, seb.Access{}).CheckScope(seb.ScopeRead)
	}},
	{"Access.CheckTopic", "ok ok ok ok not ok ok ok", func(_ context.Context, v *victim) error {
		return or(v, v.access, seb.Access{}).CheckTopic(seb.ScopeRead, "t")
	}},
	{"Access.CheckAll", "ok ok ok ok not ok ok ok", func(_ context.Context, v *victim) error { return or(v, v.access, seb.Access{}).CheckAll(seb.ScopeRead) }},
	{"Broker.Reserve", "ok ok ok ok not ok ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.b.Reserve(ctx, or[int64](v, 1, 1<<50))
		return err
	}},
	{"Broker.ReserveMore", "ok ok ok ok not ok ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.b.ReserveMore(ctx, or[int64](v, 1, 1<<50))
		return err
	}},
	{"Reservation.Grow", "ok ok ok ok not ok ok ok", func(ctx context.Context, v *victim) error {
		return v.b.NewReservation(seb.ShareBodies, seb.Holder{}, nil).Grow(ctx, or[int64](v, 1, 1<<50))
	}},
	{"Reservation.GrowSoon", "ok ok ok ok not ok ok ok", func(ctx context.Context, v *victim) error {
		return v.b.NewReservation(seb.ShareBodies, seb.Holder{}, nil).GrowSoon(ctx, or[int64](v, 1, 1<<50), 0)
	}},
	{"CheckTopicName", "ok ok ok ok not ok ok ok", func(_ context.Context, v *victim) error { return seb.CheckTopicName(v.topic) }},

	{"Broker.Fetch", "- - - - - ok ok -", func(ctx context.Context, v *victim) error {
		_, err := v.b.Fetch(ctx, v.topic, 0, seb.Latest, seb.FetchOptions{Wait: time.Minute})
		return err
	}},
	{"Broker.Fetch with negative bounds", "- - - - - ok ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.b.Fetch(ctx, v.topic, 0, seb.Earliest, seb.FetchOptions{Limit: or(v, 1, -1)})
		return err
	}},
	{"Broker.Fetch whose caller has no memory", "- - - ok - ok ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.b.Fetch(ctx, "t", 0, seb.Earliest, seb.FetchOptions{Reserve: func(ctx context.Context, n int, bytes int64) (int, int64, error) {
			_, err := v.b.Reserve(ctx, or(v, bytes, 1<<50))
			return n, bytes, err
		}})
		return err
	}},
	{"Broker.Read", "- - - - - ok ok ok", func(ctx context.Context, v *victim) error {
		return first(v.b.Read(ctx, v.topic, 0, seb.Earliest))
	}},
	{"Broker.Follow", "- - - - - ok ok ok", func(ctx context.Context, v *victim) error {
		return first(v.b.Follow(ctx, v.topic, 0, seb.Earliest))
	}},
	{"Broker.NewFollower", "- - - - - ok ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.b.NewFollower(ctx, v.topic, 0, seb.Earliest)
		return err
	}},
	{"Broker.ResumeFollower", "- - - - - ok ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.b.ResumeFollower(ctx, v.topic, seb.Bookmark{Cluster: v.b.Status().ClusterID[:8], Topic: 1, Offsets: []seb.Offset{0}})
		return err
	}},
	{"Consumer.Follower", "- - - - - ok ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.consumer().Follower(ctx, seb.AllPartitions)
		return err
	}},
	{"Consumer.Follower that creates the consumer", "- - - - - not may may", func(ctx context.Context, v *victim) error {
		_, err := v.b.Consumer(v.topic, "new").Follower(ctx, seb.AllPartitions)
		return err
	}},
	{"Consumer.Follow", "- - - - - ok ok ok", func(ctx context.Context, v *victim) error { return first(v.consumer().Follow(ctx)) }},
	{"Consumer.Follow that creates the consumer", "- - - - - not may may", func(ctx context.Context, v *victim) error {
		return first(v.b.Consumer(v.topic, "new").Follow(ctx))
	}},
	{"Broker.Topic", "- - - - - ok ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.b.Topic(ctx, v.topic)
		return err
	}},
	{"Broker.Cut", "- - - - - ok ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.b.Cut(ctx, []string{v.topic}, seb.CutOptions{})
		return err
	}},
	{"Broker.TopicID", "- - - - - ok ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.b.TopicID(ctx, v.topic)
		return err
	}},
	{"Broker.Topics", "- - - ok ok ok ok ok", func(ctx context.Context, v *victim) error { return first(v.b.Topics(ctx, seb.ListOptions{})) }},
	{"Broker.Topics without memory", "- - - ok - ok ok ok", func(ctx context.Context, v *victim) error {
		return first(v.b.Topics(ctx, seb.ListOptions{Reserve: func(ctx context.Context, n int64) (func(), error) {
			return v.b.Reserve(ctx, or(v, n, 1<<50))
		}}))
	}},
	{"Broker.Keys", "- - - ok ok ok ok ok", func(ctx context.Context, v *victim) error { return first(v.b.Keys(ctx, 0)) }},
	{"Broker.Consumers", "- - - - - ok ok ok", func(ctx context.Context, v *victim) error {
		return first(v.b.Consumers(ctx, v.topic, seb.ListOptions{}))
	}},
	{"Broker.Queues", "- - - - - ok ok ok", func(ctx context.Context, v *victim) error {
		return first(v.b.Queues(ctx, v.topic, seb.ListOptions{}))
	}},
	{"Consumer.Describe", "- - - - - ok ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.consumer().Describe(ctx)
		return err
	}},
	{"Queue.Describe", "- - - - - ok ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.queue().Describe(ctx)
		return err
	}},
	{"Queue.Push", "- - - - - - ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.queue().Push(ctx)
		return err
	}},
	{"Queue.Dead", "- - - - - ok ok ok", func(ctx context.Context, v *victim) error {
		_, _, _, err := v.queue().Dead(ctx, seb.DeadOptions{})
		return err
	}},
	{"Queue.Dead with a negative limit", "- - - ok - ok ok ok", func(ctx context.Context, v *victim) error {
		_, _, _, err := v.b.Queue("t", "q").Dead(ctx, seb.DeadOptions{Limit: or(v, 1, -1)})
		return err
	}},
	{"Queue.Receive", "- - - - - - ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.queue().Receive(ctx, seb.ReceiveOptions{})
		return err
	}},
	{"Queue.Receive without memory", "- - - ok - - ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.b.Queue("t", "q").Receive(ctx, seb.ReceiveOptions{Reserve: func(ctx context.Context) (func(), error) {
			return v.b.Reserve(ctx, or[int64](v, 1, 1<<50))
		}})
		return err
	}},
	{"Queue.Receive that takes the queue over", "- - - - - - - -", func(ctx context.Context, v *victim) error {
		_, err := v.b.Queue(v.topic, "idle").Receive(ctx, seb.ReceiveOptions{})
		return err
	}},
	{"Queue.Extend", "- - - - - - ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.queue().Extend(ctx, 0, v.token)
		return err
	}},
	{"Queue.Extend of what is no token", "- - - ok - - ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.b.Queue("t", "q").Extend(ctx, 0, or(v, v.token, "none"))
		return err
	}},
	{"Queue.Return", "ok ok ok - - ok ok ok", func(_ context.Context, v *victim) error {
		return v.queue().Return([]seb.Message{{Token: or(v, v.token, "none")}})
	}},
	{"Queue.TakeOver", "- - - - - - - -", func(ctx context.Context, v *victim) error { return v.b.Queue(v.topic, "idle").TakeOver(ctx, 0) }},
	{"Queue.Owner", "- - - - - - ok ok", func(ctx context.Context, v *victim) error {
		_, _, err := v.queue().Owner(ctx)
		return err
	}},
	{"Queue.KnowOwner", "- - - ok ok - ok ok", func(ctx context.Context, v *victim) error { return v.queue().KnowOwner(ctx, 9) }},
	{"Broker.KnowsSession", "- - - ok ok - ok ok", func(ctx context.Context, v *victim) error {
		_, err := v.b.KnowsSession(ctx, seb.SessionKey{1}, "")
		return err
	}},
	{"Follower.Wait", "- - - ok ok ok ok -", func(ctx context.Context, v *victim) error {
		_, err := v.follower.Wait(ctx, time.Minute)
		return err
	}},
	{"Follower.Next", "- - - ok - ok ok -", func(ctx context.Context, v *victim) error {
		_, err := v.follower.Next(ctx, seb.FetchOptions{Wait: or(v, time.Minute, -1)})
		return err
	}},
	{"Worker.Run", "ok - ok - - ok ok ok", func(ctx context.Context, v *victim) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		w := &seb.Worker{Source: v.queue(), Handle: func(context.Context, seb.Message) error { return nil }, Concurrency: or(v, 1, -1)}
		return w.Run(ctx)
	}},
	{"Broker.Status", "- - ok ok ok ok ok ok", func(_ context.Context, v *victim) error { return v.b.Status().Err }},
	{"NewInFlight", "ok ok ok ok - ok ok ok", func(_ context.Context, v *victim) error {
		_, err := seb.NewInFlight(or(v, 1, 0))
		return err
	}},
	{"SignRead", "ok ok ok ok - ok ok ok", func(_ context.Context, v *victim) error {
		secret := "seb_1_" + strings.Repeat("0", 64)
		_, err := seb.SignRead(or(v, secret, "none"), "t", time.Now())
		return err
	}},
	{"ParseScopes", "ok ok ok ok - ok ok ok", func(_ context.Context, v *victim) error {
		_, err := seb.ParseScopes([]string{or(v, "read", "none")})
		return err
	}},
	{"ParsePosition", "ok ok ok ok - ok ok ok", func(_ context.Context, v *victim) error {
		_, err := seb.ParsePosition(or(v, "1", "none"))
		return err
	}},
	{"ParseBookmark", "ok ok ok ok - ok ok ok", func(_ context.Context, v *victim) error {
		_, err := seb.ParseBookmark(or(v, "01234567.1:0", "none"))
		return err
	}},
}

// Errors of methods that write something have an outcome; errors of other methods have none.
func TestOutcomesOfPublicMethods(t *testing.T) {
	for _, o := range outcomes {
		t.Run(o.method, func(t *testing.T) {
			want := strings.Fields(o.want)
			got := make([]string, len(failures))
			for i, f := range failures {
				synctest.Test(t, func(t *testing.T) {
					_, store := newFaulty()
					v := newVictim(t, store)
					err := o.call(f.meet(t, v, store), v)
					if err != nil && !slices.Contains(f.codes, seb.CodeOf(err)) {
						t.Errorf("%s: %v, want one of %v", f.name, err, f.codes)
					}
					got[i] = outcomeWord(err)
				})
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func outcomeWord(err error) string {
	var e *seb.Error
	switch {
	case err == nil:
		return "ok"
	case !errors.As(err, &e):
		return "no-seb-error"
	case e.Outcome == seb.NotCommitted:
		return "not"
	case e.Outcome == seb.Unknown:
		return "may"
	default:
		return "-"
	}
}

// newVictim returns a victim whose broker last synced a minute ago.
func newVictim(t *testing.T, store objstore.Store) *victim {
	t.Helper()
	opts := immediate()
	opts.NoAutoCreate = true
	v := &victim{b: openOnly(t, store, opts), topic: "t"}
	t.Cleanup(func() { _ = kit.End(v.b) }) // the test may have closed it
	mustCreateTopic(t, v.b, "t", 1)
	mustAppend(t, v.b, "t", "a", "b")
	mustSet(t, v.queue(), seb.QueueUpdate{Lease: new(time.Hour)})
	mustSet(t, v.b.Queue("t", "idle"), seb.QueueUpdate{})
	mustReset(t, v.consumer(), seb.Earliest)
	v.token = mustReceive(t, v.queue(), 1, 0)[0].Token
	url := "https://example.com/"
	if _, _, _, err := v.queue().SetPush(t.Context(), seb.PushUpdate{URL: &url}); err != nil {
		t.Fatal(err)
	}
	key, _, err := v.b.CreateKey(t.Context(), seb.KeyOptions{Name: "key", Scopes: seb.ScopeAdmin})
	if err != nil {
		t.Fatal(err)
	}
	if v.access, err = v.b.Authenticate(t.Context(), seb.Credential{KeyID: key.ID}); err != nil {
		t.Fatal(err)
	}
	if v.follower, err = v.b.NewFollower(t.Context(), "t", 0, seb.Latest); err != nil {
		t.Fatal(err)
	}
	v.other = openOnly(t, store, opts)
	t.Cleanup(func() { _ = kit.End(v.other) })
	time.Sleep(time.Minute)
	return v
}

// If an append has to create its topic and the outcome of that is unknown, the append itself is not
// committed.
func TestAppendWhoseTopicMayHaveBeenCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, store := newFaulty()
		b := openOnly(t, store, immediate())
		defer kill(t, b)
		store.On(objstore.VerbCreate, "", storetest.Hold(nil))
		_, err := b.Append(t.Context(), "new", values("x"))
		wantCode(t, err, seb.CodeStoreUnavailable)
		wantOutcome(t, err, seb.NotCommitted)
	})
}

// The error of each refused token has the outcome of its answer, if the call commits answers.
func TestRefusedTokensHaveOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, q := openQueue(t, 2, seb.QueueUpdate{})
		gone := b.Queue("t", "gone")
		mustSet(t, gone, seb.QueueUpdate{})
		lost := mustReceive(t, gone, 1, 0)[0].Token
		if err := gone.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		ms := mustReceive(t, q, 2, 0)
		_, extended := q.Extend(t.Context(), 0, ms[0].Token, lost, lost)
		for _, x := range []struct {
			call string
			err  error
			want seb.Outcome
		}{
			{"extend", extended, ""},
			{"ack", q.Ack(t.Context(), ms[0].Token, lost, lost), seb.NotCommitted},
			{"nack", q.Nack(t.Context(), seb.NackOptions{}, ms[1].Token, lost, lost), seb.NotCommitted},
		} {
			tokens, ok := errors.AsType[*seb.TokensError](x.err)
			if !ok || len(tokens.Errors) != 3 || tokens.Errors[0] != nil {
				t.Fatalf("%s: %v", x.call, x.err)
			}
			for _, err := range tokens.Errors[1:] {
				if e := wantError(t, err, seb.CodeLeaseLost); e.Outcome != x.want {
					t.Errorf("%s: outcome of %v is %q, want %q", x.call, e, e.Outcome, x.want)
				}
			}
		}
	})
}

// If a commit may be in the log, a request that was refused when the commit was built is nevertheless
// not committed.
func TestRefusedInACommitThatIsNotConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, store := newFaulty()
		b := openOnly(t, store, kit.InVirtualTime(seb.Options{Batching: seb.Timed(time.Second, 1<<20)}))
		defer kill(t, b)
		mustCreateTopic(t, b, "t", 1)
		taken, err := b.AppendAsync(t.Context(), "t", values("a"))
		if err != nil {
			t.Fatal(err)
		}
		refused, err := b.AppendAsync(t.Context(), "t", values("b"), seb.ToPartition(0), seb.IfOffset(7))
		if err != nil {
			t.Fatal(err)
		}
		store.On(objstore.VerbCreate, "", func(context.Context, storetest.Request, storetest.Next) (storetest.Answer, error) {
			return storetest.Answer{}, objstore.ErrStopped
		})
		_, err = taken.Wait(t.Context())
		wantOutcome(t, err, seb.Unknown)
		_, err = refused.Wait(t.Context())
		wantCode(t, err, seb.CodeBrokerStopped)
		wantOutcome(t, err, seb.NotCommitted)
	})
}

// If an owner could not commit the claim for the next attempt of a record, and knows that, the worker of
// the last attempt can still extend its lease.
func TestLeaseIsExtendedWhenTheNextAttemptWasNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, store := newFaulty()
		opts := immediate()
		opts.StaleMax = time.Hour
		b := open(t, store, opts)
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		mustAppend(t, b, "t", "x")
		first := mustReceive(t, q, 1, 0)
		held := make(chan struct{})
		store.On(objstore.VerbCreate, "log/", storetest.Hold(held))
		if _, err := b.AppendAsync(t.Context(), "t", values("under way")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		go func() { _, _ = q.Receive(t.Context(), seb.ReceiveOptions{Wait: 61 * time.Second}) }()
		time.Sleep(60*time.Second + 100*time.Millisecond) // the lease has ended, and the claim was withdrawn
		if _, err := q.Extend(t.Context(), time.Minute, first[0].Token); err != nil {
			t.Error(err)
		}
		close(held)
		time.Sleep(time.Minute)
	})
}
