package httpapi

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/httpconn"
	"github.com/simple-event-broker/seb/price"
)

// Options configure a [Handler]. Every field may be left zero.
type Options struct {
	// Logger receives a line per request: at level debug if the status was below 400, at
	// info below 500, at warn from 500 on. Bodies, queries and API keys are never
	// logged. Default: nothing is logged.
	Logger *slog.Logger
	// Registerer receives the metrics of this package. Default: none are registered.
	Registerer prometheus.Registerer
	// Gatherer returns the metrics of GET /metrics. Default: there is no such route.
	Gatherer prometheus.Gatherer
	// AllowOrigins are the origins, such as https://example.com, whose pages may use
	// the API from a browser; "*" means all. Default: only the API's own origin. See
	// [CheckOrigin].
	AllowOrigins []string
	// Host is the host and port at which other brokers reach this broker. If the log has no API keys,
	// the broker refuses a request unless its Host header has this host, an IP address, a host of
	// AllowOrigins ("*" allows every host), or a name that no stranger can register, such as
	// localhost. This prevents DNS rebinding. Default: none.
	Host string
	// Prices are the prices of the broker's store, for GET /v1/bill. Default: the bill
	// shows what was used, but not what that costs.
	Prices *price.List
	// PeerTLS configures connections to brokers whose address is an https URL. For example, it
	// says which certificate authorities to trust. Default: those that the system trusts.
	PeerTLS *tls.Config
	// DialPeer connects to other brokers. Default: as a [net.Dialer] does.
	DialPeer func(ctx context.Context, network, address string) (net.Conn, error)
	// Zone names the zone in which the broker runs, such as eu-central-1a. Brokers of the same zone send each other the
	// records of small commits, those of different zones only the heads of commits. Default: all brokers are in one zone.
	Zone string
	// NoPeers says that the broker connects to no other brokers, except to forward requests to the owner of a queue.
	NoPeers bool
	// Triggers serves the requests about triggers. Default: there are no such routes.
	Triggers TriggerHandler
	// Version is the version that GET /v1/version answers with, and that the metric seb_build_info
	// has as a label.
	Version string
}

// Handler is the HTTP API of one broker. It is safe for concurrent use.
//
// It cuts off slow clients, since they would hold memory that others wait for: a client that
// sends or takes nothing for ten seconds, or falls ten seconds behind a rate of 128 KiB/s. The
// rate is higher for a client that has sent much.
type Handler struct {
	broker    *seb.Broker
	limits    seb.Limits
	log       *slog.Logger
	metrics   *metrics
	mux       *http.ServeMux
	cors      *cors
	version   string
	prices    *price.List
	slowLimit slowLimit
	peers     *peerClient
	meshes    bool     // this broker and other brokers may open persistent connections to each other
	scrapes   *scrapes // of callers with the scope metrics
	plain     *scrapes // of other callers, who see no metrics that name topics

	listTurn   chan struct{} // holds the token of the request whose large list grows: see recordList.takeTurn
	headers    *httpconn.Headers
	peerServer *http.Server // serves the requests that other brokers forward
	warnOfPeer sync.Once    // logs once that the address of a broker leads to another broker
	strangers  strangers

	patience patience
	throttle *authThrottle
	refused  *refusedBodies
	declared map[string]methods // every route, by its name

	leaving  atomic.Bool
	draining context.Context //nolint:containedctx // not the context of a request: its end ends all waiting reads, without a goroutine for each
	drain    context.CancelFunc
}

// New returns the API of b. The caller closes b, after it has closed the server.
func New(b *seb.Broker, opts Options) *Handler {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Handler{
		broker:  b,
		limits:  b.Limits(),
		log:     opts.Logger,
		metrics: newMetrics(opts.Registerer),
		mux:     http.NewServeMux(),
		cors:    newCORS(opts.AllowOrigins, opts.Host),
		version: opts.Version,
		prices:  opts.Prices,
		peers:   newPeerClient(identityOf(b), opts),
		scrapes: newScrapes(), plain: newScrapes(),

		patience:  patience{first: 3 * time.Second, later: 12 * time.Second},
		slowLimit: slowLimit{stallMax: 10 * time.Second, bytesPerSecondMin: 128 << 10},

		throttle: newAuthThrottle(),
		refused:  newRefusedBodies(),
		declared: map[string]methods{},
		listTurn: make(chan struct{}, 1),
	}
	h.headers = httpconn.NewHeaders(headerBytesMax, headerLinesMin+min(h.limits.RecordHeaders, recordHeaderLinesMax))
	h.peerServer = h.newPeerServer()
	h.draining, h.drain = context.WithCancel(context.Background())
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(buildInfo(opts.Version), &billMetrics{b.Usage, opts.Prices})
	}
	h.routes(opts.Gatherer)
	if opts.Triggers != nil {
		h.triggerRoutes(opts.Triggers)
	}
	if h.meshes = !opts.NoPeers; h.meshes {
		h.connectPeers(opts.Version, opts.Zone)
	}
	return h
}

