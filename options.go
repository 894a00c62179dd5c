package seb

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/pack"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
)

// Options configure a [Broker]. The zero value of every field means its default.
type Options struct {
	// Batching decides when waiting records are committed. Default:
	// Timed(10ms, 4 MiB).
	Batching Batching
	// AppendTimeout bounds how long a write waits for syncs and for its commit, counted from the
	// time when the write was requested. If the write is not part of a commit by then, the broker
	// withdraws the write. Default 30 s.
	AppendTimeout time.Duration
	// CheckpointCommits is the number of commits between two checkpoints, 1 to 1,024. Default 1,000.
	// If checkpoints are over 1 MiB, the broker writes them less often, so that it spends at most
	// about an eighth of its time on them.
	CheckpointCommits int
	// HoldFormat keeps the log readable for earlier versions of Seb. Without it, the broker raises the level of the log's
	// format: of a new log by the first commit, of others once an hour and at least 1,000 commits have passed in which all
	// brokers that wrote, or were connected to the writer, could read the next level, and none of them had HoldFormat set.
	// From then on, earlier versions refuse the log.
	HoldFormat bool
	// KeepDeleted is how long brokers keep in the store what the log no longer needs, if that is longer than the delete delay:
	// for so long, the log can be restored as it was before. It is written into the log, so the longest time of all brokers counts.
	// Default: the delete delay. At most 10 years.
	KeepDeleted time.Duration
	// NoMaintenance leaves checkpoints, compaction, retention and deletion to other brokers of the log. If all brokers do so, the
	// state fills up, and then appends are refused.
	NoMaintenance bool
	// RaiseFormat makes Open raise the level of the log's format at once. If a broker of an earlier version uses the
	// log, it stops.
	RaiseFormat bool
	// NoAutoCreate makes appends to unknown topics fail instead of creating them.
	NoAutoCreate bool
	// StaleMax is how old the last sync may be when the broker answers from what it knows of
	// the log, or hands out a queue's records. If the last sync is older, the broker first syncs:
	// it reads the log to the end. Default 1 s.
	StaleMax time.Duration

	// Memory bounds the buffers of requests, open batches and the cache
	// together, in bytes. Default 128 MiB, at least 8 MiB.
	Memory int64
	// StateMemory bounds the memory of the state, in bytes: what the broker knows about topics,
	// batches, consumers, queues and keys. The broker refuses requests that would exceed this bound.
	// The last sixteenth is a reserve. As the reserve fills, the broker first refuses appends, topics
	// and queues, then changes of consumers, then answers of workers, and last new API keys. Default
	// 256 MiB.
	StateMemory int64
	// CacheDir is a directory for a cache of what the broker read from the store. The directory
	// may be deleted at any time. Open fails unless the directory belongs to the user that runs
	// this process, and no other user may write to it. Default "": no disk cache.
	CacheDir string
	// CacheBytes bounds CacheDir. Default 1 GiB.
	CacheBytes int64
	// Limits bound requests, and how much the log may hold.
	Limits Limits

	// Logger receives what an operator should know. Default: discarded.
	Logger *slog.Logger

	// Address is the URL at which other brokers reach this one, such as http://10.0.0.5:8080.
	// If this broker owns a queue, other brokers forward requests that only the queue's owner can
	// answer to this URL. Default "": other brokers forward no requests to this one.
	Address string

	// PushNetworks are networks, such as 10.2.0.0/16. The broker may push records to their
	// addresses even if these are not public, or are this machine's own. Default: none.
	PushNetworks []netip.Prefix
	// PushDenied are networks that records are never pushed to, even if PushNetworks includes
	// them. Default: none.
	PushDenied []netip.Prefix

	// Cluster has the constants with which Open sets up an empty bucket. A bucket that was set up
	// before keeps the constants that it has.
	Cluster ClusterOptions

	// BootClock returns the time since the machine started, including the time for which it
	// was suspended. Default: the machine's clock. A test that uses testing/synctest sets
	// BootClock to a clock that follows package time, because the machine's clock does not run in
	// the test's virtual time.
	BootClock func() time.Duration
	bootID    format.BootID // of the default clock
	// WallClock returns the time. A record without a timestamp gets this time. No decision depends
	// on it. Default: time.Now.
	WallClock func() time.Time

	// checkpointLarge is the size, in bytes, from which on the broker may write checkpoints less
	// often: see CheckpointCommits.
	checkpointLarge int
}

