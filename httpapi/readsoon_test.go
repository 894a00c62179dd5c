package httpapi

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// However much a read asks for, its answer begins soon after the first record was read, in
// every form and on every path.
func TestEveryReadBeginsSoonOverASlowStore(t *testing.T) {
	const commits, delay = 1000, 300 * time.Millisecond
	for name, read := range map[string]struct {
		path, accept string
		records      func(http.Header, []byte) int // in the answer
	}{
		"lines":              {ordersPath + "?limit=1000", typeNDJSON, nextIn("Seb-Next-Offset", "%d")},
		"JSON":               {ordersPath + "?limit=1000", typeJSON, nextIn("Seb-Next-Offset", "%d")},
		"compact":            {ordersPath + "?limit=1000", typeBatch, nextIn("Seb-Next-Offset", "%d")},
		"a consumer's":       {"/v1/topics/orders/consumers/c/records?limit=1000", typeNDJSON, nextIn("Seb-Next-Offsets", `{"0":%d}`)},
		"the original API's": {"/records?topic-name=orders&offset=0&max-records=1000", "multipart/form-data", partsIn},
	} {
		t.Run(name, func(t *testing.T) {
			memory := objstore.NewMemory()
			store := storetest.NewFaulty(memory)
			bubbleAround(t, func(t *testing.T) *server {
				// Checkpoints keep the other broker from caching the commits that it would replay.
				writer := openBroker(t, memory, seb.Options{CheckpointCommits: 100})
				for i := range commits {
					if _, err := writer.Append(t.Context(), "orders", []seb.Record{{Value: fmt.Append(nil, i)}}); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				return newServerOn(t, store, seb.Options{}, Options{})
			}, 0, func(t *testing.T, s *server) {
				s.do("PUT", "/v1/topics/orders/consumers/c", nil).want(t, http.StatusCreated)
				store.On(objstore.VerbGet, "", storetest.Delay(delay))
				began := time.Now()
				conn := s.dial("GET " + read.path + " HTTP/1.1\r\nHost: x\r\nAccept: " + read.accept + "\r\nConnection: close\r\n\r\n")
				in := bufio.NewReader(conn)
				if _, err := in.Peek(1); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > 2*delay+time.Second {
					t.Errorf("the first byte came after %v", took)
				}
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				body, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("%s %s, %v", resp.Status, body, err)
				}
				// An answer that waited for everything would have all records.
				if n := read.records(resp.Header, body); n <= 0 || n >= commits {
					t.Errorf("the answer has %d records of %d", n, commits)
				}
			})
		})
	}
}

// nextIn returns a function that tells from a header how many records an answer has which begins at offset 0.
func nextIn(name, form string) func(http.Header, []byte) int {
	return func(h http.Header, _ []byte) (n int) {
		if _, err := fmt.Sscanf(h.Get(name), form, &n); err != nil {
			return -1
		}
		return n
	}
}

// partsIn returns how many records a multipart body has.
func partsIn(h http.Header, body []byte) int {
	_, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return -1
	}
	for n, parts := 0, multipart.NewReader(bytes.NewReader(body), params["boundary"]); ; n++ {
		if _, err := parts.NextPart(); err == io.EOF {
			return n
		} else if err != nil {
			return -1
		}
	}
}
