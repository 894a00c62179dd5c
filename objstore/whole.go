package objstore

import (
	"context"
	"errors"
	"fmt"
)

// ErrTooLarge is wrapped when an object has more bytes than its kind may have.
var ErrTooLarge = errors.New("the object is too large")

// wholeFirst is how much [GetWhole] reads before it knows an object's size.
const wholeFirst = 1 << 20

// GetWhole reads an object of at most bytesMax bytes, so that a foreign object
// can't take more memory than its kind may. A larger one is
// [ErrTooLarge]. An object of more than 1 MiB costs two Gets.
func GetWhole(ctx context.Context, store Store, key string, bytesMax int64) (Object, error) {
	return GetWholeIf(ctx, store, key, bytesMax, func([]byte, int64) error { return nil })
}

// GetWholeIf is [GetWhole] for objects whose kind shows in their first bytes: before it reads an
// object of more than 1 MiB as a whole, it has judge see the first MiB, and the object's size. An
// error of judge is returned as it is.
func GetWholeIf(ctx context.Context, store Store, key string, bytesMax int64, judge func(first []byte, size int64) error) (Object, error) {
	o, err := store.Get(ctx, key, 0, min(bytesMax, wholeFirst))
	if err == nil && o.Size > int64(len(o.Body)) && o.Size <= bytesMax {
		if err := judge(o.Body, o.Size); err != nil {
			return Object{Size: o.Size, Time: o.Time}, err
		}
		o, err = store.Get(ctx, key, 0, bytesMax)
	}
	if err == nil && o.Size > bytesMax {
		return Object{Size: o.Size, Time: o.Time}, fmt.Errorf("get %s: %w: it has %d bytes, and may have %d", key, ErrTooLarge, o.Size, bytesMax)
	}
	return o, err
}