// Drain ends the wait of reads that wait for records: these reads answer with the records that they have,
// and later reads do not wait. So the shutdown of a server need not wait for such reads. Drain may be called
// again.
func (h *Handler) Drain() {
	h.drain()
	h.peerServer.SetKeepAlivesEnabled(false)
}

func (h *Handler) drained() bool { return h.draining.Err() != nil }

// Leave lets load balancers learn that the broker is about to shut down, while it serves all requests as before: /readyz fails
// from now on, and each connection ends with its next response. Call Leave some seconds before the server's Shutdown.
func (h *Handler) Leave() { h.leaving.Store(true) }

func (h *Handler) routes(g prometheus.Gatherer) {
	h.route("/v1/topics", methods{"GET": {readsTopics, h.listTopics}})
	h.route("/v1/topics/{topic}", methods{
		"GET": {readsTopic, h.getTopic}, "PUT": {changesTopic, h.putTopic},
		"PATCH": {changesTopic, h.patchTopic}, "DELETE": {changesTopic, h.deleteTopic},
	})
	h.route("/v1/topics/{topic}/records", methods{
		"GET": {readsRecords, h.readRecords}, "POST": {writesTopic, h.appendRecords}, "DELETE": {changesTopic, h.deleteRecords},
	})
	h.route("/v1/topics/{topic}/records/{offset}", methods{"GET": {readsTopic, h.readRecord}})
	h.route("/v1/topics/{topic}/consumers", methods{"GET": {readsTopic, h.listConsumers}})
	h.route("/v1/topics/{topic}/consumers/{consumer}", methods{
		"GET": {readsTopic, h.getConsumer}, "PUT": {readsTopic, h.putConsumer}, "DELETE": {readsTopic, h.deleteConsumer},
	})
	h.route("/v1/topics/{topic}/consumers/{consumer}/records", methods{"GET": {readsTopic, h.readConsumer}})
	h.route("/v1/topics/{topic}/consumers/{consumer}/commit", methods{"POST": {readsTopic, h.commitPositions}})
	h.queueRoutes()
	h.route("/v1/events", methods{"POST": {eventsNeed, h.postEvents}})
	h.route("/v1/commits", methods{"POST": {needsParts, h.commitAll}})
	h.route("/v1/cut", methods{"GET": {readsTopics, h.getCut}})
	h.route("/v1/keys", methods{"GET": {readsKeys, h.listKeys}, "POST": {changesKeys, h.createKey}})
	h.route("/v1/keys/{id}", methods{"DELETE": {changesKeys, h.revokeKey}})
	h.route("/v1/version", methods{"GET": {needsNothing, h.getVersion}})
	h.route("/v1/bill", methods{"GET": {needsAnyKey, h.getBill}})
	h.route("/v1/peers", methods{"GET": {readsPeers, h.getPeers}})
	h.route("/{$}", methods{"GET": {needsNothing, h.getPage}})
	h.route("/livez", methods{"GET": {needsNothing, h.livez}})
	h.route("/readyz", methods{"GET": {needsNothing, h.readyz}})
	h.route("/openapi.yaml", methods{"GET": {needsNothing, h.getOpenAPI}})
	h.originalRoutes()
	if g != nil {
		h.route("/metrics", methods{"GET": {needsAnyKey, h.gathered(g)}})
	}
	h.mux.HandleFunc(unmatched, func(rw http.ResponseWriter, r *http.Request) { h.fail(rw.(*response), r, errNoRoute(r)) })
}

