package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// If another program creates the queue between the two requests of queue create, the command does not report that
// it has created the queue.
func TestQueueCreateTellsThatAnotherProgramWasFaster(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"code":"queue_not_found"}`)
			return
		}
		_, _ = io.WriteString(w, `{"topic":"orders","name":"mail","config":{"lease":"30s","backoff":"1s..1h"}}`)
	}))
	defer server.Close()
	runSeb(t, nil, "queue", "create", "orders", "mail", "--server", server.URL).
		want(t, exitRefused, "create queue mail of orders: another program created it at the same time")
}
