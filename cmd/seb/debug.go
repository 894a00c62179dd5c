package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/simple-event-broker/seb/httpapi"
)

// serveDebug serves profiles on --debug-addr, if given, until stop is called.
func (c *serveCmd) serveDebug(ctx context.Context, log *slog.Logger) (stop func(), err error) {
	if c.DebugAddr == "" {
		return func() {}, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.DebugAddr)
	if err != nil {
		return nil, fmt.Errorf("listen for --debug-addr: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: ownHostOnly(mux), ReadHeaderTimeout: 10 * time.Second, DisableGeneralOptionsHandler: true}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("serve profiles", "error", err)
		}
	}()
	log.Info("profiles", "url", "http://"+listener.Addr().String()+"/debug/pprof/")
	return func() {
		if err := server.Close(); err != nil {
			log.Warn("close the profile server", "error", err)
		}
		<-done
	}, nil
}

// ownHostOnly refuses requests under names that may be a stranger's: profiles have no
// access control, and a page of such a name could read them. It also refuses what pages of
// other origins send, since a profile costs time.
func ownHostOnly(h http.Handler) http.Handler {
	guard := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !httpapi.OwnHost(r.Host) {
			http.Error(w, "use localhost or an IP address: others may control this name", http.StatusForbidden)
			return
		}
		asPost := r.WithContext(r.Context()) // the guard lets any GET pass
		asPost.Method = http.MethodPost
		if guard.Check(asPost) != nil {
			http.Error(w, "a page of another origin may not send this", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
