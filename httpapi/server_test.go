package httpapi

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
)

func TestServerShutdownEndsWaitingReads(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "old")
		start := time.Now()
		got := make(chan answer)
		go func() { got <- s.get(ordersPath + "?offset=1&wait=5m") }()
		synctest.Wait()
		stopped := make(chan struct{})
		go func() { defer close(stopped); s.stop() }()
		(<-got).want(t, http.StatusOK)
		if took := time.Since(start); took != 0 {
			t.Errorf("the waiting read took %v", took)
		}
		<-stopped
	})
}

func TestServerBoundsHeaders(t *testing.T) {
	srv := NewServer(newServer(t, seb.Options{}, Options{}).handler, nil)
	if srv.ReadHeaderTimeout <= 0 || srv.IdleTimeout <= 0 || srv.MaxHeaderBytes <= 0 || srv.ReadTimeout != 0 || srv.WriteTimeout != 0 {
		t.Errorf("limits are %+v", srv)
	}
}
