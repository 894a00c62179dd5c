package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/httpapi"
	"github.com/simple-event-broker/seb/price"
	"github.com/simple-event-broker/seb/sebprom"
)

const (
	// Supervisors wait for at least 10 s before they kill a process; these three together are shorter.
	drainTimeout  = 4 * time.Second
	closeTimeout  = 5 * time.Second
	answerTimeout = 500 * time.Millisecond

	// Memory that the process needs in addition to --memory and --state-memory: code, stacks, connections,
	// and spare room, without which the garbage collector would run all the time.
	memoryHeadroom = 64 << 20
	// The part of memoryHeadroom that Go's memory limit does not count: the program itself, about 24 MiB, and by how much the heap
	// exceeds the limit while garbage is being collected.
	unlimitedMemory = 36 << 20
)

type serveCmd struct {
	storeFlag
	HTTP          string        `name:"http" default:"127.0.0.1:51313" placeholder:"HOST:PORT" help:"Address to listen on; port 0 takes a free one (default ${default})."`
	Advertise     string        `placeholder:"URL" help:"Where other brokers of the store reach this one, to send it their commits, and to forward requests that only the owner of a queue can answer, such as http://10.0.0.5:51313; the default port is 80, or 443 for https (default: the address that it listens on, unless that is a wildcard or a loopback address); no two brokers may have the same URL. Port 0 stands for the port that it listens on."`
	Zone          string        `placeholder:"NAME" help:"The zone in which the broker runs, such as eu-central-1a: brokers of the same zone send each other small commits with their records; brokers of different zones send each other commits without records (default: all brokers are in one zone)."`
	NoPeers       bool          `help:"Connect to other brokers of the store only to forward requests: neither send them commits, nor take theirs."`
	AutoCreate    bool          `default:"true" negatable:"" help:"Create topics on their first append (default ${default})."`
	KeepDeleted   time.Duration `placeholder:"DURATION" help:"How long what the log no longer needs stays in the store, such as 720h: so long seb restore can copy the log as it was before. It is written into the log, and counts for all brokers; only seb gc --keep-deleted makes it shorter (default: the delete delay of the log)."`
	NoMaintenance bool          `help:"Leave checkpoints, compaction, retention and deletion to other brokers of the store. If all brokers do so, --state-memory fills up, and then appends are refused."`
	HoldFormat    bool          `help:"Keep the log readable for earlier versions of seb. Without it, brokers raise the level of the log's format: of a new log by its first commit, of others after an hour with at least 1,000 commits, if all that took part can read the next level; earlier versions then refuse the log."`
	NoTriggers    bool          `help:"Neither run triggers nor serve requests about them: leave that to other brokers of the store."`
	StaleMax      time.Duration `default:"1s" help:"How stale reads, and the records that a queue hands out, may be (default ${default})."`
	Prices        pricesFlag    `placeholder:"NAME|A,B,STORAGE" help:"The store's prices, for seb bill and --budget: s3, r2, tigris, hetzner, gcs, s3-express, own (nothing), none (unknown), or three prices in dollars: of a million class A requests, of a million class B requests, and of a GB stored for a month (default: by the store's address)."`

	tlsFlags    `group:"access"`
	AllowOrigin []string `group:"access" placeholder:"ORIGIN" help:"Let pages of this origin, such as https://example.com, use the broker from a browser; * means all (default: none)."`
	Insecure    bool     `group:"access" help:"Allow addresses that other machines can reach although there are no API keys: anyone who reaches the broker can read and write."`

	Batch             string         `group:"commits" enum:"timed,immediate,each" default:"timed" help:"When to commit: timed collects records for --linger; immediate commits what came during the previous commit; each commits every append alone (default ${default})."`
	Linger            *time.Duration `group:"commits" placeholder:"DURATION" help:"How long a timed batch collects records (default: 10ms; 250ms on S3 without --budget, which is at most 4 PUTs a second)."`
	Budget            *float64       `group:"commits" placeholder:"DOLLARS" help:"What the requests of all brokers of the store may cost in a calendar month (UTC): batches are committed at once while there is money, else they wait for it; 0 is no budget (default: 10 on S3 if PUTs have a price, unless --linger or --batch says when to commit)."`
	MaxLinger         time.Duration  `group:"commits" default:"5s" help:"How long a batch waits for money of --budget at most; then its commit overdraws the budget (default ${default})."`
	CommitBytes       size           `group:"commits" default:"4MiB" help:"Commit a timed batch when it holds this much (default ${default})."`
	AppendTimeout     time.Duration  `group:"commits" default:"30s" help:"How long a write waits for the store before it is answered 503 (default ${default})."`
	CheckpointCommits int            `group:"commits" default:"1000" placeholder:"N" help:"Commits between two checkpoints, 1 to 1024 (default ${default})."`

	Memory        size   `group:"memory" default:"128MiB" help:"Memory for requests, open batches and the cache together, at least 8MiB (default ${default})."`
	StateMemory   size   `group:"memory" default:"256MiB" help:"Memory for the state of the log; appends are refused when only a sixteenth of it is left; at least 1MiB (default ${default})."`
	TriggerMemory size   `group:"memory" default:"256MiB" help:"Memory for what triggers know of entities; beyond that they stop, and go on once they may have more (default ${default})."`
	CacheDir      string `group:"memory" placeholder:"DIR" help:"Directory to cache what was read from the store; no other program or user may write to it (default: none)."`
	CacheBytes    size   `group:"memory" default:"1GiB" help:"Largest size of the cache directory (default ${default})."`

	ShutdownDelay time.Duration `default:"0s" help:"How long the broker still serves requests after a signal to stop: /readyz fails meanwhile, so that load balancers send no further requests when it stops (default ${default})."`

	MaxConnections     int  `group:"limits" default:"1024" placeholder:"N" help:"Connections open at a time; further ones wait (default ${default})."`
	RecordBytesMax     size `group:"limits" placeholder:"SIZE" help:"Largest record: key, value and headers (default: 8MiB, or half of --request-bytes-max if that is less)."`
	RequestBytesMax    size `group:"limits" placeholder:"SIZE" help:"Largest request (default: 32MiB, or a quarter of --memory if that is less)."`
	HeadersMax         int  `group:"limits" default:"100" placeholder:"N" help:"Most headers of a record (default ${default})."`
	TopicsMax          int  `group:"limits" default:"10000" placeholder:"N" help:"Most topics (default ${default})."`
	PartitionsMax      int  `group:"limits" default:"1000" placeholder:"N" help:"Most partitions of a topic (default ${default})."`
	CommitPartsMax     int  `group:"limits" default:"1000" placeholder:"N" help:"Most appends, positions, tokens and ends in one commit, and topics in a cut (default ${default})."`
	ConsumersMax       int  `group:"limits" default:"100000" placeholder:"N" help:"Most consumers, of all topics together, 1048576 at most (default ${default})."`
	QueuesMax          int  `group:"limits" default:"10000" placeholder:"N" help:"Most queues, of all topics together, 65536 at most (default ${default})."`
	DelayedMax         int  `group:"limits" default:"1000000" placeholder:"N" help:"Most delayed appends that are not due yet (default ${default})."`
	KeysMax            int  `group:"limits" default:"1000" placeholder:"N" help:"Most API keys, 10000 at most (default ${default})."`
	IdempotencyKeysMax int  `group:"limits" default:"1000000" placeholder:"N" help:"Most idempotency keys that are remembered, for 25 hours each (default ${default})."`

	pushFlags `group:"push"`

	DeleteDelay *time.Duration `group:"bucket" placeholder:"DURATION" help:"How long objects stay after the log stopped needing them; at least four times --margin (default: 4h in a directory, where there may be many files, 24h on S3; more if --margin needs it)."`
	Margin      time.Duration  `group:"bucket" default:"1h" help:"At least twice the largest error of the store's clocks (default ${default})."`

	LogLevel  slog.Level `group:"log" default:"info" help:"Lowest level to log: debug, info, warn, error (default ${default})."`
	LogFormat string     `group:"log" enum:"text,json" default:"text" help:"Format of the log on standard error: text or json (default ${default})."`
	DebugAddr string     `group:"log" placeholder:"HOST:PORT" help:"Serve profiles (pprof) here (default: nowhere)."`
}

