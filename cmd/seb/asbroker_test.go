package main

import (
	"fmt"
	"net/http"
)

// asBroker returns a handler that answers like h, with the headers that every response of a broker has.
func asBroker(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Seb-Request-Id", "0123")
		if form := r.Header.Get("Accept"); form != "" {
			w.Header().Set("Content-Type", form)
		}
		h(w, r)
	})
}

// appended is a broker's answer to an append of n records to the topic orders.
func appended(n int) string {
	return fmt.Sprintf(`{"topic":"orders","count":%d,"ranges":[{"partition":0,"offset":0,"count":%d}]}`, n, n)
}
