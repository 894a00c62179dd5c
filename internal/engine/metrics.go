package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/histogram"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/metric"
	"github.com/simple-event-broker/seb/objstore"
)

var (
	secondsBounds = histogram.Exponential(0.0005, 2, 17) // 0.5 ms to 33 s
	bytesBounds   = histogram.Exponential(256, 4, 10)    // 256 B to 64 MiB
	batchesBounds = histogram.Exponential(1, 2, 12)
)

// metrics has the values that the engine counts only for [Engine.Metrics], which reads other values from
// the cache, the budget and the log.
type metrics struct {
	commits, commitRecords, checkpoints, checkpointBytes, dataLost atomic.Int64
	commitBytes, commitBatches, commitSeconds, checkpointSeconds   *histogram.Histogram

	bundles, bundleRefusals, fallbacks, compactions, pages, collections, deletions counts
	compactedBytes, segmentBytes, expiredRecords, passedRecords                    atomic.Int64
	compactionSeconds                                                              *histogram.Histogram

	mu    sync.Mutex
	store map[objstore.Verb]*storeMetrics
}

// counts are counters by label.
type counts struct {
	mu sync.Mutex
	by map[string]int64
}

func (c *counts) add(label string) { c.addAll(label, 1) }

func (c *counts) addAll(label string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]int64{}
	}
	c.by[label] += int64(n)
}

// family returns the counters, also those of the known labels that are 0.
func (c *counts) family(name, label, help string, known ...string) metric.Family {
	f := metric.Family{Name: name, Help: help, Kind: metric.Counter, Labels: []string{label}}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, value := range known {
		if c.by[value] == 0 {
			f.Add(0, value)
		}
	}
	for value, n := range c.by {
		f.Add(float64(n), value)
	}
	return f
}

// storeMetrics are the metrics of store requests with one verb.
type storeMetrics struct {
	outcomes map[objstore.Outcome]int64
	seconds  *histogram.Histogram
	bytes    int64
}

func newMetrics() *metrics {
	return &metrics{
		commitBytes:       histogram.New(bytesBounds),
		commitBatches:     histogram.New(batchesBounds),
		commitSeconds:     histogram.New(secondsBounds),
		checkpointSeconds: histogram.New(secondsBounds),
		compactionSeconds: histogram.New(secondsBounds),
		store:             map[objstore.Verb]*storeMetrics{},
	}
}

// Metrics returns the metrics of commits, of the store, of topics, of memory, of the log, of connected brokers and of
// the state, as they are now.
func (e *Engine) Metrics() []metric.Family {
	return slices.Concat(e.metrics.families(), []metric.Family{e.causeFamily()}, e.traffic.families(), e.memoryMetrics(), e.logMetrics(), e.peerMetrics(), e.stateMetrics())
}

func counter[N int64 | uint64](name, help string, value N) metric.Family {
	return metric.One(metric.Counter, name, help, float64(value))
}

func gauge[N int | float64 | int64 | uint64 | format.Seq](name, help string, value N) metric.Family {
	return metric.One(metric.Gauge, name, help, float64(value))
}

func observed(name, help string, h *histogram.Histogram) metric.Family {
	return metric.Family{Name: name, Help: help, Kind: metric.Histogram, Series: []metric.Series{{Distribution: h.Read()}}}
}

