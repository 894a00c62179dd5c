package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
)

const (
	probeRacers   = 8
	probeTries    = 3
	probeAnswers  = 5  // largest number of creates that a racer sends, and of reads of the created object
	probeBytesMax = 16 // read limit; the object has one byte
)

// probe tests whether a create fails if the key exists: without that, two brokers could win the same
// slot. It sends several creates of one key at once. The store may answer at most one of them with
// success, and the object must hold what that create sent. If the answers prove nothing, probe tries
// again.
func (e *Engine) probe(ctx context.Context) error {
	var err error
	for try := range probeTries {
		if err = e.probeOnce(ctx); err == nil || errors.Is(err, errBroken) || ctx.Err() != nil || objstore.SetupFailureOf(err) != nil {
			break
		}
		pause(ctx, try)
	}
	if _, unusable := errors.AsType[*UnusableError](err); err == nil || unusable {
		return err
	}
	return openError("probe the store", err, err)
}

func (e *Engine) probeOnce(ctx context.Context) (err error) {
	ctx, cancel := storeContext(ctx, 0)
	defer cancel()
	var id [16]byte
	rand.Read(id[:])
	key := format.ProbePrefix + hex.EncodeToString(id[:])
	defer func() {
		if _, derr := e.store.Delete(ctx, key); derr != nil && err == nil {
			e.logFailure("a probe object could not be deleted", derr)
		}
	}()
	var (
		wg     sync.WaitGroup
		racers [probeRacers]racer
	)
	for i := range racers {
		wg.Go(func() { racers[i].run(ctx, e.store, key, byte(i)) })
	}
	wg.Wait()
	winner, winners := -1, 0
	for i, r := range racers {
		switch {
		case r.err == nil:
			winner = i
			winners++
		case !errors.Is(r.err, objstore.ErrExists):
			return r.err // the store did not decide, so the race proves nothing
		}
	}
	if winners > 1 {
		return noConditions(errBroken, "%d of %d concurrent creates of one object succeeded; exactly one must", winners, probeRacers)
	}
	o, held, err := e.readProbe(ctx, key, func(body []byte) bool {
		if len(body) != 1 || int(body[0]) >= probeRacers {
			return false
		}
		// If the store reported success to no racer, the winner may be a racer whose reply was lost.
		return int(body[0]) == winner || winners == 0 && racers[body[0]].unsure
	})
	switch {
	case err != nil:
		return err
	case !held && winners == 0: // perhaps the store's answer to the winner was lost, so the cause is not errBroken
		return noConditions(nil, "none of %d concurrent creates of one object succeeded; exactly one must", probeRacers)
	case !held:
		return noConditions(nil, "the object of concurrent creates does not hold what the successful create wrote")
	case o.Time.IsZero():
		return noConditions(nil, "the store's responses carry no date")
	}
	return nil
}

// readProbe reads the object that the racers have created. If expected(body) is false, readProbe reads the
// object again, a few times: a single corrupt answer is no reason to refuse the store.
func (e *Engine) readProbe(ctx context.Context, key string, expected func(body []byte) bool) (o objstore.Object, held bool, err error) {
	for try := range probeAnswers {
		if try > 0 {
			pause(ctx, try)
		}
		if o, err = e.store.Get(ctx, key, 0, probeBytesMax); err != nil {
			return o, false, err
		}
		if expected(o.Body) {
			return o, true, nil
		}
	}
	return o, false, nil
}

// errBroken is the cause of an UnusableError if another probe would be useless.
var errBroken = errors.New("an object was created twice")

// racer is one of several writers that try to create the same key at once.
type racer struct {
	err    error // of the last create
	unsure bool  // the store left a create of this racer undecided, so the racer may have won without knowing
}

// run sends creates until the store decides: S3 may answer 409 to concurrent creates of a key, and
// other stores throttle writers of one key.
func (r *racer) run(ctx context.Context, store objstore.Store, key string, body byte) {
	for try := range probeAnswers {
		if try > 0 {
			r.unsure = true
			pause(ctx, try)
		}
		if _, r.err = store.Create(ctx, key, []byte{body}); r.err == nil || errors.Is(r.err, objstore.ErrExists) || objstore.SetupFailureOf(r.err) != nil {
			return
		}
	}
}

func noConditions(cause error, format string, args ...any) error {
	return &UnusableError{Detail: fmt.Sprintf(format, args...), Err: cause}
}
