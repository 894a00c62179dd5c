// Embedder is a program with a broker on a directory, and nothing else. Every program that embeds a
// broker links at least what this one links.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path string) error {
	dir, err := objstore.OpenDir(path)
	if err != nil {
		return err
	}
	broker, err := seb.Open(ctx, dir, seb.Options{})
	if err != nil {
		return err
	}
	defer broker.Close()
	appended, err := broker.Append(ctx, "orders", []seb.Record{{Value: []byte("paid")}})
	if err != nil {
		return err
	}
	for _, f := range broker.Metrics() {
		fmt.Println(f.Name, len(f.Series))
	}
	fmt.Println("stored at", appended.Ranges[0].Offset)
	return nil
}