func (m *metrics) families() []metric.Family {
	return append(m.storeFamilies(),
		counter("seb_commits_total", "Commits that this broker wrote to the log.", m.commits.Load()),
		counter("seb_records_committed_total", "Records in the commits that this broker wrote to the log.", m.commitRecords.Load()),
		observed("seb_commit_bytes", "Bytes of batches in a commit, its data objects included.", m.commitBytes),
		observed("seb_commit_batches", "Batches in a commit.", m.commitBatches),
		observed("seb_commit_duration_seconds", "Time from sealing the requests of a commit until the commit is in the log.", m.commitSeconds),
		counter("seb_checkpoints_total", "Checkpoints written and read back.", m.checkpoints.Load()),
		gauge("seb_checkpoint_bytes", "Size of the last checkpoint that this broker wrote.", m.checkpointBytes.Load()),
		observed("seb_checkpoint_duration_seconds", "Time from the snapshot of the state until the checkpoint was read back.", m.checkpointSeconds),
		m.compactions.family("seb_compactions_total", "outcome",
			"Jobs that moved records into a segment: done; overtaken, since another broker has done the job; failed.", compactDone, compactOvertaken, compactFailed),
		counter("seb_compacted_bytes_total", "Bytes of batches that went into segments, before they were compressed.", m.compactedBytes.Load()),
		counter("seb_segment_written_bytes_total", "Bytes of segments that this broker wrote.", m.segmentBytes.Load()),
		observed("seb_compaction_duration_seconds", "Time of a job that moved records into a segment.", m.compactionSeconds),
		m.pages.family("seb_pages_stored_total", "outcome",
			"Jobs that moved idempotency keys from checkpoints into an object: done; overtaken, since another broker has done the job; failed.", compactDone, compactOvertaken, compactFailed),
		m.collections.family("seb_collections_total", "outcome", "Jobs that deleted dead objects.", collectDone, collectFailed),
		m.deletions.family("seb_deleted_objects_total", "kind",
			"Objects that this broker has deleted: commits, data objects with their segments, checkpoints, orphans that no commit refers to, and ghosts: commits that the store listed again.",
			deletedCommits, deletedData, deletedCheckpoints, deletedOrphans, deletedGhosts),
		counter("seb_retention_deleted_records_total", "Records that this broker has deleted since their topics no longer keep them.", m.expiredRecords.Load()),
		counter("seb_retention_undone_records_total", "Records of seb_retention_deleted_records_total that a queue had not done: see retention_past_queues.", m.passedRecords.Load()),
		counter("seb_data_lost_reads_total", "Reads that found an object missing or damaged. Alert if this is above 0.", m.dataLost.Load()),
	)
}

func (m *metrics) storeFamilies() []metric.Family {
	requests := metric.Family{Name: "seb_store_requests_total", Help: "Requests to the object store, by verb and outcome.",
		Kind: metric.Counter, Labels: []string{"verb", "outcome"}}
	seconds := metric.Family{Name: "seb_store_request_duration_seconds", Help: "Duration of requests to the object store.",
		Kind: metric.Histogram, Labels: []string{"verb"}}
	bytes := metric.Family{Name: "seb_store_bytes_total", Help: "Bytes of bodies sent to (create) and received from (get) the object store.",
		Kind: metric.Counter, Labels: []string{"verb"}}
	m.mu.Lock()
	defer m.mu.Unlock()
	for verb, of := range m.store {
		for outcome, n := range of.outcomes {
			requests.Add(float64(n), string(verb), string(outcome))
		}
		seconds.Series = append(seconds.Series, metric.Series{Labels: []string{string(verb)}, Distribution: of.seconds.Read()})
		if of.bytes > 0 {
			bytes.Add(float64(of.bytes), string(verb))
		}
	}
	return []metric.Family{requests, seconds, bytes}
}

// memoryMetrics returns the metrics of the memory budget and of the cache.
func (e *Engine) memoryMetrics() []metric.Family {
	used := metric.Family{Name: "seb_memory_share_used_bytes", Help: "Memory taken by what clients send or read: small requests, bodies of requests, and answers.",
		Kind: metric.Gauge, Labels: []string{"share"}}
	limit := metric.Family{Name: "seb_memory_share_limit_bytes", Help: "Memory that each share may take; beyond it requests wait, and are then refused.",
		Kind: metric.Gauge, Labels: []string{"share"}}
	for s := range budget.ShareCount {
		bytes, most := e.budget.ShareBytes(s)
		used.Add(float64(bytes), s.String())
		limit.Add(float64(most), s.String())
	}
	cache := e.cache.Stats()
	return []metric.Family{
		gauge("seb_memory_used_bytes", "Memory taken by requests and open batches.", e.budget.InUse()),
		gauge("seb_memory_limit_bytes", "Memory that requests, open batches and the cache may take together.", e.opts.Memory),
		used, limit,
		gauge("seb_cache_memory_bytes", "Memory taken by the cache.", cache.MemoryBytes),
		gauge("seb_cache_disk_bytes", "Size of the disk cache.", cache.DiskBytes),
		counter("seb_cache_memory_hits_total", "Batches served from memory.", cache.MemoryHits),
		counter("seb_cache_disk_hits_total", "Batches served from the disk cache.", cache.DiskHits),
		counter("seb_cache_misses_total", "Batches that had to be read from the store.", cache.Misses),
		counter("seb_cache_disk_corrupt_total", "Entries of the disk cache that did not verify.", cache.DiskCorrupt),
	}
}

