package s3store_test

import (
	"io"
	"net/http"
	"os"
	"testing"
)

// The store returns errors and writes nothing to standard error: the embedder decides what is logged.
func TestNothingIsWrittenToStandardError(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stderr
	os.Stderr = w
	defer func() { os.Stderr = old }()
	store, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100") // the body is shorter, so the connection breaks
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	for verb, request := range requests {
		if _, err := request(t.Context(), store); err == nil {
			t.Errorf("%s succeeds on an answer that breaks off", verb)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if written, err := io.ReadAll(r); err != nil || len(written) > 0 {
		t.Errorf("on standard error: %q, %v", written, err)
	}
}