// Help shows examples.
func (serveCmd) Help() string {
	return `Examples:

    seb serve
    seb serve --store 's3://bucket/prefix?region=eu-central-1' --linger 100ms
    seb serve --store 's3://bucket?endpoint=http://127.0.0.1:9000&region=us-east-1' --cache-dir /var/cache/seb
    seb key create ops --scope admin --store /var/lib/seb --new-log
    seb serve --store /var/lib/seb --http 0.0.0.0:51313 --tls-cert cert.pem --tls-key key.pem

Serves the HTTP API until it is interrupted; once it is ready it prints its URL and what to try. Without API keys it
serves addresses of this machine only (seb key --help). Any number of brokers may serve one store. S3 credentials
come from the usual AWS variables and files; seb doctor tells whether a store is usable.

On SIGTERM the broker waits for requests under way, commits the open batch and writes a checkpoint, within 10 seconds. A
second signal ends the process at once. If the broker stops itself, because the log is damaged or the store can't be trusted, the
process ends with exit code 3 and says why.`
}

// Run serves until ctx ends or the broker stops itself.
func (c *serveCmd) Run(ctx context.Context, std streams, command *kong.Context) error {
	if err := c.checkAddresses(ctx); err != nil {
		return err
	}
	log := c.logger(std)
	warnOfUnknownVariables(log, command.Model.Node)
	c.limitMemory()

	var secure *tls.Config // nil for plain HTTP
	if c.on() {
		var err error
		if secure, err = c.config(log); err != nil {
			return err
		}
	}
	// Listen before the first access to the store. An address in use is a common mistake, and serve must then
	// end without a change to the store.
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.HTTP)
	if err != nil {
		return notListening(fmt.Errorf("listen for HTTP: %w", err))
	}
	defer func() { _ = listener.Close() }() // no effect if a server was started: it has closed the listener already
	stopDebug, err := c.serveDebug(ctx, log)
	if err != nil {
		return err
	}
	defer stopDebug()
	options := c.options(log)
	options.Address = c.advertised(listener.Addr())
	if err := invalidOptions(options.Check()); err != nil {
		return err
	}
	if err := c.checkLog(ctx); err != nil {
		return err
	}

	store, kind, err := c.open(ctx)
	if err != nil {
		return err
	}
	prices := c.Prices.of(store)
	var budget *price.Budget // nil if commits don't depend on one
	if options.Batching, budget, err = c.pace(kind, prices, log); err != nil {
		return err
	}
	broker, err := seb.Open(ctx, store, options)
	if err != nil {
		return cmp.Or(invalidOptions(err), c.notOpened("open the log in", err))
	}
	if c.needsKeys() && !broker.KeysExist() {
		return errors.Join(c.noKeys(true), broker.Close())
	}
	if secure == nil && othersReach(c.HTTP) {
		log.Warn("HTTP without TLS on an address that other machines can reach: an eavesdropper learns keys and records; see --tls-cert")
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), sebprom.NewCollector(broker.Metrics))
	if budget != nil {
		metrics.MustRegister(sebprom.NewCollector(budget.Metrics))
	}
	triggers, endTriggers := c.triggers(broker, metrics, log)
	api := httpapi.New(broker, httpapi.Options{
		Triggers: triggers, Logger: log, Registerer: metrics, Gatherer: metrics, AllowOrigins: c.AllowOrigin, Prices: prices, Version: version(),
		PeerTLS: c.peerConfig(secure), Host: c.advertisedHost(), Zone: c.Zone, NoPeers: c.NoPeers,
	})
	server := httpapi.NewServer(api, log)
	endPushes := c.deliver(broker, log)
	endWork := func() {
		endTriggers()
		endPushes()
	}
	failed := make(chan error, 1)
	limited := limit(api, server, listener, c.MaxConnections, secure)
	go func() { failed <- server.Serve(limited) }()

	debug.FreeOSMemory() // the start took memory that the idle broker does not need
	if err := c.banner(std.out, listener.Addr(), kind, budget != nil, prices, broker.KeysExist(), broker.Status()); err != nil {
		log.Warn("can't write to standard output", "error", err)
	}
	log.Info("ready", "address", listener.Addr().String(), "store", c.Store, "cluster", broker.Status().ClusterID,
		"applied", broker.Status().Applied, "version", version())
	if err := notifySupervisor(ctx, "READY=1"); err != nil {
		log.Warn("can't tell the supervisor that seb is ready", "error", err)
	}
	cause := c.watch(ctx, broker, failed)
	if cause == nil {
		log.Info("shutting down", "delay", c.ShutdownDelay)
		cause = c.leave(api, broker, failed)
	}
	if err := notifySupervisor(context.WithoutCancel(ctx), "STOPPING=1"); err != nil {
		log.Warn("can't tell the supervisor that seb stops", "error", err)
	}
	return errors.Join(cause, shutdown(server, api, broker, endWork, log))
}