// logMetrics returns metrics that tell how far the broker has applied the log.
func (e *Engine) logMetrics() []metric.Family {
	applied, _ := e.log.Position()
	stats := e.log.Stats()
	held := 0
	if e.retention.held.Load() != nil {
		held = 1
	}
	return []metric.Family{
		gauge("seb_applied_slot", "Last slot of the log that this broker has applied.", applied),
		metric.One(metric.Gauge, "seb_follow_age_seconds", "Time since this broker last synced with the log.", e.tail.age().Seconds()),
		gauge("seb_follow_lag_slots", "Slots of the log that this broker knows to exist and has not applied yet.", e.log.Lag()),
		counter("seb_lost_races_total", "Commits that this broker moved to a later slot because another broker won their slot.", stats.LostRaces.Load()),
		counter("seb_unknown_creates_total", "Creates of commits in the store whose outcome is unknown.", stats.UnknownCreates.Load()),
		counter("seb_foreign_commits_total", "Commits of other brokers that this broker applied.", stats.ForeignCommits.Load()),
		gauge("seb_retention_held", "1 if this broker deletes no records although their topics no longer keep them, since a clock may be wrong: see docs/operations.md. Alert if this is 1 for longer than a day.", held),
		metric.One(metric.Gauge, "seb_log_time_ahead_seconds", "By how much the time of the last commit is ahead of the store's clock; 0 if it is not.", max(0, time.UnixMicro(e.Time()).Sub(e.StoreNow()).Seconds())),
		counter("seb_checkpoint_loads_total", "Checkpoints that this broker loaded.", stats.Loads.Load()),
	}
}

// peerMetrics returns metrics of the connections to other brokers.
func (e *Engine) peerMetrics() []metric.Family {
	stats := e.mesh.Stats()
	return []metric.Family{
		gauge("seb_peers", "Other brokers of the log that this broker is connected to.", stats.Peers),
		counter("seb_peer_commits_sent_total", "Commits that this broker sent to other brokers, counted for each of them.", stats.Sent),
		counter("seb_peer_commits_received_total", "Commits that other brokers sent to this broker.", stats.Received),
		counter("seb_peer_commits_dropped_total", "Commits that this broker did not send to another broker, since that one took its messages too slowly and has to read the store.", stats.Dropped),
		e.metrics.bundles.family("seb_peer_bundles_total", "outcome",
			"Bundles of requests. Of this broker's: sent to another broker, counted each time; committed by another broker; committed by this broker itself (alone). Of others: taken into the hand; committed for them (for others); dropped, since another broker has committed them (struck).",
			"sent", "committed", "alone", "taken", "for others", "struck"),
		e.metrics.bundleRefusals.family("seb_peer_refusals_total", "reason", "Bundles of other brokers that this broker did not take. Those brokers commit them themselves."),
		e.metrics.fallbacks.family("seb_peer_fallbacks_total", "reason",
			"How often this broker stopped waiting for the broker that commits for all, and wrote a commit itself.",
			leftSilence, leftRefused, leftBroken, leftStoreSlow),
	}
}

