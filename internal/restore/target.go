package restore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/offline"
	"github.com/simple-event-broker/seb/objstore"
)

// CheckTarget returns an error that wraps [ErrOccupied] if a store holds objects.
func CheckTarget(ctx context.Context, to objstore.Store) error { return holdsOnly(ctx, to, "") }

// holdsOnly returns an error if a store holds other objects than own.
func holdsOnly(ctx context.Context, to objstore.Store, own string) error {
	return offline.Retry(ctx, 0, func(ctx context.Context) error {
		page, err := to.List(ctx, "", "", 2)
		for _, key := range page.Keys {
			if err == nil && key != own {
				err = fmt.Errorf("%w, such as %s", ErrOccupied, key)
			}
		}
		return err
	})
}

// claim makes sure that only one copy is made in a store: each writes an object, and then lists the store. Of two, at least one sees
// the object of the other. release deletes the object, unless the store does not allow that: brokers leave such objects alone.
func claim(ctx context.Context, to objstore.Store) (release func(), err error) {
	if err := CheckTarget(ctx, to); err != nil {
		return nil, err
	}
	var id [8]byte
	rand.Read(id[:])
	key := format.ProbePrefix + hex.EncodeToString(id[:])
	if err := put(ctx, to, key, []byte("seb restore\n")); err != nil {
		return nil, err
	}
	if err := holdsOnly(ctx, to, key); err != nil {
		return nil, err
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_, _ = to.Delete(ctx, key)
	}, nil
}

// put writes an object to the target, reads it back, and compares the bytes.
func put(ctx context.Context, to objstore.Store, key string, body []byte) error {
	first := true
	err := offline.Retry(ctx, int64(len(body)), func(ctx context.Context) error {
		_, err := to.Create(ctx, key, body)
		if errors.Is(err, objstore.ErrExists) && !first {
			return nil // the reply to an earlier attempt was lost, or the comparison below fails
		}
		first = false
		if errors.Is(err, objstore.ErrExists) {
			return fmt.Errorf("%w: another process has written to it meanwhile", ErrOccupied)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	var got objstore.Object
	err = offline.Retry(ctx, int64(len(body)), func(ctx context.Context) (err error) {
		got, err = objstore.GetWhole(ctx, to, key, int64(len(body)))
		return err
	})
	if err != nil {
		return fmt.Errorf("read back %s: %w", key, err)
	}
	if !bytes.Equal(got.Body, body) {
		return fmt.Errorf("read back %s: the store has other bytes than were written", key)
	}
	return nil
}
