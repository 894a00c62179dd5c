package client_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/httpapi"
	"github.com/simple-event-broker/seb/objstore"
)

// A program appends records, reads them, and works on them through a queue. The broker is usually a seb serve
// elsewhere; here it is in the same process, on a store in memory.
func Example() {
	ctx := context.Background()
	url, stop := serve(ctx)
	defer stop()

	log, err := client.New(client.Options{Servers: []string{url}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = log.Close() }()

	appended, err := log.Append(ctx, "orders", []seb.Record{
		{Key: []byte("42"), Value: []byte("ordered")},
		{Key: []byte("42"), Value: []byte("paid")},
	})
	if err != nil {
		// With seb.Unknown, the records may be in the log.
		panic(seb.OutcomeOf(err))
	}
	fmt.Println("appended", appended.Count, "at", appended.Ranges[0].Offset)

	for record, err := range log.Read(ctx, "orders", 0, seb.Earliest) {
		if err != nil {
			panic(err)
		}
		fmt.Printf("%d %s=%s\n", record.Offset, record.Key, record.Value)
	}

	mail := log.Queue("orders", "mail")
	if _, err := mail.Create(ctx, seb.QueueUpdate{}, seb.Earliest); err != nil {
		panic(err)
	}
	messages, err := mail.Receive(ctx, seb.ReceiveOptions{Max: 10})
	if err != nil {
		panic(err)
	}
	for _, m := range messages {
		fmt.Printf("attempt %d of %s\n", m.Attempt, m.Value)
		if err := mail.Ack(ctx, m.Token); err != nil {
			panic(err)
		}
	}
	// Output:
	// appended 2 at 0
	// 0 42=ordered
	// 1 42=paid
	// attempt 1 of ordered
	// attempt 1 of paid
}

// serve serves the HTTP API of a new broker.
func serve(ctx context.Context) (url string, stop func()) {
	broker, err := seb.Open(ctx, objstore.NewMemory(), seb.Options{})
	if err != nil {
		panic(err)
	}
	server := httptest.NewUnstartedServer(nil)
	server.Config = httpapi.NewServer(httpapi.New(broker, httpapi.Options{}), nil)
	server.Start()
	return server.URL, func() {
		server.Close()
		if err := broker.Close(); err != nil {
			panic(err)
		}
	}
}
