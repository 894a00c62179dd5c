package engine

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/wait"
	"github.com/simple-event-broker/seb/objstore"
)

const (
	dataObjectBytes = 4 * mib
	uploadsMax      = 16 // data objects under way at once

	storeTimeout       = 30 * time.Second
	storeBandwidthMin  = 256 << 10 // bytes per second; a slower request is given up
	retryMin, retryMax = 20 * time.Millisecond, 5 * time.Second
)

// dataObject is a data object that the engine uploads.
type dataObject struct {
	ref     format.DataRef
	batches []*batch
	parts   [][]byte // the encoded head of the object, then its batches
}

// put uploads a sealed batch set as data objects, in parallel. It returns nil once the store has all these
// objects. It returns an error only if the engine ends, if the store has no room for the objects, or if the broker has given up
// (errGivenUp); then no commit may refer to them.
func (e *Engine) put(set *batchSet) error {
	set.finish()
	set.objects = e.pack(set.batches)
	var g errgroup.Group
	for _, o := range set.objects {
		g.Go(func() error {
			select {
			case e.uploads <- struct{}{}:
				defer func() { <-e.uploads }()
			case <-e.life.Done():
				return e.life.Err()
			}
			return e.putObject(o)
		})
	}
	return g.Wait()
}

// pack distributes batches over objects of about dataObjectBytes.
func (e *Engine) pack(batches []*batch) []*dataObject {
	var (
		objects []*dataObject
		cur     *dataObject
		size    int
	)
	for _, x := range batches {
		if cur == nil || size+len(x.bytes) > dataObjectBytes+batchBytes {
			cur, size = &dataObject{}, 0
			objects = append(objects, cur)
		}
		x.row.Pos = uint32(size)
		size += len(x.bytes)
		cur.batches = append(cur.batches, x)
	}
	for _, o := range objects {
		e.address(o)
	}
	return objects
}

// address gives an object its head, and a key with a random id. Two objects almost never get the same id;
// see errTaken.
func (e *Engine) address(o *dataObject) {
	applied, _ := e.log.Position()
	var id [8]byte
	rand.Read(id[:])
	h := format.DataHead{
		Cluster: e.cluster.ID,
		Ref:     format.DataRef{Seq: applied, ID: binary.LittleEndian.Uint64(id[:])},
		Created: e.opts.Wall().UnixMicro(),
		Batches: uint32(len(o.batches)),
	}
	parts := make([][]byte, 1, len(o.batches)+1)
	for _, x := range o.batches {
		h.PayloadSize += uint32(len(x.bytes))
		parts = append(parts, x.bytes)
	}
	parts[0] = format.EncodeDataHead(&h)
	o.ref, o.parts = h.Ref, parts
	o.ref.Size = h.PayloadSize + format.DataPayloadStart
}

// errGivenUp says that a broker whose requests another one commits has given up an upload.
var errGivenUp = errors.New("the store does not answer this broker, and other brokers go on")

// putObject retries an upload until the store has the object, has no room for it, the broker gives up, or the engine ends. After
// an error, the object may be in the store, but no commit refers to it.
func (e *Engine) putObject(o *dataObject) error {
	for attempt := 0; e.life.Err() == nil; attempt++ {
		err := e.tryPut(o)
		if err == nil {
			return nil
		}
		if errors.Is(err, objstore.ErrFull) {
			e.logFull(err)
			return err
		}
		if errors.Is(err, errTaken) {
			e.address(o)
		}
		if errors.Is(err, objstore.ErrNotRegular) { // for example, there is a file where the directory data/ must be
			e.stop(err)
			e.end()
			return err
		}
		if e.mesh.Any() && e.storeIsLost() { // else the upload would hold up smaller requests, which can be handed over
			return fmt.Errorf("%w: %w", errGivenUp, err)
		}
		e.logFailure("could not store records; trying again", err, "attempt", attempt+1)
		pause(e.life, attempt)
	}
	return e.life.Err()
}

var errTaken = errors.New("the key holds another object")

func (e *Engine) tryPut(o *dataObject) error {
	ctx, cancel := storeContext(e.life, int64(o.ref.Size))
	defer cancel()
	key := o.ref.Key()
	_, err := e.stores[format.CauseAppend].Create(ctx, key, o.parts...)
	if !errors.Is(err, objstore.ErrExists) {
		return err
	}
	// Either an earlier attempt has created this object, and the store's answer was lost, or another object
	// has the same key.
	got, err := objstore.GetWhole(ctx, e.stores[format.CauseAppend], key, int64(o.ref.Size))
	if errors.Is(err, objstore.ErrTooLarge) {
		return fmt.Errorf("%s: %w", key, errTaken)
	}
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if !bytes.Equal(got.Body, bytes.Join(o.parts, nil)) {
		return fmt.Errorf("%s: %w", key, errTaken)
	}
	return nil
}

// storeContext bounds the time of a request that transfers size bytes.
func storeContext(ctx context.Context, size int64) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, storeTimeout+time.Duration(size)*time.Second/storeBandwidthMin)
}

// pause waits before the next attempt. It waits longer after more failed attempts, and returns when ctx
// ends.
func pause(ctx context.Context, failed int) {
	d := retryMax
	if failed < 8 {
		d = min(d, retryMin<<failed)
	}
	wait.For(ctx, d)
}
