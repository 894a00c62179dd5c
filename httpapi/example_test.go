package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/httpapi"
	"github.com/simple-event-broker/seb/objstore"
)

// A broker in an application with other routes: the API has its own path, and a shutdown
// ends the requests first, then the broker.
func ExampleNew() {
	ctx := context.Background()
	broker, err := seb.Open(ctx, objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	if err != nil {
		panic(err)
	}
	defer broker.Close() // after the server

	api := httpapi.New(broker, httpapi.Options{})
	mux := http.NewServeMux()
	mux.Handle("/events/", http.StripPrefix("/events", api))
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := io.WriteString(w, "hello from the application\n"); err != nil {
			return // the client has left
		}
	})
	// Do not set ReadTimeout and WriteTimeout: reads may wait, and the API itself cuts off
	// clients that stall.
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	server.RegisterOnShutdown(api.Drain) // reads that wait answer at once

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()

	url := "http://" + listener.Addr().String()
	fmt.Print(ask(ctx, "GET", url+"/hello", ""))
	fmt.Print(ask(ctx, "POST", url+"/events/v1/topics/orders/records", "paid"))
	fmt.Print(ask(ctx, "GET", url+"/events/v1/topics/orders/records/0", ""))

	if err := server.Shutdown(ctx); err != nil {
		panic(err)
	}
	fmt.Println("\n" + (<-served).Error())
	// Output:
	// hello from the application
	// {"topic":"orders","count":1,"partition":0,"offset":0,"ranges":[{"partition":0,"offset":0,"count":1}]}
	// paid
	// http: Server closed
}

// ask sends a request and returns the answer's body.
func ask(ctx context.Context, method, url, body string) string {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	return string(text)
}
