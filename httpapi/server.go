package httpapi

import (
	"log/slog"
	"net/http"
	"time"
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
		ConnContext:       noticeLoss,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		// h answers OPTIONS * itself, with the headers of all its answers.
		DisableGeneralOptionsHandler: true,
	}
	s.RegisterOnShutdown(h.Drain)
	return s
}
