package seb

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/objstore"
)

const (
	probeRacers = 8
	probeTries  = 3
)

// probe has several creates race for one key: exactly one may win, and what
// stands there then must be the winner's. A store that fails that can't order
// writers, and so can't keep a log.
func (b *Broker) probe(ctx context.Context) error {
	var err error
	for try := range probeTries {
		if err = b.probeOnce(ctx); err == nil {
			return nil
		}
		var broken *Error
		if errors.As(err, &broken) || ctx.Err() != nil {
			return err
		}
		pause(ctx, try)
	}
	return &Error{Code: CodeStoreUnavailable, Detail: "probe the store", Err: err, RetryAfter: time.Second}
}

func (b *Broker) probeOnce(ctx context.Context) (err error) {
	ctx, cancel := storeContext(ctx, 0)
	defer cancel()
	var id [16]byte
	rand.Read(id[:])
	key := commitlog.ProbePrefix + hex.EncodeToString(id[:])
	defer func() {
		if _, derr := b.store.Delete(ctx, key); derr != nil && err == nil {
			b.logger.Warn("a probe object could not be deleted", "key", key, "err", derr)
		}
	}()
	var (
		wg   sync.WaitGroup
		errs [probeRacers]error
	)
	for i := range errs {
		wg.Go(func() { _, errs[i] = b.store.Create(ctx, key, []byte{byte(i)}) })
	}
	wg.Wait()
	winner, winners := -1, 0
	for i, err := range errs {
		switch {
		case err == nil:
			winner = i
			winners++
		case !errors.Is(err, objstore.ErrExists):
			return err // no answer: nothing is proven either way
		}
	}
	if winners != 1 {
		return noConditions("%d of %d racing creates of one object were told that they won", winners, probeRacers)
	}
	o, err := b.store.Get(ctx, key, 0, -1)
	if err != nil {
		return err
	}
	if len(o.Body) != 1 || o.Body[0] != byte(winner) {
		return noConditions("the object does not hold what the winner of racing creates wrote")
	}
	if o.Time.IsZero() {
		return noConditions("its answers carry no date")
	}
	return nil
}

func noConditions(format string, args ...any) error {
	return &Error{
		Code:   CodeStoreUnusable,
		Detail: "the store does not keep the promises that the log stands on: " + fmt.Sprintf(format, args...),
		Hint:   "use a store with conditional writes (If-None-Match: *); seb doctor tells what a store can do",
	}
}
