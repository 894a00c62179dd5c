package httpapi

import (
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/simple-event-broker/seb/internal/httpconn"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = time.Minute
	headerBytesMax    = 64 << 10
)

// NewServer returns a server for h with the timeouts that keep idle, half-open
// and lost clients from holding connections, and with log (nil: none) for what
// net/http has to say about them. Its Shutdown ends waiting reads of h at once,
// with the answers they have, so that only appends under way are waited for.
//
// Time limits on bodies are h's own, since they depend on size.
func NewServer(h *Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytesMax,
		ConnContext:       httpconn.NoticeLoss,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		// h answers OPTIONS * itself, with the headers of all its answers.
		DisableGeneralOptionsHandler: true,
	}
	s.RegisterOnShutdown(h.Drain)
	return s
}

// LimitConnections returns a listener for s to serve in place of l, which has at
// most n connections open at a time; n <= 0 means no limit. While n are open
// further clients queue, one here and the others in the kernel's backlog, and are
// served, late, instead of being refused.
//
// While somebody queues places are handed on: the longest idle connection is ended,
// once it has been idle for 10 seconds, and a connection on which a request comes is
// closed with the answer. For that the handler, the ConnState and the ConnContext of s
// are wrapped, so they must be set before.
func LimitConnections(s *http.Server, l net.Listener, n int) net.Listener {
	return httpconn.Limit(s, l, n)
}
