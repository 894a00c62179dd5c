package seb_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// metered is a store that wraps another one, and counts the commits that are created in
// it. All other methods are those of the wrapped store.
type metered struct {
	objstore.Store
	commits, bytes atomic.Int64
}

// Create implements [objstore.Store].
func (m *metered) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	at, err := m.Store.Create(ctx, key, parts...)
	if err == nil && strings.HasPrefix(key, "log/") {
		m.commits.Add(1)
		for _, p := range parts {
			m.bytes.Add(int64(len(p)))
		}
	}
	return at, err
}

// A broker works on any [objstore.Store]: your own, or one that wraps another store.
// Package storetest has the test suite that each store must pass.
func ExampleOpen_storeOfYourOwn() {
	ctx := context.Background()
	store := &metered{Store: objstore.NewMemory()}
	broker, err := seb.Open(ctx, store, seb.Options{Batching: seb.Each()})
	if err != nil {
		panic(err)
	}
	defer broker.Close()

	for _, state := range []string{"ordered", "paid", "shipped"} {
		if _, err := broker.Append(ctx, "orders", []seb.Record{{Value: []byte(state)}}); err != nil {
			panic(err)
		}
	}
	fmt.Println("commits:", store.commits.Load()) // the first one creates the topic
	fmt.Println("less than 2 KiB:", store.bytes.Load() < 2048)
	// Output:
	// commits: 4
	// less than 2 KiB: true
}

// Read iterates over the records of a partition, from a position on. A break ends the
// iteration early.
func ExampleBroker_Read() {
	ctx := context.Background()
	broker, err := seb.Open(ctx, objstore.NewMemory(), seb.Options{})
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	var numbers []seb.Record
	for i := range 10 {
		numbers = append(numbers, seb.Record{Value: fmt.Append(nil, i)})
	}
	if _, err := broker.Append(ctx, "numbers", numbers); err != nil {
		panic(err)
	}

	for record, err := range broker.Read(ctx, "numbers", 0, seb.Last(5)) {
		if err != nil {
			panic(err)
		}
		if record.Offset == 8 {
			break
		}
		fmt.Println(record.Offset, string(record.Value))
	}
	// Output:
	// 5 5
	// 6 6
	// 7 7
}
