package objstore

import (
	"context"
	"errors"
	"fmt"
)

// ErrTooLarge is wrapped by errors about objects with more bytes than objects of their kind may have.
var ErrTooLarge = errors.New("the object is too large")

// wholeFirst is how many bytes [GetWhole] reads before it knows an object's size.
const wholeFirst = 1 << 20

// GetWhole reads an object. If the object has more than bytesMax bytes, GetWhole returns [ErrTooLarge] and
// does not read the rest, so that an object from another program can't take too much memory. An object of
// more than 1 MiB costs two Gets.
func GetWhole(ctx context.Context, store Store, key string, bytesMax int64) (Object, error) {
	return GetWholeIf(ctx, store, key, bytesMax, func([]byte, int64) error { return nil })
}

// GetWholeIf is [GetWhole] for objects whose first bytes show their kind. Before it reads all of an object of
// more than 1 MiB, it calls judge with the first MiB and the object's size. If judge returns an error,
// GetWholeIf returns that error unchanged.
func GetWholeIf(ctx context.Context, store Store, key string, bytesMax int64, judge func(first []byte, size int64) error) (Object, error) {
	o, err := store.Get(ctx, key, 0, min(bytesMax, wholeFirst))
	if err == nil && o.Size > int64(len(o.Body)) && o.Size <= bytesMax {
		if err := judge(o.Body, o.Size); err != nil {
			return Object{Size: o.Size, Time: o.Time}, err
		}
		o, err = store.Get(ctx, key, 0, bytesMax)
	}
	if err == nil && o.Size > bytesMax {
		return Object{Size: o.Size, Time: o.Time}, fmt.Errorf("get %s: %w: it has %d bytes, at most %d are allowed", key, ErrTooLarge, o.Size, bytesMax)
	}
	return o, err
}