// queueRoutes adds the routes of queues. A worker needs only the scope read. With it the worker can discard a
// record by acknowledging the record, just as a reader with the scope read can skip records by moving a
// consumer's position. Actions that affect or discard the records of all workers need the scope admin for the
// topic.
func (h *Handler) queueRoutes() {
	const queue = "/v1/topics/{topic}/queues/{queue}"
	h.route("/v1/topics/{topic}/queues", methods{"GET": {readsTopic, h.listQueues}})
	h.route(queue, methods{
		"GET": {readsTopic, h.getQueue}, "PUT": {changesTopic, h.putQueue},
		"PATCH": {changesTopic, h.patchQueue}, "DELETE": {changesTopic, h.deleteQueue},
	})
	h.route(queue+"/receive", methods{"GET": {readsTopic, h.receiveEvents}, "POST": {leases, h.receive}})
	h.route(queue+"/ack", methods{"POST": {readsTopic, h.ack}})
	h.route(queue+"/nack", methods{"POST": {readsTopic, h.nack}})
	h.route(queue+"/extend", methods{"POST": {leases, h.extend}})
	h.route(queue+"/dead", methods{"GET": {readsTopic, h.deadRecords}})
	h.route(queue+"/dead/redrive", methods{"POST": {changesTopic, h.redrive}})
	h.route(queue+"/pause", methods{"POST": {changesTopic, h.pauseQueue}})
	h.route(queue+"/resume", methods{"POST": {changesTopic, h.resumeQueue}})
	h.route(queue+"/purge", methods{"POST": {changesTopic, h.purgeQueue}})
	h.route(queue+"/push", methods{"GET": {readsPush, h.getPush}, "PUT": {changesTopic, h.putPush}, "DELETE": {changesTopic, h.deletePush}})
	h.route(queue+"/push/resume", methods{"POST": {changesTopic, h.resumePush}})
}

// unmatched is the pattern of requests that no other route serves.
const unmatched = "/"

// action serves one method of a route. An error that it returns becomes the answer. If
// the answer has already begun, the connection is cut instead.
type action func(w *response, r *http.Request) error

// served is an action with the access that it requires.
type served struct {
	need need
	act  action
}

// methods are a route's actions by HTTP method. The action of GET also serves HEAD.
type methods map[string]served

func (m methods) find(method string) served {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	return m[method]
}

// allow returns the value of the Allow header.
func (m methods) allow() string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	if m["GET"].act != nil {
		names = append(names, "HEAD")
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// goneFor is how long a request goes on after its client seems to have left. It is long enough
// to answer a client that has only shut down its sending side, and so short that requests of
// clients that have left don't hold much memory.
const goneFor = 2 * time.Second

// linger returns a context that ends goneFor after the end of ctx, or when leave is called.
func linger(ctx context.Context) (_ context.Context, leave func()) {
	lingering, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(goneFor, cancel) })
	return lingering, func() { stop(); cancel() }
}

// route registers the actions of m for pattern, a path with {wildcards}. It panics if an action
// does not declare the access that it needs: otherwise anyone could call an action whose access was
// forgotten.
func (h *Handler) route(pattern string, m methods) {
	for method, s := range m {
		if !s.need.declared {
			panic("httpapi: " + method + " " + pattern + " does not say what it needs")
		}
	}
	h.declared[routeName(pattern)] = m
	h.mux.HandleFunc(pattern, func(rw http.ResponseWriter, r *http.Request) {
		w := rw.(*response) // ServeHTTP always passes a *response to the mux
		s := m.find(r.Method)
		if s.act == nil {
			w.Header().Set("Allow", m.allow())
			h.fail(w, r, errMethod(r, m.allow()))
			return
		}
		h.serve(w, r, s)
	})
}

// serve checks the caller's access, then calls the action of s.
func (h *Handler) serve(w *response, r *http.Request, s served) {
	w.reads = s.need.reads
	var err error
	if w.proven, w.keyID, err = fromPeer(r); err != nil {
		h.fail(w, r, err)
		return
	}
	if !s.need.reads && r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.clientContext = seb.WithArrival(w.clientContext, w.arrived)
	}
	r, leave, err := h.admit(w, r, s.need)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	defer leave()
	if !w.proven && !s.need.nobody && r.Header.Get(forwardedHeader) != "" { // forwarded by a broker of an older version
		w.sign()
	}
	if s.need.admin {
		defer h.audit(w, r)
	}
	if err = refuseConditions(r); err == nil {
		err = s.act(w, r)
	}
	if err != nil {
		h.fail(w, r, err)
	}
}