// stateMetrics returns metrics that tell how large the state is, and how large it may be.
func (e *Engine) stateMetrics() (families []metric.Family) {
	left := metric.Family{Name: "seb_state_left_seconds", Kind: metric.Gauge,
		Help: "Time until appends are refused because the state is full, if the state continues to grow as fast as in the last day. Idempotency keys do not count, since they expire. Absent if the state does not grow."}
	if use := e.StateUse(); use.Left > 0 {
		left.Add(use.Left.Seconds())
	}
	liveBytes := metric.Family{Name: "seb_segment_batches_bytes", Kind: metric.Gauge, Labels: []string{"state"},
		Help: "Bytes of batches in segments: of records that exist (live), and of deleted ones (dead)."}
	e.View(func(s *state.State) {
		now := e.NowIn(s)
		holds, end := s.Holds(now), int64(0)
		for _, x := range holds {
			end = max(end, x.Until)
		}
		var all, live int64
		for _, n := range s.Segments() {
			all, live = all+n.Bytes, live+n.Live()
		}
		liveBytes.Add(float64(live), "live")
		liveBytes.Add(float64(all-live), "dead")
		families = []metric.Family{
			gauge("seb_state_bytes", "Memory taken by the state of the log: topics, batches, consumers, queues and keys.", s.Memory()),
			gauge("seb_state_limit_bytes", "Memory that the state may take (--state-memory); appends are refused when a sixteenth of it is left.", e.opts.StateMemory),
			gauge("seb_topics", "Topics.", s.TopicCount()),
			gauge("seb_consumers", "Consumers of all topics.", s.ConsumerCount()),
			gauge("seb_queues", "Queues of all topics.", s.QueueCount()),
			gauge("seb_delayed_appends", "Appends whose delay is not over; an append counts once for each of its partitions.", s.DelayedCount(now)),
			gauge("seb_batches", "Batches of records in the state. Those in segments are not among them.", s.Batches()),
			gauge("seb_log_level", "Level of the log's format; from 6 on records move into segments.", int(s.Level())),
			gauge("seb_segments", "Segments of the log.", len(s.Segments())),
			liveBytes,
			gauge("seb_pages", "Objects with idempotency keys, to which checkpoints refer.", len(s.Pages())),
			gauge("seb_dead_objects", "Data objects and segments that no record is in any longer.", len(s.Dead())),
			gauge("seb_delete_delay_seconds", "How long objects stay in the store after the log no longer needs them.", max(s.Keeps(now), time.Duration(e.cluster.DeleteDelay)).Seconds()),
			gauge("seb_holds", "Holds: while seb restore copies the log, its hold keeps brokers from deleting what it needs.", len(holds)),
			gauge("seb_holds_end_timestamp_seconds", "When the last hold ends unless it is renewed, in seconds since 1970; 0 without holds.", float64(end)/1e6),
			gauge("seb_idempotency_keys", "Idempotency keys that the log remembers, each for 25 hours.", s.KeyedCount(now)),
			gauge("seb_idempotency_keys_limit", "Idempotency keys that the log may remember (--idempotency-keys-max); beyond it requests with new keys are refused.", e.opts.IdempotencyKeys),
		}
	})
	return append(families, left)
}

func (m *metrics) storeRequest(op objstore.Op) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.store[op.Verb]
	if of == nil {
		of = &storeMetrics{outcomes: map[objstore.Outcome]int64{}, seconds: histogram.New(secondsBounds)}
		m.store[op.Verb] = of
	}
	of.outcomes[op.Outcome]++
	of.seconds.Observe(op.Duration.Seconds())
	of.bytes += op.Bytes
}

func (m *metrics) commit(c *format.Commit, took time.Duration) {
	var batches, records, bytes int64
	for _, entry := range c.Entries {
		if x, ok := entry.(*format.Batch); ok {
			batches++
			records += int64(x.Count)
			bytes += int64(x.Size)
		}
	}
	m.commits.Add(1)
	m.commitRecords.Add(records)
	m.commitBytes.Observe(float64(bytes))
	m.commitBatches.Observe(float64(batches))
	m.commitSeconds.Observe(took.Seconds())
}

// fellBack counts a commit that this broker writes although another one commits for all, if reason says why.
func (m *metrics) fellBack(reason *string) {
	if *reason != "" {
		m.fallbacks.add(*reason)
		*reason = ""
	}
}

func (m *metrics) checkpoint(bytes int, took time.Duration) {
	m.checkpoints.Add(1)
	m.checkpointBytes.Store(int64(bytes))
	m.checkpointSeconds.Observe(took.Seconds())
}
