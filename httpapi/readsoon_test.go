package httpapi

import (
	"fmt"
	"io"
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
		path, accept, next string
	}{
		"lines":              {ordersPath + "?limit=1000", typeNDJSON, "Seb-Next-Offset"},
		"JSON":               {ordersPath + "?limit=1000", typeJSON, "Seb-Next-Offset"},
		"compact":            {ordersPath + "?limit=1000", typeBatch, "Seb-Next-Offset"},
		"a consumer's":       {"/v1/topics/orders/consumers/c/records?limit=1000", typeNDJSON, "Seb-Next-Offsets"},
		"the original API's": {"/records?topic-name=orders&offset=0&max-records=1000", "multipart/form-data", ""},
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
				if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > 2*delay+time.Second {
					t.Errorf("the first byte came after %v", took)
				}
				if _, err := io.Copy(io.Discard, conn); err != nil {
					t.Fatal(err)
				}
				if read.next == "" {
					return
				}
				a := s.get(read.path, "Accept", read.accept)
				a.want(t, http.StatusOK)
				if next := a.Header.Get(read.next); next == "0" || next == "" { // how far it comes depends on what was read ahead meanwhile
					t.Errorf("%s is %q", read.next, next)
				}
			})
		})
	}
}