// invalidOptions returns the error for flags that the library refuses, nil for all other errors. After a usage
// error, supervisors do not restart seb.
func invalidOptions(err error) error {
	var e *seb.Error
	switch {
	case !errors.As(err, &e) || e.Code != seb.CodeInvalidRequest:
		return nil
	case e.Err != nil:
		return usageError{hinted(fmt.Errorf("%s: %w", strings.Replace(e.Detail, "CacheDir", "--cache-dir", 1), e.Err),
			"name a directory that is for the cache of this broker alone; do not change the mode of a directory that others use, such as /tmp")}
	}
	for _, of := range optionFlags {
		if strings.Contains(e.Detail, of.detail) {
			return usage(fmt.Errorf("%s: %s", of.flag, e.Detail))
		}
	}
	return usage(errors.New(e.Detail))
}

// optionFlags names the flag that sets an option, by words of the error with which the library refuses the option.
var optionFlags = []struct{ detail, flag string }{
	{"commits between two checkpoints", "--checkpoint-commits"},
	{"the request limit is", "--request-bytes-max"}, {"the record limit is", "--record-bytes-max"},
	{"headers of a record", "--headers-max"}, {"partitions of a topic", "--partitions-max"}, {"delayed appends", "--delayed-max"},
	{"API keys", "--keys-max"}, {"consumers", "--consumers-max"}, {"queues", "--queues-max"},
	{"the address has", "--advertise"}, {"the margin is", "--margin"},
}

