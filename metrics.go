package seb

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
)

// metrics are the broker's own; whoever gives it a registerer decides where
// they are served.
type metrics struct {
	storeRequests *prometheus.CounterVec
	storeSeconds  *prometheus.HistogramVec
	storeBytes    *prometheus.CounterVec

	commits       prometheus.Counter
	commitRecords prometheus.Counter
	commitBytes   prometheus.Histogram
	commitBatches prometheus.Histogram
	commitSeconds prometheus.Histogram

	checkpoints       prometheus.Counter
	checkpointBytes   prometheus.Gauge
	checkpointSeconds prometheus.Histogram
	dataLost          prometheus.Counter

	funcs []prometheus.Collector // of one broker, made when it registers
}

func newMetrics() *metrics {
	seconds := prometheus.ExponentialBuckets(0.0005, 2, 17) // 0.5 ms to 33 s
	bytes := prometheus.ExponentialBuckets(256, 4, 10)      // 256 B to 64 MiB
	return &metrics{
		storeRequests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seb_store_requests_total", Help: "Requests to the object store, by verb and outcome."}, []string{"verb", "outcome"}),
		storeSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "seb_store_request_duration_seconds", Help: "Duration of requests to the object store.", Buckets: seconds}, []string{"verb"}),
		storeBytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seb_store_bytes_total", Help: "Bytes of bodies sent to (create) and received from (get) the object store."}, []string{"verb"}),
		commits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seb_commits_total", Help: "Commits that this broker won a slot for."}),
		commitRecords: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seb_records_committed_total", Help: "Records in those commits."}),
		commitBytes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seb_commit_bytes", Help: "Bytes of batches in a commit, its data objects included.", Buckets: bytes}),
		commitBatches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seb_commit_batches", Help: "Batches in a commit.", Buckets: prometheus.ExponentialBuckets(1, 2, 12)}),
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seb_commit_duration_seconds", Help: "From the close of a batch to its acknowledgement.", Buckets: seconds}),
		checkpoints: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seb_checkpoints_total", Help: "Checkpoints written and read back."}),
		checkpointBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "seb_checkpoint_bytes", Help: "Size of the last checkpoint that this broker wrote."}),
		checkpointSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seb_checkpoint_duration_seconds", Help: "From the snapshot to the checkpoint read back.", Buckets: seconds}),
		dataLost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seb_data_lost_reads_total", Help: "Reads that met a missing or damaged object. Alert on any."}),
	}
}

