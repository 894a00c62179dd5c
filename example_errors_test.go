package seb_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// Programs compare the code of an error; the error itself has details.
func ExampleCodeOf() {
	ctx := context.Background()
	broker, err := seb.Open(ctx, objstore.NewMemory(), seb.Options{NoAutoCreate: true})
	if err != nil {
		panic(err)
	}
	defer broker.Close()

	_, err = broker.Append(ctx, "orders", []seb.Record{{Value: []byte("paid")}})
	if seb.CodeOf(err) == seb.CodeTopicNotFound {
		_, _, err = broker.CreateTopic(ctx, "orders", seb.TopicOptions{Partitions: 2})
	}
	if err != nil {
		panic(err)
	}

	_, err = broker.Append(ctx, "orders", []seb.Record{{Value: []byte("paid")}}, seb.ToPartition(7))
	var e *seb.Error
	if errors.As(err, &e) {
		fmt.Println(e.Code)
		fmt.Println(e.Detail)
		fmt.Println(e.Outcome)
	}
	// Output:
	// partition_not_found
	// topic "orders" has no partition 7, only 0 to 1
	// not_committed
}

// failing is a store that can be made unreachable.
type failing struct {
	objstore.Store
	down atomic.Bool
}

func (f *failing) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	if f.down.Load() {
		return time.Time{}, errors.New("no route to the store")
	}
	return f.Store.Create(ctx, key, parts...)
}

// The error of an append tells whether its records may be in the log. If they may be,
// send the append again with the same idempotency key: then the log has its records once.
func ExampleOutcomeOf() {
	ctx := context.Background()
	store := &failing{Store: objstore.NewMemory()}
	broker, err := seb.Open(ctx, store, seb.Options{Batching: seb.Immediate(), AppendTimeout: 100 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	if _, _, err := broker.CreateTopic(ctx, "orders", seb.TopicOptions{}); err != nil {
		panic(err)
	}

	payment := []seb.Record{{Value: []byte("paid")}}
	store.down.Store(true)
	_, err = broker.Append(ctx, "orders", payment, seb.IdempotencyKey("payment-4711"))
	switch seb.OutcomeOf(err) {
	case seb.NotCommitted:
		fmt.Println("certainly not in the log")
	case seb.Unknown:
		fmt.Println("may be in the log")
	}

	store.down.Store(false)
	var appended seb.Appended
	for err != nil {
		appended, err = broker.Append(ctx, "orders", payment, seb.IdempotencyKey("payment-4711"))
	}
	fmt.Println("in the log, at offset", appended.Ranges[0].Offset)
	if err := broker.Close(); err != nil {
		panic(err)
	}
	// Output:
	// may be in the log
	// in the log, at offset 0
}
