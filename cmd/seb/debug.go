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

// serveDebug serves profiles on --debug-addr, if given, until the caller calls stop.
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
			log.Error("profiles are no longer served", "error", err)
		}
	}()
	log.Info("serving profiles", "url", "http://"+listener.Addr().String()+"/debug/pprof/")
	return func() {
		if err := server.Close(); err != nil {
			log.Warn("close the profile server", "error", err)
		}
		<-done
	}, nil
}

// ownHostOnly refuses requests whose Host is a name that others may control: by DNS rebinding, a web page
// under that name could read the profiles, which have no access control. It also refuses requests from web
// pages of other origins, since a profile costs CPU time.
func ownHostOnly(h http.Handler) http.Handler {
	guard := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !httpapi.OwnHost(r.Host) {
			http.Error(w, "invalid Host: others may control this name; use localhost or an IP address", http.StatusForbidden)
			return
		}
		asPost := r.WithContext(r.Context()) // the guard would allow any GET
		asPost.Method = http.MethodPost
		if guard.Check(asPost) != nil {
			http.Error(w, "refused: the request comes from a web page of another origin", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