// FormatLevel is the highest level of a log's format that this version can read and write: see docs/format.md.
const FormatLevel = format.LevelSegments

// ClusterOptions are the constants of a bucket. They never change, and are the same for all brokers of
// the bucket.
type ClusterOptions struct {
	// DeleteDelay (D in the protocol) is how long an object stays in the store, at least, after the
	// log no longer needs it. Default 24 h, at least 4 × Margin.
	DeleteDelay time.Duration
	// Margin bounds the errors of the store's dates: see docs/guarantees.md. Default 1 h, at least 10 s.
	Margin time.Duration
}

// Limits bound requests, and how much the log may hold. Zero means the default.
type Limits struct {
	RecordBytes   int // key, value and headers of one record. Default 8 MiB, or half of RequestBytes if that is less
	RequestBytes  int // one request. Default 32 MiB, or a quarter of Options.Memory if that is less
	RecordHeaders int // headers of one record. Default 100, at most 32,768
	Topics        int // topics of the bucket. Default 10,000
	Partitions    int // partitions of one topic. Default 1,000
	CommitParts   int // appends, positions, tokens and ends of one [Broker.Commit], topics of a [Broker.Cut]. Default 1,000
	Consumers     int // consumers of all topics. Default 100,000, at most 1,048,576
	Queues        int // queues of all topics. Default 10,000, at most 65,536
	Delayed       int // appends whose delay is not over; an append to 3 partitions counts 3 times. Default 1,000,000
	Keys          int // API keys that are not revoked. Default 1,000, at most 10,000
	// IdempotencyKeys is how many idempotency keys the log may remember, each for 25 hours. A key
	// takes about 150 bytes of Options.StateMemory. Default 1,000,000.
	IdempotencyKeys int
}

const (
	mib = 1 << 20

	memoryMin            = 8 * mib
	checkpointCommitsMax = 1024
	checkpointLarge      = mib
	marginMin            = 10 * time.Second

	defaultMemory      = 128 * mib
	defaultStateMemory = 256 * mib
	requestBytesMax    = 1024 * mib                      // one record may be as large as a request, and the batch of that record, which is larger, must stay below 2 GiB
	recordHeadersMax   = record.RecordHeadersDefault / 2 // half of what readers accept: the copy of a dead letter has further headers, which the broker adds
)