// register adds all collectors to r, or none.
func (m *metrics) register(r prometheus.Registerer, b *Broker) error {
	gauge := func(name, help string, f func() float64) {
		m.funcs = append(m.funcs, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f))
	}
	counter := func(name, help string, f func() float64) {
		m.funcs = append(m.funcs, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, f))
	}
	state := func(f func() float64) func() float64 {
		return func() float64 {
			b.mu.RLock()
			defer b.mu.RUnlock()
			return f()
		}
	}
	stats := b.log.Stats()
	gauge("seb_applied_slot", "Last slot of the log that this broker has applied.", func() float64 {
		s, _ := b.log.Position()
		return float64(s)
	})
	gauge("seb_follow_age_seconds", "Time since this broker last saw the end of the log.", func() float64 { return b.tail.age().Seconds() })
	gauge("seb_follow_lag_slots", "Slots that are known to exist and not applied yet.", func() float64 { return float64(b.log.Lag()) })
	gauge("seb_memory_used_bytes", "Memory taken by requests and open batches.", func() float64 { return float64(b.budget.inUse()) })
	shared := func(name, help string, f func(s Share) int64) {
		for s := range shareCount {
			m.funcs = append(m.funcs, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: name, Help: help, ConstLabels: prometheus.Labels{"share": s.String()},
			}, func() float64 { return float64(f(s)) }))
		}
	}
	shared("seb_memory_share_used_bytes", "Memory taken by what clients send or read: small requests, bodies of requests, and answers.", func(s Share) int64 {
		used, _ := b.ShareBytes(s)
		return used
	})
	shared("seb_memory_share_limit_bytes", "Memory that each of these may take; past it callers wait, then are pushed back.", func(s Share) int64 {
		_, limit := b.ShareBytes(s)
		return limit
	})
	gauge("seb_memory_limit_bytes", "Memory that requests, open batches and the cache may take together.", func() float64 { return float64(b.opts.Memory) })
	gauge("seb_state_bytes", "Memory taken by what the broker knows about the log.", state(func() float64 { return float64(b.state.Memory()) }))
	gauge("seb_state_limit_bytes", "Memory that the state may take (--state-memory); appends are refused a sixteenth before that.", func() float64 { return float64(b.opts.StateMemory) })
	gauge("seb_topics", "Topics.", state(func() float64 { return float64(b.state.TopicCount()) }))
	gauge("seb_consumers", "Consumers of all topics.", state(func() float64 { return float64(b.state.ConsumerCount()) }))
	gauge("seb_queues", "Queues of all topics.", state(func() float64 { return float64(b.state.QueueCount()) }))
	gauge("seb_delayed_appends", "Appends with a delay whose time has not come.", state(func() float64 { return float64(b.state.DelayedCount(b.logNow())) }))
	gauge("seb_batches", "Batches that the state knows.", state(func() float64 { return float64(b.state.Batches()) }))
	gauge("seb_cache_memory_bytes", "Memory taken by the cache.", func() float64 { return float64(b.cache.Stats().MemoryBytes) })
	gauge("seb_cache_disk_bytes", "Size of the disk cache.", func() float64 { return float64(b.cache.Stats().DiskBytes) })
	counter("seb_cache_memory_hits_total", "Batches served from memory.", func() float64 { return float64(b.cache.Stats().MemoryHits) })
	counter("seb_cache_disk_hits_total", "Batches served from the disk cache.", func() float64 { return float64(b.cache.Stats().DiskHits) })
	counter("seb_cache_misses_total", "Batches that had to be read from the store.", func() float64 { return float64(b.cache.Stats().Misses) })
	counter("seb_cache_disk_corrupt_total", "Entries of the disk cache that did not verify.", func() float64 { return float64(b.cache.Stats().DiskCorrupt) })
	counter("seb_lost_races_total", "Slots that another broker won.", func() float64 { return float64(stats.LostRaces.Load()) })
	counter("seb_unknown_creates_total", "Creates of commits whose outcome the store did not tell.", func() float64 { return float64(stats.UnknownCreates.Load()) })
	counter("seb_foreign_commits_total", "Commits of other brokers applied.", func() float64 { return float64(stats.ForeignCommits.Load()) })
	counter("seb_checkpoint_loads_total", "Checkpoints loaded.", func() float64 { return float64(stats.Loads.Load()) })

	m.funcs = append(m.funcs, consumerMetrics{b}, queueMetrics{b})
	for i, c := range m.collectors() {
		if err := r.Register(c); err != nil {
			for _, done := range m.collectors()[:i] {
				r.Unregister(done)
			}
			return err
		}
	}
	return nil
}

func (m *metrics) collectors() []prometheus.Collector {
	return append([]prometheus.Collector{
		m.storeRequests, m.storeSeconds, m.storeBytes,
		m.commits, m.commitRecords, m.commitBytes, m.commitBatches, m.commitSeconds,
		m.checkpoints, m.checkpointBytes, m.checkpointSeconds, m.dataLost,
	}, m.funcs...)
}

func (m *metrics) unregister(r prometheus.Registerer) {
	for _, c := range m.collectors() {
		r.Unregister(c)
	}
}

func (m *metrics) storeRequest(op objstore.Op) {
	verb := string(op.Verb)
	m.storeRequests.WithLabelValues(verb, string(op.Outcome)).Inc()
	m.storeSeconds.WithLabelValues(verb).Observe(op.Duration.Seconds())
	if op.Bytes > 0 {
		m.storeBytes.WithLabelValues(verb).Add(float64(op.Bytes))
	}
}

func (m *metrics) commit(c *format.Commit, took time.Duration) {
	var batches, records, bytes float64
	for _, it := range c.Items {
		if x, ok := it.(*format.Batch); ok {
			batches++
			records += float64(x.Count)
			bytes += float64(x.Size)
		}
	}
	m.commits.Inc()
	m.commitRecords.Add(records)
	m.commitBytes.Observe(bytes)
	m.commitBatches.Observe(batches)
	m.commitSeconds.Observe(took.Seconds())
}

func (m *metrics) checkpoint(bytes int, took time.Duration) {
	m.checkpoints.Inc()
	m.checkpointBytes.Set(float64(bytes))
	m.checkpointSeconds.Observe(took.Seconds())
}