// limit returns the listener that the server serves, with the limits on connections and headers. The server speaks only
// HTTP/1.1, with or without TLS. So a connection carries one request at a time: the limits on connections, on
// headers, on slow clients and on lost clients rely on this.
func limit(api *httpapi.Handler, server *http.Server, l net.Listener, connections int, secure *tls.Config) net.Listener {
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	l = httpapi.LimitConnections(server, l, connections)
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	return api.LimitHeaders(server, l)
}

// watch waits until the broker has to end, and returns the reason if it is a failure.
func (c *serveCmd) watch(ctx context.Context, broker *seb.Broker, failed <-chan error) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-broker.Stopped():
		// The process must end as well. Otherwise it would serve nothing, but look alive to a supervisor.
		return fmt.Errorf("serve %s: %w", c.Store, broker.Status().Err)
	}
}

// leave waits for --shutdown-delay, so that load balancers have stopped sending requests when the broker stops. It returns early, with
// the reason, if the broker has to end before.
func (c *serveCmd) leave(api *httpapi.Handler, broker *seb.Broker, failed <-chan error) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.ShutdownDelay)
	defer cancel()
	api.Leave()
	return c.watch(ctx, broker, failed)
}

// shutdown waits until requests end: those of clients, those that other brokers forwarded, and pushes to
// targets. It ends triggers, too. Then it commits the records that are not yet committed, and writes a checkpoint.
func shutdown(server *http.Server, api *httpapi.Handler, broker *seb.Broker, endWork func(), log *slog.Logger) error {
	drain, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	workEnded := make(chan struct{})
	go func() {
		defer close(workEnded)
		endWork()
	}()
	late := endRequests(drain, server, api)
	<-workEnded
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := broker.Shutdown(ctx)
	if late != nil {
		// Every append has its outcome now. Give the answers time to reach the clients.
		answer, cancel := context.WithTimeout(context.Background(), answerTimeout)
		defer cancel()
		late = endRequests(answer, server, api)
	}
	if late != nil {
		log.Warn("requests did not end in time and were cut off", "error", late)
		if err := errors.Join(server.Close(), api.Close()); err != nil {
			log.Warn("close HTTP connections", "error", err)
		}
	}
	if err != nil {
		return fmt.Errorf("shut down: %w", err)
	}
	log.Info("shut down", "applied", broker.Status().Applied)
	return nil
}