func def[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// withDefaults returns o with defaults in place of zero fields, or an error that names an
// invalid field.
func (o Options) withDefaults() (Options, error) {
	def(&o.AppendTimeout, 30*time.Second)
	def(&o.CheckpointCommits, 1000)
	def(&o.checkpointLarge, checkpointLarge)
	def(&o.StaleMax, time.Second)
	def(&o.Memory, defaultMemory)
	def(&o.StateMemory, defaultStateMemory)
	def(&o.CacheBytes, 1024*mib)
	def(&o.Limits.RequestBytes, int(min(32*mib, o.Memory/4)))
	def(&o.Limits.RecordBytes, min(8*mib, o.Limits.RequestBytes/2))
	def(&o.Limits.RecordHeaders, 100)
	def(&o.Limits.Topics, 10_000)
	def(&o.Limits.Partitions, 1_000)
	def(&o.Limits.CommitParts, 1_000)
	def(&o.Limits.Consumers, 100_000)
	def(&o.Limits.Queues, 10_000)
	def(&o.Limits.Delayed, 1_000_000)
	def(&o.Limits.Keys, 1_000)
	def(&o.Limits.IdempotencyKeys, 1_000_000)
	def(&o.Cluster.DeleteDelay, 24*time.Hour)
	def(&o.Cluster.Margin, time.Hour)
	if o.Batching == nil {
		o.Batching = Timed(10*time.Millisecond, 4*mib)
	}
	if o.BootClock == nil {
		o.BootClock, o.bootID = engine.BootClock(), engine.BootIDNow()
	}
	if o.WallClock == nil {
		o.WallClock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, o.check()
}

// engine returns the options of the engine, for a session of the broker.
func (o *Options) engine(session format.SessionID) engine.Options {
	return engine.Options{
		Session: session, Address: o.Address,
		Batching: batching{o.Batching}, AppendTimeout: o.AppendTimeout, StaleMax: o.StaleMax,
		CheckpointCommits: o.CheckpointCommits, CheckpointLarge: o.checkpointLarge, IdempotencyKeys: o.Limits.IdempotencyKeys,
		HoldLevel: o.HoldFormat, KeepDeleted: o.KeepDeleted, NoMaintenance: o.NoMaintenance,
		Memory: o.Memory, StateMemory: o.StateMemory, CacheDir: o.CacheDir, CacheBytes: o.CacheBytes,
		DecodeChange: func(r *pack.Reader) engine.Change { return change.Decode(r) },
		DeleteDelay:  o.Cluster.DeleteDelay, Margin: o.Cluster.Margin, Logger: o.Logger, Boot: o.BootClock, BootID: o.bootID, Wall: o.WallClock,
	}
}

// Check returns the error with which [Open] would refuse the options. It changes nothing.
func (o Options) Check() (err error) {
	defer reads(&err)
	if o, err = o.withDefaults(); err == nil {
		err = o.engine(format.SessionID{}).Check()
	}
	return err
}

func (o Options) check() error {
	bad := func(format string, args ...any) error {
		return &Error{Code: CodeInvalidRequest, Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case o.Memory < memoryMin:
		return bad("memory is %d bytes; it must be at least %d bytes", o.Memory, memoryMin)
	case o.CheckpointCommits < 1 || o.CheckpointCommits > checkpointCommitsMax:
		return bad("the number of commits between two checkpoints is %d; it must be 1 to %d", o.CheckpointCommits, checkpointCommitsMax)
	case o.AppendTimeout < 0 || o.StaleMax < 0 || o.StateMemory < 0 || o.CacheBytes < 0:
		return bad("AppendTimeout is %v, StaleMax %v, StateMemory %d bytes and CacheBytes %d bytes; none may be negative", o.AppendTimeout, o.StaleMax, o.StateMemory, o.CacheBytes)
	case o.Limits.RequestBytes < 0 || int64(o.Limits.RequestBytes) > o.Memory/4:
		return bad("the request limit is %d bytes; it must be at most %d bytes, a quarter of the memory (Memory, --memory)", o.Limits.RequestBytes, o.Memory/4)
	case o.Limits.RequestBytes > requestBytesMax:
		return bad("the request limit is %d bytes; it must be at most %d bytes", o.Limits.RequestBytes, requestBytesMax)
	case o.Limits.RecordBytes < 0 || o.Limits.RecordBytes > o.Limits.RequestBytes:
		return bad("the record limit is %d bytes; it must be at most the request limit (Limits.RequestBytes, --request-bytes-max), %d bytes", o.Limits.RecordBytes, o.Limits.RequestBytes)
	case min(o.Limits.RecordHeaders, o.Limits.Topics, o.Limits.Partitions, o.Limits.CommitParts, o.Limits.Consumers, o.Limits.Queues, o.Limits.Delayed, o.Limits.Keys, o.Limits.IdempotencyKeys) < 0:
		return bad("a limit is negative: %+v", o.Limits)
	case o.Limits.RecordHeaders > recordHeadersMax:
		return bad("the limit of headers of a record is %d; it must be at most %d", o.Limits.RecordHeaders, recordHeadersMax)
	case o.Limits.Partitions > state.PartitionsMax:
		return bad("the limit of partitions of a topic is %d; it must be at most %d", o.Limits.Partitions, state.PartitionsMax)
	case o.Limits.Delayed > state.DelayedMax/2:
		return bad("the limit of delayed appends is %d; it must be at most %d", o.Limits.Delayed, state.DelayedMax/2)
	case o.Limits.Keys > state.KeysMax:
		return bad("the limit of API keys is %d; it must be at most %d", o.Limits.Keys, state.KeysMax)
	case o.Limits.Consumers > state.ConsumersMax:
		return bad("the limit of consumers is %d; it must be at most %d", o.Limits.Consumers, state.ConsumersMax)
	case o.Limits.Queues > state.QueuesMax:
		return bad("the limit of queues is %d; it must be at most %d", o.Limits.Queues, state.QueuesMax)
	case len(o.Address) > state.AddressBytesMax:
		return bad("the address has %d bytes; at most %d bytes are allowed", len(o.Address), state.AddressBytesMax)
	case slices.ContainsFunc(o.PushNetworks, isNoNetwork):
		return bad("PushNetworks holds an invalid network: %v; write networks as 10.2.0.0/16", o.PushNetworks)
	case slices.ContainsFunc(o.PushDenied, isNoNetwork):
		return bad("PushDenied holds an invalid network: %v; write networks as 10.2.0.0/16", o.PushDenied)
	case o.KeepDeleted < 0 || o.KeepDeleted > state.DelayMax:
		return bad("KeepDeleted is %v; it must be at most %v", o.KeepDeleted, state.DelayMax)
	case o.HoldFormat && o.RaiseFormat:
		return bad("HoldFormat and RaiseFormat are both set; set at most one of them")
	case o.Cluster.Margin < marginMin:
		return bad("the margin is %v; it must be at least %v, since stores tell the time in whole seconds", o.Cluster.Margin, marginMin)
	case o.Cluster.DeleteDelay/4 < o.Cluster.Margin:
		return bad("the delete delay is %v; it must be at least four times the margin, which is %v", o.Cluster.DeleteDelay, o.Cluster.Margin)
	}
	return nil
}

// isNoNetwork tells whether a prefix does not name a network: it is invalid, has host bits, or is an
// IPv4 network in IPv6 form.
func isNoNetwork(p netip.Prefix) bool { return !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() }

// Fill says how full the open batch is.
type Fill struct {
	Requests int           // number of requests in the batch: appends and other changes
	Bytes    int64         // size of the requests' records, as encoded
	Age      time.Duration // time since the first of the requests came
	Now      time.Time     // the log's time; zero until there is a commit
	Puts     int64         // objects that commits of all brokers have created while this one was open
	Spent    StoreUse      // requests of all brokers in this calendar month in UTC, as far as the log says so
}

// Batching decides when the open batch, which has the waiting requests for all topics,
// becomes a commit. Whatever Batching says, an open batch waits while a commit is under way.
type Batching interface {
	// Wait returns how much longer the open batch waits for more requests; 0 or less means that it
	// waits no longer. After that time, the broker commits the batch as soon as no other commit is
	// under way. The broker calls Wait again whenever a request joins. Wait must not block.
	Wait(open Fill) time.Duration

	// Admits reports whether another request may join an open batch that has a request already.
	// If Admits returns false, the request joins the next batch. Admits must not block.
	Admits(open Fill) bool
}

// Timed keeps a batch open until linger has passed since the batch's first request came, or until
// the batch has the given number of bytes. So the broker makes fewer commits than with [Immediate],
// and each commit costs a store request. But an append takes up to linger longer.
func Timed(linger time.Duration, bytes int64) Batching { return timed{linger, bytes} }

// Immediate commits a batch as soon as no other commit is under way. Appends that arrive during a
// commit form the next batch.
func Immediate() Batching { return immediate{} }

// Each makes one commit per append, so each append costs a store request. It is for tests.
func Each() Batching { return each{} }

type timed struct {
	linger time.Duration
	bytes  int64
}

func (t timed) Wait(open Fill) time.Duration {
	if open.Bytes >= t.bytes {
		return 0
	}
	return t.linger - open.Age
}

func (timed) Admits(Fill) bool { return true }

type immediate struct{}

func (immediate) Wait(Fill) time.Duration { return 0 }
func (immediate) Admits(Fill) bool        { return true }

type each struct{}

func (each) Wait(Fill) time.Duration { return 0 }
func (each) Admits(Fill) bool        { return false }

// batching gives a Batching to the engine.
type batching struct{ of Batching }

func (b batching) Wait(open engine.Fill) time.Duration { return b.of.Wait(Fill(open)) }
func (b batching) Admits(open engine.Fill) bool        { return b.of.Admits(Fill(open)) }
