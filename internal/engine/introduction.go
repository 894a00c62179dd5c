package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

const (
	// introductionFor is how long a broker uses an introduction that it has stored. Brokers delete the object later, since no
	// commit refers to it.
	introductionFor = 10 * time.Minute
	// introductionTimeout bounds the read of an introduction: the other broker waits, and so do others that introduce themselves.
	introductionTimeout = 5 * time.Second
	// introducedMax bounds the sessions that were introduced, and that the log does not name yet.
	introducedMax = 64
)

// introductions are what a broker that the log does not name yet shows to others, so that they know its session: see
// [format.Introduction].
type introductions struct {
	storing singleflight.Group

	mu    sync.Mutex
	key   string              // of the introduction of this broker; "" if it has stored none
	at    time.Time           // when this broker began to store it
	known []format.SessionKey // sessions that were introduced to this broker, and that the log perhaps does not name yet
}

// Introduce stores an introduction of a session, which is that of this broker, and returns its key; "" if the log names the
// session. For some minutes, it returns the same key.
func (e *Engine) Introduce(ctx context.Context, k format.SessionKey) (key string, err error) {
	if e.Knows(k) {
		return "", nil
	}
	if err := e.Usable(); err != nil {
		return "", err
	}
	stored := e.introductions.storing.DoChan("", func() (any, error) { return e.storeIntroduction(k) })
	select {
	case got := <-stored:
		key, _ = got.Val.(string)
		return key, got.Err
	case <-ctx.Done():
		return "", ErrOf(ctx)
	}
}

func (e *Engine) storeIntroduction(k format.SessionKey) (string, error) {
	x, begun := &e.introductions, time.Now()
	x.mu.Lock()
	key, at := x.key, x.at
	x.mu.Unlock()
	if key != "" && begun.Sub(at) < introductionFor {
		return key, nil
	}
	ref := e.newRef()
	ctx, cancel := storeContext(e.life, format.IntroductionBytes)
	defer cancel()
	object := format.EncodeIntroduction(&format.Introduction{Cluster: e.cluster.ID, Ref: ref, Created: e.opts.Wall().UnixMicro(), Session: k})
	if _, err := e.stores[format.CauseStart].Create(ctx, ref.Key(), object); err != nil {
		return "", storeError("could not store the object that introduces this broker to others", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.key, x.at = ref.Key(), begun
	return x.key, nil
}

// introduced reports whether a session was introduced to this broker.
func (e *Engine) introduced(k format.SessionKey) bool {
	e.introductions.mu.Lock()
	defer e.introductions.mu.Unlock()
	return slices.Contains(e.introductions.known, k)
}

// readIntroduction reports whether the store has an introduction of a session under a key. The next commit of this broker names
// the session then, unless another broker's has named it.
func (e *Engine) readIntroduction(ctx context.Context, k format.SessionKey, key string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, introductionTimeout)
	defer cancel()
	o, err := e.stores[format.CauseFollow].Get(ctx, key, 0, format.IntroductionBytes)
	if errors.Is(err, objstore.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, storeError("could not read the object that introduces another broker", err)
	}
	if err := e.checkIntroduction(o, key, k); err != nil {
		e.logger.Debug("an object does not introduce the broker that names it", "key", key, "session", k.ID(), "err", err)
		return false, nil
	}
	known := &e.introductions
	known.mu.Lock()
	defer known.mu.Unlock()
	if len(known.known) == introducedMax {
		known.known = known.known[1:]
	}
	known.known = append(slices.DeleteFunc(known.known, func(o format.SessionKey) bool { return o == k }), k)
	return true, nil
}

// checkIntroduction returns an error unless the object under a key introduces a session.
func (e *Engine) checkIntroduction(o objstore.Object, key string, k format.SessionKey) error {
	x, err := format.DecodeIntroduction(o.Body)
	switch {
	case err != nil:
		return err
	case o.Size != format.IntroductionBytes:
		return format.Corrupt("it has %d bytes instead of %d", o.Size, format.IntroductionBytes)
	case x.Cluster != e.cluster.ID || x.Ref.Key() != key || x.Session != k:
		return fmt.Errorf("%w: it is %s of cluster %v, and names session %v", format.ErrForeign, x.Ref.Key(), x.Cluster, x.Session.ID())
	}
	return nil
}

// nameIntroduced returns the entries that name the sessions that were introduced, and that the state does not have yet.
func (e *Engine) nameIntroduced(s *state.State) (entries []format.Entry) {
	x := &e.introductions
	x.mu.Lock()
	defer x.mu.Unlock()
	x.known = slices.DeleteFunc(x.known, s.KnowsSession)
	for _, k := range x.known {
		entries = append(entries, &format.SessionNamed{Session: k})
	}
	return entries
}