// endRequests stops the server, and waits for the requests of clients and of other brokers.
func endRequests(ctx context.Context, server *http.Server, api *httpapi.Handler) error {
	passedOn := make(chan error, 1)
	go func() { passedOn <- api.Shutdown(ctx) }()
	return errors.Join(server.Shutdown(ctx), <-passedOn)
}

func (c *serveCmd) options(log *slog.Logger) seb.Options {
	return seb.Options{
		AppendTimeout:     c.AppendTimeout,
		CheckpointCommits: c.CheckpointCommits,
		NoAutoCreate:      !c.AutoCreate,
		HoldFormat:        c.HoldFormat,
		KeepDeleted:       c.KeepDeleted,
		NoMaintenance:     c.NoMaintenance,
		StaleMax:          c.StaleMax,
		Memory:            int64(c.Memory),
		StateMemory:       int64(c.StateMemory),
		CacheDir:          c.CacheDir,
		CacheBytes:        int64(c.CacheBytes),
		Limits: seb.Limits{
			RecordBytes:     int(c.RecordBytesMax),
			RequestBytes:    int(c.RequestBytesMax),
			RecordHeaders:   c.HeadersMax,
			Topics:          c.TopicsMax,
			Partitions:      c.PartitionsMax,
			CommitParts:     c.CommitPartsMax,
			Consumers:       c.ConsumersMax,
			Queues:          c.QueuesMax,
			Delayed:         c.DelayedMax,
			Keys:            c.KeysMax,
			IdempotencyKeys: c.IdempotencyKeysMax,
		},
		Logger:       log,
		PushNetworks: c.PushAllow,
		PushDenied:   c.PushDeny,
		Cluster:      seb.ClusterOptions{DeleteDelay: c.deleteDelay(), Margin: c.Margin},
	}
}

func (c *serveCmd) logger(std streams) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.LogLevel, ReplaceAttr: redact}
	if c.LogFormat == "json" {
		opts.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr { return inSeconds(redact(groups, a)) }
		return slog.New(slog.NewJSONHandler(std.err, opts))
	}
	return slog.New(slog.NewTextHandler(std.err, opts))
}

// inSeconds gives a duration a name and a value with a unit: the JSON format would show a plain number of
// nanoseconds.
func inSeconds(a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key+"_seconds", a.Value.Duration().Seconds())
	}
	return a
}

