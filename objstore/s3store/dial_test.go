package s3store_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/simple-event-broker/seb/internal/test/s3test"
	"github.com/simple-event-broker/seb/objstore/s3store"
)

// No server listens at the endpoint. Only the configured dialer can reach the server of this test.
func TestConnectionsAreMadeByTheConfiguredDialer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	asked := make(chan string, 1)
	store, err := s3store.OpenConfig(t.Context(), s3store.Config{
		Bucket: "bucket", Endpoint: "http://localhost:1", AccessKeyID: s3test.AccessKey, SecretAccessKey: s3test.SecretKey,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			asked <- address
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), "log/1", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; got != "localhost:1" {
		t.Errorf("the dialer was asked for %s", got)
	}
}
