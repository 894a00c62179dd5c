package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestHealth(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{Version: "v1.2.3"})
	s.append("orders", "x")
	if a := s.get("/livez"); a.StatusCode != 200 || a.body != `{"status":"alive"}`+"\n" {
		t.Errorf("livez: %d %s", a.StatusCode, a.body)
	}
	var ready struct {
		Status, ClusterID string
		Applied           int
	}
	s.get("/readyz").json(t, &ready)
	if ready.Status != "ready" || ready.Applied < 1 {
		t.Errorf("readyz: %+v", ready)
	}
	if a := s.get("/readyz"); !strings.Contains(a.body, `"state_limit_bytes":268435456}`) {
		t.Errorf("readyz: %s", a.body)
	}
	if a := s.get("/v1/version"); a.body != `{"version":"v1.2.3"}`+"\n" {
		t.Errorf("version: %s", a.body)
	}
	for _, path := range []string{"/livez?verbose", "/readyz?verbose", "/v1/version?x=1"} {
		s.get(path).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	}
}

func TestReadinessTellsHowFullTheStateIs(t *testing.T) {
	began := time.Now()
	var later atomic.Int64
	s := newServer(t, seb.Options{StateMemory: 300_000, WallClock: func() time.Time { return began.Add(time.Duration(later.Load())) }}, Options{})
	for _, topic := range []string{"one", "two"} {
		if _, _, err := s.broker.CreateTopic(t.Context(), topic, seb.TopicOptions{Partitions: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	later.Store(int64(3 * 24 * time.Hour))
	var ready readyInfo
	s.get("/readyz").json(t, &ready)
	// The state takes about 80 bytes for a partition, so it grew to 3/5 of its memory in three days.
	if ready.StateBytes < 150_000 || ready.StateLimit != 300_000 || ready.StateDaysLeft < 1 || ready.StateDaysLeft > 3 {
		t.Errorf("readyz: %+v", ready)
	}
	if want := "the state takes 5"; !strings.HasPrefix(ready.Warning, want) || !strings.Contains(ready.Warning, "at the present rate, appends are refused in ") {
		t.Errorf("the warning is %q", ready.Warning)
	}
}

// Idempotency keys expire by themselves, so the time that is left is not forecast from them.
func TestReadinessForecastsNothingFromIdempotencyKeys(t *testing.T) {
	began := time.Now()
	var later atomic.Int64
	s := newServer(t, seb.Options{StateMemory: 200_000, WallClock: func() time.Time { return began.Add(time.Duration(later.Load())) }}, Options{})
	s.createOrders(1)
	appends := make([]seb.CommitAppend, 100)
	for i := range appends {
		appends[i] = seb.CommitAppend{Topic: "orders", Records: []seb.Record{{}}}
	}
	for i := range 10 {
		if _, err := s.broker.Commit(t.Context(), seb.Commit{Appends: appends}, seb.IdempotencyKey(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	later.Store(int64(3 * 24 * time.Hour))
	var ready readyInfo
	s.get("/readyz").json(t, &ready)
	if ready.StateBytes < 100_000 || ready.StateDaysLeft < 30 {
		t.Errorf("readyz: %+v", ready)
	}
}

// brokenStore fails every request while it is down.
type brokenStore struct {
	objstore.Store
	down atomic.Bool
}

func (s *brokenStore) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	if s.down.Load() {
		return time.Time{}, errors.New("host store-17 is down")
	}
	return s.Store.Create(ctx, key, parts...)
}

func (s *brokenStore) Get(ctx context.Context, key string, off, n int64) (objstore.Object, error) {
	if s.down.Load() {
		return objstore.Object{}, errors.New("host store-17 is down")
	}
	return s.Store.Get(ctx, key, off, n)
}

func TestStoreDown(t *testing.T) {
	store := &brokenStore{Store: objstore.NewMemory()}
	b, err := seb.Open(t.Context(), store, seb.Options{Batching: seb.Immediate(), AppendTimeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		store.down.Store(false)
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	s := serve(t, b, Options{})
	s.append("orders", "x")
	store.down.Store(true)
	p := s.post(ordersPath, "y").wantProblem(t, http.StatusServiceUnavailable, seb.CodeStoreUnavailable)
	if p.Outcome != string(seb.Unknown) {
		t.Errorf("outcome is %q, want unknown: the store may have taken it", p.Outcome)
	}
	s.get("/readyz").wantProblem(t, http.StatusServiceUnavailable, seb.CodeStoreUnavailable)
	s.get("/livez").want(t, http.StatusOK)
}

func TestClosedBroker(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	if err := s.broker.Close(); err != nil {
		t.Fatal(err)
	}
	p := s.post(ordersPath, "x").wantProblem(t, http.StatusServiceUnavailable, seb.CodeBrokerClosed)
	if p.Outcome != string(seb.NotCommitted) {
		t.Errorf("outcome is %q", p.Outcome)
	}
	s.get("/readyz").wantProblem(t, http.StatusServiceUnavailable, seb.CodeBrokerClosed)
}

// readyz sends no store request, and notices that the store is back.
func TestReadyIsWhatTheStoreLastAnswered(t *testing.T) {
	store := storetest.NewFaulty(objstore.NewMemory())
	bubbleOn(t, store, seb.Options{}, Options{}, 0, func(t *testing.T, s *server) {
		s.append("orders", "x")
		time.Sleep(time.Hour)
		before := store.Count("", "")
		for range 10 {
			s.get("/readyz").want(t, http.StatusOK)
		}
		if n := store.Count("", "") - before; n != 0 {
			t.Errorf("ten checks send %d requests", n)
		}
		store.SetDown(true)
		p := s.post("/v1/topics/unknown/records", "y").wantProblem(t, http.StatusServiceUnavailable, seb.CodeStoreUnavailable)
		if p.Outcome != string(seb.NotCommitted) {
			t.Errorf("the outcome is %q", p.Outcome)
		}
		s.get("/readyz").wantProblem(t, http.StatusServiceUnavailable, seb.CodeStoreUnavailable)
		store.SetDown(false)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		s.get("/readyz").want(t, http.StatusOK)
	})
}