// redact removes API keys and other secrets from an attribute of a log line.
func redact(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case string:
		a.Value = slog.StringValue(httpapi.WithoutSecrets(v))
	case error:
		a.Value = slog.StringValue(httpapi.WithoutSecrets(v.Error()))
	}
	return a
}

// limitMemory sets the garbage collector's memory limit to the sum of --memory, --state-memory and
// memoryHeadroom, without what that limit does not count, unless the user has set GOMEMLIMIT.
func (c *serveCmd) limitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	sum := float64(c.Memory) + float64(c.StateMemory) + memoryHeadroom - unlimitedMemory
	debug.SetMemoryLimit(int64(min(sum, math.MaxInt64/2)))
}

// notListening adds a hint to the error of listening for HTTP. If a retry can't help, it is a usage error.
func notListening(err error) error {
	const hint = "choose an address of this machine and a port with --http"
	name, unresolved := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL), unresolved && name.IsNotFound:
		return usageError{hinted(err, hint)}
	case errors.Is(err, syscall.EADDRINUSE):
		return hinted(err, "another broker may be running there; choose another address with --http")
	case errors.Is(err, fs.ErrPermission):
		return hinted(err, "ports below 1024 need root; choose another port with --http")
	default:
		return hinted(err, hint)
	}
}

// checkAddresses refuses invalid addresses and other invalid flags. Without --insecure it also refuses
// profiles on an address that other machines can reach, since profiles have no access control.
func (c *serveCmd) checkAddresses(ctx context.Context) error {
	for _, flag := range []struct{ name, address string }{{"--http", c.HTTP}, {"--debug-addr", c.DebugAddr}} {
		if flag.address == "" {
			continue
		}
		_, port, err := net.SplitHostPort(flag.address)
		if err == nil {
			_, err = net.DefaultResolver.LookupPort(ctx, "tcp", port)
		}
		if err != nil {
			return usage(hinted(fmt.Errorf("%s: %w", flag.name, err), "give an address and a port, such as 127.0.0.1:51313"))
		}
	}
	if c.DebugAddr != "" && othersReach(c.DebugAddr) && !c.Insecure {
		return usageError{hinted(
			fmt.Errorf("other machines can reach the address %s (--debug-addr), and profiles have no access control", c.DebugAddr),
			"use an address of 127.0.0.1, or add --insecure if everyone may see them")}
	}
	if err := cmp.Or(c.tlsFlags.check(), c.pushFlags.check()); err != nil {
		return err
	}
	if c.Store == "" {
		return errNoStore
	}
	if c.HTTP == "" {
		return usage(errors.New("--http is empty: give an address and a port, such as 127.0.0.1:51313"))
	}
	if err := c.checkAdvertise(); err != nil {
		return err
	}
	for _, origin := range c.AllowOrigin {
		if err := httpapi.CheckOrigin(origin); err != nil {
			return usage(fmt.Errorf("--allow-origin: %w", err))
		}
	}
	if c.Linger != nil && *c.Linger < 0 {
		return usage(fmt.Errorf("invalid --linger %v: it must not be negative", *c.Linger))
	}
	if err := c.checkPositive(); err != nil {
		return err
	}
	if err := c.checkBudget(); err != nil {
		return err
	}
	if c.Batch == batchTimed && c.linger() >= c.AppendTimeout {
		return usage(fmt.Errorf("--linger is %v; it must be less than --append-timeout (%v), or writes end before their commit begins", c.linger(), c.AppendTimeout))
	}
	return nil
}

// linger returns how long a timed batch collects records.
func (c *serveCmd) linger() time.Duration {
	if c.Linger != nil {
		return *c.Linger
	}
	return c.kind().linger()
}

// deleteDelay returns how long objects of a new log stay after the log stopped needing them.
func (c *serveCmd) deleteDelay() time.Duration {
	if c.DeleteDelay != nil {
		return *c.DeleteDelay
	}
	return max(c.kind().deleteDelay(), 4*c.Margin)
}

// othersReach tells whether an address may be reached from other machines.
func othersReach(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback())
}

