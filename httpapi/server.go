package httpapi

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/httpconn"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = time.Minute
	headerBytesMax    = 64 << 10

	// headerLinesMin is how many lines a request's header may have in addition to the headers of a record.
	headerLinesMin = 256
	// recordHeaderLinesMax is how many Seb-Header- lines fit into headerBytesMax, about.
	recordHeaderLinesMax = 4096
)

// NewServer returns a server for h. The server's timeouts close the connections of idle, half-open and lost
// clients. The server logs net/http's messages to log; if log is nil, they are discarded. The server's
// Shutdown ends the wait of reads that wait for records: these reads answer with the records that they have. So
// Shutdown waits only for other requests.
//
// The server has no timeout for bodies: h limits the time for a body, since the limit depends on the size.
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
		// h itself answers OPTIONS *, with the headers that every answer of h has.
		DisableGeneralOptionsHandler: true,
	}
	s.RegisterOnShutdown(h.Drain)
	return s
}

// LimitConnections returns a listener; the caller lets s serve this listener instead of l. At most n of the
// listener's connections are open at a time; n <= 0 means no limit. While n connections are open,
// further clients are not refused but wait: one in the listener, the others in the kernel's backlog.
//
// While a client waits, the connection that was idle longest is closed once it has been idle for
// 10 seconds, and a connection on which a request comes is closed after the answer. To do
// that, LimitConnections wraps the Handler, ConnState and ConnContext of s, so the caller sets these fields
// before it calls LimitConnections.
//
// If clients speak TLS or the Kafka protocol to a server of plain HTTP that [NewServer] has returned, their
// connections are closed, and the log names them, at most once a minute for each protocol, unless n <= 0.
func LimitConnections(s *http.Server, l net.Listener, n int) net.Listener {
	h, ok := s.Handler.(*Handler)
	if !ok {
		return httpconn.Limit(s, l, n, nil)
	}
	return httpconn.Limit(s, l, n, h.strangers.warn(h.log))
}

// strangerEvery is the least time between two log lines about clients that speak the same wrong protocol.
const strangerEvery = time.Minute

// strangers bounds the log lines about clients that speak a wrong protocol.
type strangers struct {
	mu     sync.Mutex
	warned map[httpconn.Protocol]time.Time
	others map[httpconn.Protocol]int // clients since then
}

// strangerHints say what to do about a protocol.
var strangerHints = map[httpconn.Protocol]string{
	httpconn.TLS:   "let the client use http://, or give seb serve --tls-cert and --tls-key",
	httpconn.Kafka: "Seb does not speak the Kafka protocol: use the HTTP API, or another port",
}

// warn returns a function that logs clients that speak a wrong protocol: for each protocol, at most one client in
// strangerEvery. It counts the other clients, and the next log line about that protocol has their number.
func (s *strangers) warn(log *slog.Logger) func(httpconn.Protocol, net.Addr) {
	return func(p httpconn.Protocol, from net.Addr) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if at, warned := s.warned[p]; warned && time.Since(at) < strangerEvery {
			s.others[p]++
			return
		}
		if s.warned == nil {
			s.warned, s.others = map[httpconn.Protocol]time.Time{}, map[httpconn.Protocol]int{}
		}
		log.Warn("a client speaks "+string(p)+" to a port that serves HTTP", "remote", from.String(),
			"others_since_last_warning", s.others[p], "hint", strangerHints[p])
		s.warned[p], s.others[p] = time.Now(), 0
	}
}

// LimitHeaders returns a listener; the caller lets s serve this listener instead of l. The listener bounds the
// memory of the headers of requests: each connection may have 16 KiB, and all connections together may have 8 MiB
// more. Each byte of a header counts twice, and each line 200 bytes more. While these 8 MiB are taken, larger headers
// wait up to 5 s for memory, and then get status 503. While one waits, clients that have not sent the rest of a large
// header within a second are disconnected. A header gets status 431 if it has more lines than the sum of 256 and
// [seb.Limits].RecordHeaders, of which at most 4,096 count.
//
// l may be a listener of [tls.NewListener]. LimitHeaders wraps the ConnState of s, so the caller sets this field
// before it calls LimitHeaders.
func (h *Handler) LimitHeaders(s *http.Server, l net.Listener) net.Listener {
	h.headers.Watch(s)
	return h.headers.Listen(s, l)
}
