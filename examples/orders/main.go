// Command orders appends orders to a topic and works through them, with a broker of its own. To use brokers in
// other processes instead, change one line: the one in main that opens the log.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync/atomic"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/objstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	api, err := embedded(ctx, "orders-data")
	// With brokers in other processes, this line stands in place of the line above:
	//	api, err := client.New(client.Options{Servers: []string{"http://127.0.0.1:51313"}})
	if err == nil {
		err = errors.Join(run(ctx, api, os.Stdout), api.Close())
	}
	if err != nil {
		log.Fatal(err)
	}
}

// embedded opens a log in a directory, with a broker in this process.
func embedded(ctx context.Context, path string) (client.API, error) {
	dir, err := objstore.OpenDir(path)
	if err != nil {
		return nil, err
	}
	broker, err := seb.Open(ctx, dir, seb.Options{})
	if err != nil {
		return nil, err
	}
	return client.Embedded(broker), nil
}

// run appends three orders, and ends when a worker has handled all orders of the topic.
func run(ctx context.Context, api client.API, out io.Writer) error {
	appended, err := api.Append(ctx, "orders", []seb.Record{
		{Key: []byte("alice"), Value: []byte("tea")}, {Key: []byte("bob"), Value: []byte("milk")}, {Key: []byte("alice"), Value: []byte("cake")},
	})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "%d orders in the log\n", appended.Count); err != nil {
		return err
	}

	kitchen := api.Queue("orders", "kitchen")
	if _, _, err := kitchen.Set(ctx, seb.QueueUpdate{Order: new(seb.OrderKey)}, seb.Earliest); err != nil {
		return err
	}
	work, done := context.WithCancel(ctx)
	defer done()
	var handled atomic.Int64
	worker := seb.Worker{Source: kitchen, Handle: func(_ context.Context, m seb.Message) error {
		_, err := fmt.Fprintf(out, "%s for %s\n", m.Value, m.Key)
		if err == nil && handled.Add(1) == int64(appended.Count) {
			done()
		}
		return err
	}}
	return worker.Run(work)
}