// needsKeys tells whether the log must have API keys, because other machines can reach the broker. It is
// enough to check this at the start: once a log has had a key, every request needs a key, for good.
func (c *serveCmd) needsKeys() bool { return !c.Insecure && othersReach(c.HTTP) }

// checkLog returns an error if serve would create a log without API keys, although the log must have keys. It
// ignores other faults of the store, since the method open reports them.
func (c *serveCmd) checkLog(ctx context.Context) error {
	if !c.needsKeys() || c.Store == "memory:" {
		return nil
	}
	if holds, err := c.holdsLog(ctx); holds || err != nil {
		return nil //nolint:nilerr // open fails with the same error, and reports it
	}
	return c.noKeys(false)
}

// noKeys returns the error for a log without API keys on an address that other machines can reach. The
// parameter there tells whether the log exists.
func (c *serveCmd) noKeys(there bool) error {
	first := fmt.Sprintf("create the first API key with `seb key create NAME --scope admin --store '%s'", c.Store)
	switch {
	case c.Store == "memory:":
		first = ""
	case there:
		first += "`, or "
	default:
		first += " --new-log`, or "
	}
	return usageError{hinted(
		fmt.Errorf("other machines can reach the address %s (--http), and the log in %s has no API keys: everyone could read and write", c.HTTP, c.Store),
		first+"add --insecure if everyone may read and write")}
}

// checkPositive refuses flags that are 0 or less, since the library would use its default for a 0. It also
// refuses memory limits that are too small.
func (c *serveCmd) checkPositive() error {
	for _, flag := range []struct {
		name  string
		value any
	}{
		{"--commit-bytes", c.CommitBytes}, {"--append-timeout", c.AppendTimeout},
		{"--checkpoint-commits", c.CheckpointCommits}, {"--max-connections", c.MaxConnections},
		{"--stale-max", c.StaleMax}, {"--memory", c.Memory}, {"--state-memory", c.StateMemory}, {"--trigger-memory", c.TriggerMemory},
		{"--cache-bytes", c.CacheBytes}, {"--headers-max", c.HeadersMax}, {"--topics-max", c.TopicsMax},
		{"--partitions-max", c.PartitionsMax}, {"--commit-parts-max", c.CommitPartsMax},
		{"--consumers-max", c.ConsumersMax}, {"--queues-max", c.QueuesMax}, {"--delayed-max", c.DelayedMax},
		{"--keys-max", c.KeysMax}, {"--idempotency-keys-max", c.IdempotencyKeysMax},
		{"--delete-delay", c.deleteDelay()}, {"--margin", c.Margin},
	} {
		if reflect.ValueOf(flag.value).Int() <= 0 {
			return usage(fmt.Errorf("%s is %v; it must be greater than 0", flag.name, flag.value))
		}
	}
	if c.ShutdownDelay < 0 {
		return usage(fmt.Errorf("--shutdown-delay is %v; it must not be negative", c.ShutdownDelay))
	}
	if c.Memory < memoryMin {
		return usage(fmt.Errorf("--memory is %v; it must be at least %v", c.Memory, memoryMin))
	}
	if c.StateMemory < stateMemoryMin {
		return usage(fmt.Errorf("--state-memory is %v; it must be at least %v", c.StateMemory, stateMemoryMin))
	}
	if delay := c.deleteDelay(); delay/4 < c.Margin {
		return usage(fmt.Errorf("--delete-delay is %v; it must be at least %v, which is four times --margin (%v)", delay, 4*c.Margin, c.Margin))
	}
	return nil
}

const memoryMin size = 8 << 20 // the same minimum as in seb.Options

// stateMemoryMin is the least --state-memory. It includes a reserve of 64 KiB: enough to create API keys when
// the log is full, and to finish the work of the log's queues. The rest has room for the state of 17,000
// commits to one partition each (56 bytes per commit).
const stateMemoryMin size = 1 << 20
