package seb_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// The store of this broker is in memory. To keep records, open the broker on a store
// from objstore.OpenDir or s3store.Open.
func Example() {
	ctx := context.Background()
	broker, err := seb.Open(ctx, objstore.NewMemory(), seb.Options{})
	if err != nil {
		panic(err)
	}
	defer broker.Close()

	appended, err := broker.Append(ctx, "orders", []seb.Record{
		{Key: []byte("42"), Value: []byte("ordered")},
		{Key: []byte("42"), Value: []byte("paid")},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println("appended", appended.Count, "at", appended.Ranges[0].Offset)

	for record, err := range broker.Read(ctx, "orders", 0, seb.Earliest) {
		if err != nil {
			panic(err)
		}
		fmt.Printf("%d %s=%s\n", record.Offset, record.Key, record.Value)
	}
	// Output:
	// appended 2 at 0
	// 0 42=ordered
	// 1 42=paid
}

// From the requests, the stored bytes and the prices of the store, you can compute the
// bill.
func ExampleBroker_Usage() {
	ctx := context.Background()
	broker, err := seb.Open(ctx, objstore.NewMemory(), seb.Options{})
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	if _, _, err := broker.CreateTopic(ctx, "orders", seb.TopicOptions{}); err != nil {
		panic(err)
	}

	before := broker.Usage()
	if _, err := broker.Append(ctx, "orders", []seb.Record{{Value: []byte("ordered")}, {Value: []byte("paid")}}); err != nil {
		panic(err)
	}
	now := broker.Usage()
	fmt.Println("appending took", now.Store.Creates-before.Store.Creates, "PUT")
	fmt.Println("objects with records:", now.StoredObjects)
	// Output:
	// appending took 1 PUT
	// objects with records: 1
}

// Follow goes on until a break, or until its context ends.
func ExampleBroker_Follow() {
	ctx := context.Background()
	broker, err := seb.Open(ctx, objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	if err != nil {
		panic(err)
	}
	defer broker.Close()

	go func() {
		for _, v := range []string{"one", "two", "three"} {
			if _, err := broker.Append(ctx, "numbers", []seb.Record{{Value: []byte(v)}}); err != nil {
				panic(err)
			}
		}
	}()
	if _, _, err := broker.CreateTopic(ctx, "numbers", seb.TopicOptions{}); err != nil {
		panic(err)
	}
	for record, err := range broker.Follow(ctx, "numbers", 0, seb.Earliest) {
		if err != nil {
			panic(err)
		}
		fmt.Println(string(record.Value))
		if record.Offset == 2 {
			break
		}
	}
	// Output:
	// one
	// two
	// three
}

// A consumer goes on at its committed position, through any broker and after any restart.
// Records that were read but not committed come again.
func ExampleConsumer() {
	ctx := context.Background()
	store := objstore.NewMemory()
	broker, err := seb.Open(ctx, store, seb.Options{Batching: seb.Immediate()})
	if err != nil {
		panic(err)
	}
	if _, err := broker.Append(ctx, "orders", []seb.Record{{Value: []byte("ordered")}, {Value: []byte("paid")}, {Value: []byte("shipped")}}); err != nil {
		panic(err)
	}
	billing := broker.Consumer("orders", "billing")
	for record, err := range billing.Follow(ctx) {
		if err != nil {
			panic(err)
		}
		fmt.Println(string(record.Value))
		if record.Offset == 1 {
			break // before the position behind it was committed
		}
		if _, err := billing.Commit(ctx, seb.After(record)); err != nil {
			panic(err)
		}
	}
	if err := broker.Close(); err != nil {
		panic(err)
	}

	broker, err = seb.Open(ctx, store, seb.Options{Batching: seb.Immediate()})
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	billing = broker.Consumer("orders", "billing")
	where, err := billing.Describe(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println("next:", where.Positions[0].Next, "lag:", where.Positions[0].Lag())
	for record, err := range billing.Follow(ctx) {
		if err != nil {
			panic(err)
		}
		fmt.Println(string(record.Value))
		if record.Offset == 2 {
			break
		}
	}
	// Output:
	// ordered
	// paid
	// next: 1 lag: 2
	// paid
	// shipped
}

// Appends that one caller begins one after the other keep their order, and share commits.
func ExampleBroker_AppendAsync() {
	ctx := context.Background()
	broker, err := seb.Open(ctx, objstore.NewMemory(), seb.Options{})
	if err != nil {
		panic(err)
	}
	defer broker.Close()

	var pending []*seb.Pending
	for i := range 3 {
		p, err := broker.AppendAsync(ctx, "events", []seb.Record{{Value: fmt.Append(nil, i)}})
		if err != nil {
			panic(err)
		}
		pending = append(pending, p)
	}
	for _, p := range pending {
		appended, err := p.Wait(ctx)
		if err != nil {
			panic(err)
		}
		fmt.Println(appended.Ranges[0].Offset)
	}
	// Output:
	// 0
	// 1
	// 2
}

// Fetch reads one page of records. At the end of a partition it can wait for records.
func ExampleBroker_Fetch() {
	ctx := context.Background()
	broker, err := seb.Open(ctx, objstore.NewMemory(), seb.Options{})
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	if _, err := broker.Append(ctx, "events", []seb.Record{{Value: []byte("a")}, {Value: []byte("b")}, {Value: []byte("c")}}); err != nil {
		panic(err)
	}

	page, err := broker.Fetch(ctx, "events", 0, seb.Last(2), seb.FetchOptions{Limit: 1, Wait: time.Second})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s, next %d of %d\n", page.Records[0].Value, page.Next, page.End)

	_, err = broker.Fetch(ctx, "events", 0, seb.At(99), seb.FetchOptions{})
	var e *seb.Error
	if errors.As(err, &e) {
		fmt.Println(e.Code, e.Start, e.End)
	}
	// Output:
	// b, next 2 of 3
	// offset_out_of_range 0 3
}

// A Follower reads all partitions of a topic. A program that stores its bookmark can go on
// there later, through any broker of the bucket.
func ExampleBroker_NewFollower() {
	ctx := context.Background()
	broker, err := seb.Open(ctx, objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	if _, _, err := broker.CreateTopic(ctx, "orders", seb.TopicOptions{Partitions: 3}); err != nil {
		panic(err)
	}

	follower, err := broker.NewFollower(ctx, "orders", seb.AllPartitions, seb.Latest)
	if err != nil {
		panic(err)
	}
	if _, err := broker.Append(ctx, "orders", []seb.Record{{Value: []byte("paid")}}, seb.ToPartition(2)); err != nil {
		panic(err)
	}
	records, err := follower.Next(ctx, seb.FetchOptions{Wait: time.Minute})
	if err != nil {
		panic(err)
	}
	for _, record := range records {
		fmt.Printf("partition %d, offset %d: %s\n", record.Partition, record.Offset, record.Value)
	}

	saved := follower.Bookmark().String()
	bookmark, err := seb.ParseBookmark(saved)
	if err != nil {
		panic(err)
	}
	follower, err = broker.ResumeFollower(ctx, "orders", bookmark)
	if err != nil {
		panic(err)
	}
	records, err = follower.Next(ctx, seb.FetchOptions{})
	fmt.Println(len(records), err)
	// Output:
	// partition 2, offset 0: paid
	// 0 <nil>
}

// A program that serves other callers checks what they may do. Once the first key
// exists, every caller needs a key.
func ExampleBroker_Authenticate() {
	ctx := context.Background()
	broker, err := seb.Open(ctx, objstore.NewMemory(), seb.Options{})
	if err != nil {
		panic(err)
	}
	defer broker.Close()

	if _, _, err := broker.CreateKey(ctx, seb.KeyOptions{Name: "ops", Scopes: seb.ScopeAdmin}); err != nil {
		panic(err)
	}
	key, secret, err := broker.CreateKey(ctx, seb.KeyOptions{Name: "shop", Scopes: seb.ScopeRead, Topics: []string{"orders.*"}})
	if err != nil {
		panic(err)
	}
	access, err := broker.Authenticate(ctx, seb.Credential{Secret: secret})
	if err != nil {
		panic(err)
	}
	fmt.Println(key.Name, "reads orders.eu:", access.CheckTopic(seb.ScopeRead, "orders.eu") == nil)
	fmt.Println(key.Name, "writes orders.eu:", access.CheckTopic(seb.ScopeWrite, "orders.eu") == nil)
	if _, err := broker.RevokeKey(ctx, key.ID); err != nil {
		panic(err)
	}
	_, err = broker.Authenticate(ctx, seb.Credential{Secret: secret})
	fmt.Println("after it was revoked:", seb.CodeOf(err))
	// Output:
	// shop reads orders.eu: true
	// shop writes orders.eu: false
	// after it was revoked: unauthorized
}
