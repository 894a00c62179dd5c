package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/test/kit"
)

// Config selects a run.
type Config struct {
	Seed uint64
	// S3 makes the brokers reach the bucket through the S3 client. If S3 is false, only the brokers of one
	// seed in 16 use that client.
	S3 bool
}

// Result is the result of a run.
type Result struct {
	// Violations are the invariants that did not hold; if there are none, the run passed.
	Violations []string
	Counts     Counts

	history *history
	bucket  *bucket
}

// Counts count what happened in a run.
type Counts struct {
	Acked, NotCommitted, Unknown, Reads, FailedReads int
	// Conditional counts acknowledged appends that had a condition; Acked includes them. Conflicts counts
	// appends that were refused because of their condition; NotCommitted includes them.
	Conditional, Conflicts int
	// Decided counts acknowledged appends on condition that nothing came to some topics up to a time; Acked includes them.
	// Changed and Early count appends that were refused because of these conditions; NotCommitted includes them.
	Decided, Changed, Early int
	// Trims counts acknowledged trims; Acked includes them. OutOfRange counts operations that were refused
	// because of an offset; FailedReads and NotCommitted include them.
	Trims, OutOfRange int
	// Updates counts acknowledged updates of topics; Acked includes them. Recreated counts topics that got
	// the name of a deleted topic.
	Updates, Recreated int
	// Revoked counts acknowledged revocations of API keys; Acked includes them. KeysGood and KeysRefused
	// count authentications with an API key; no other count includes them.
	Revoked, KeysGood, KeysRefused int
	// Moved counts acknowledged commits of positions, and Forgotten acknowledged deletions of consumers;
	// Acked includes both. Overtaken counts commits of positions that were refused because of the consumer's
	// version; NotCommitted includes them. Consumed counts reads with a consumer that found records; Reads
	// includes them. Again counts consumers that got the name of a deleted consumer.
	Moved, Forgotten, Overtaken, Consumed, Again int
	// Received counts deliveries of records by queues. Retried counts the deliveries among them that were
	// not the first of a record. Elsewhere counts requests to a broker that did not own the queue. Worked, Late
	// and PutBack count workers' answers: acknowledgements, answers that were refused because they were too
	// late, and records put back.
	Received, Retried, Elsewhere, Worked, Late, PutBack int
	// DeadLettered counts dead letters, Redriven redriven records, and Owners takeovers of queues, all from
	// the log. Together counts acknowledged commits of several parts; Acked includes them. Made counts
	// results of exactly-once jobs that are in the log. Remade counts results that workers sent and that are
	// not in the log.
	// Expired counts records that brokers have deleted because of their age.
	// Lives counts runs of brokers. Deleted counts objects that the run deleted. Ghosts counts objects that
	// a late request created again after their deletion. Segments counts the segments that logs ever had, Merged those of
	// other segments that they have in the end. Collected counts objects that brokers deleted since they were dead.
	// Pages counts the pages of idempotency keys that logs ever had.
	DeadLettered, Redriven, Owners, Together     int
	Made, Remade                                 int
	Lives, Commits, Checkpoints, Deleted, Ghosts int
	Segments, Merged, Collected, Expired, Pages  int
}

// Add adds the counts of another run.
func (c *Counts) Add(o Counts) {
	c.Acked += o.Acked
	c.NotCommitted += o.NotCommitted
	c.Unknown += o.Unknown
	c.Reads += o.Reads
	c.FailedReads += o.FailedReads
	c.Conditional += o.Conditional
	c.Conflicts += o.Conflicts
	c.Decided += o.Decided
	c.Changed += o.Changed
	c.Early += o.Early
	c.Trims += o.Trims
	c.OutOfRange += o.OutOfRange
	c.Updates += o.Updates
	c.Recreated += o.Recreated
	c.Revoked += o.Revoked
	c.KeysGood += o.KeysGood
	c.KeysRefused += o.KeysRefused
	c.Moved += o.Moved
	c.Forgotten += o.Forgotten
	c.Overtaken += o.Overtaken
	c.Consumed += o.Consumed
	c.Again += o.Again
	c.Received += o.Received
	c.Retried += o.Retried
	c.Elsewhere += o.Elsewhere
	c.Worked += o.Worked
	c.Late += o.Late
	c.PutBack += o.PutBack
	c.DeadLettered += o.DeadLettered
	c.Redriven += o.Redriven
	c.Owners += o.Owners
	c.Together += o.Together
	c.Made += o.Made
	c.Remade += o.Remade
	c.Lives += o.Lives
	c.Commits += o.Commits
	c.Checkpoints += o.Checkpoints
	c.Deleted += o.Deleted
	c.Ghosts += o.Ghosts
	c.Segments += o.Segments
	c.Merged += o.Merged
	c.Collected += o.Collected
	c.Expired += o.Expired
	c.Pages += o.Pages
}

// Story returns what happened in the run, and what the store holds at the end.
func (r *Result) Story() string {
	var w strings.Builder
	r.history.write(&w)
	r.bucket.write(&w)
	return w.String()
}

// lifetimeMax is how long a run may take. In a run that takes longer, some goroutine waits for ever, so the
// simulator gives the run up.
const lifetimeMax = 1000 * time.Hour

// simulation is a run.
type simulation struct {
	cfg     Config
	plan    plan
	begun   time.Time
	bucket  *bucket
	history *history
	nodes   []*node

	flights sync.WaitGroup // all goroutines but those of clients, nodes and faults

	mu          sync.Mutex
	networks    map[string]network // by node
	ended       chan struct{}      // closed when the run ends
	isHealed    bool               // the faults have ended
	counts      Counts
	begins      map[string]time.Duration // when each life began
	endedLives  []*life
	updates     int64                  // updates of topics so far
	keys        []apiKey               // keys that clients created
	secret      string                 // of the API key that clients use over HTTP; "" in a log without API keys
	secretSince time.Duration          // when the API key of secret was created
	versions    map[consumerRef]string // for each consumer, the version in the last answer to any client
	done        map[string]bool        // ids of the records whose work is done
	aged        []agedRecord           // records that brokers have read
	sources     map[string]delivery    // for each id of a result, the delivery that a worker made the result for

	deleting sync.Mutex
	objects  map[format.Seq]map[string]bool // of each checkpoint, once checkDelete needs it

	pages int  // pages of idempotency keys that the log ever had
	final *log // what the bucket holds at the end of the run
}

// Run runs a simulation to its end, in its own bubble of virtual time.
func Run(t *testing.T, cfg Config) *Result {
	smallSegments()
	t.Helper()
	s := &simulation{
		cfg: cfg, plan: newPlan(cfg.Seed), bucket: newBucket(),
		networks: map[string]network{}, begins: map[string]time.Duration{},
		versions: map[consumerRef]string{}, done: map[string]bool{}, sources: map[string]delivery{}, objects: map[format.Seq]map[string]bool{},
	}
	s.plan.s3 = s.plan.s3 || cfg.S3
	dir := s.cacheDir()
	defer func() { s.must(os.RemoveAll(dir)) }()
	synctest.Test(t, func(*testing.T) {
		s.begun, s.ended = time.Now(), make(chan struct{})
		s.history = newHistory(s.now)
		s.history.begun = s.begun
		s.history.note("%+v", s.plan)
		for i := range s.plan.brokers {
			n := &node{sim: s, name: string(rune('A' + i)), rng: stream(cfg.Seed, "node", i)}
			if dir != "" {
				n.dir = filepath.Join(dir, n.name)
			}
			s.nodes = append(s.nodes, n)
		}
		s.live()
	})
	if s.final != nil { // final is nil if the log could not be replayed or the bucket not opened
		// The check runs outside of the bubble, so that the check's timeouts are in real time.
		s.history.now = func() time.Duration { return lifetimeMax }
		s.check(s.final)
	}
	return &Result{Violations: s.history.violations, Counts: s.count(), history: s.history, bucket: s.bucket}
}

func (s *simulation) cacheDir() string {
	if !s.plan.cache {
		return ""
	}
	dir, err := os.MkdirTemp("", "seb-sim-")
	s.must(err)
	return dir
}

// live runs the brokers and clients, first with faults, then without.
func (s *simulation) live() {
	var lives, work sync.WaitGroup
	for _, n := range s.nodes {
		lives.Go(n.run)
	}
	s.setUp()
	s.setUpAging()
	s.setUpQueues()
	s.setUpKeys()
	lives.Go(s.injectFaults)
	if s.plan.deletes {
		lives.Go(s.clean)
	}
	for i := range s.plan.clients {
		work.Go(newClient(s, i).run)
	}
	if s.plan.age > 0 {
		work.Go(s.appendAging)
	}
	for i := range s.plan.workers {
		work.Go(newWorker(s, i).run)
	}
	s.inTime(&work, "the clients get no answers")
	s.heal()
	s.verifyLiveness()
	close(s.ended)
	for _, n := range s.nodes {
		if l := n.current(); l != nil {
			n.stop(l)
		}
	}
	s.inTime(&lives, "the brokers don't end")
	s.inTime(&s.flights, "something is still under way")
	for _, l := range s.endedLives {
		if used := kit.MemoryInUse(l.broker); used != 0 {
			s.history.violate("Liveness", "%s has ended, and %d bytes of its memory are still taken", l.name, used)
		}
	}
	s.verifyBucket()
}

// inTime waits until all goroutines of wg have ended. If that takes longer than lifetimeMax, it gives the
// run up.
func (s *simulation) inTime(wg *sync.WaitGroup, complaint string) {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(lifetimeMax):
		s.giveUp(complaint)
	}
}

// giveUp ends the process, because a bubble in which a goroutine waits for ever does not end.
func (s *simulation) giveUp(complaint string) {
	r := Result{history: s.history, bucket: s.bucket}
	panic(fmt.Sprintf("sim: seed %d: Liveness: %s\n%s", s.cfg.Seed, complaint, r.Story()))
}

// now returns the time since the run began.
func (s *simulation) now() time.Duration { return time.Since(s.begun) }

// sleep waits for d, or until the run ends.
func (s *simulation) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ended:
	}
}

// began returns when a life began to open the bucket.
func (s *simulation) began(life string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begins[life]
}

func (s *simulation) begin(life string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begins[life] = s.now()
}

// keepEnded keeps an ended life. When all goroutines have ended, the run checks that the life's broker has
// released all memory.
func (s *simulation) keepEnded(l *life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endedLives = append(s.endedLives, l)
}

func (s *simulation) ending() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// must panics on an error of the machine that runs the simulation, such as a full disk.
func (s *simulation) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err))
	}
}

func (s *simulation) network(node string) network {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, ok := s.networks[node]; ok {
		return w
	}
	return healthy
}

// setNetwork changes the network of a node, for the life on it and for all later lives.
func (s *simulation) setNetwork(n *node, w network) {
	s.mu.Lock()
	s.networks[n.name] = w
	s.mu.Unlock()
	if l := n.present(); l != nil {
		l.setNetwork(w)
	}
}

func (s *simulation) count() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	for _, o := range s.history.ops {
		o.countQueue(&c)
		switch {
		case o.conflicts():
			c.Conflicts++
		case o.ifOffset != nil && o.acked():
			c.Conditional++
		case o.decision != nil && o.acked():
			c.Decided++
		case o.failure == seb.CodeEndsConflict:
			c.Changed++
		case o.failure == seb.CodeTooEarly:
			c.Early++
		case o.kind == trims && o.acked():
			c.Trims++
		case o.kind == updates && o.acked():
			c.Updates++
		case o.kind == revokes && o.acked():
			c.Revoked++
		case o.kind == commits && o.acked():
			c.Moved++
		case o.kind == forgets && o.acked():
			c.Forgotten++
		case o.kind == consumes && len(o.records) > 0:
			c.Consumed++
		case o.failure == seb.CodePositionConflict:
			c.Overtaken++
		case o.failure == seb.CodeOffsetOutOfRange:
			c.OutOfRange++
		}
		switch {
		case o.kind == shows && o.acked():
			c.KeysGood++
		case o.kind == shows:
			c.KeysRefused++
		case o.asks() && o.failure == "":
			c.Reads++
		case o.asks():
			c.FailedReads++
		case o.failure == "":
			c.Acked++
		case o.outcome == seb.NotCommitted:
			c.NotCommitted++
		default:
			c.Unknown++
		}
	}
	for _, n := range s.nodes {
		c.Lives += n.born
	}
	for key := range s.bucket.first {
		if strings.HasPrefix(key, format.LogPrefix) {
			c.Commits++
		}
		if strings.HasPrefix(key, format.CheckpointPrefix) {
			c.Checkpoints++
		}
	}
	c.Ghosts, c.Collected = s.bucket.ghosts, s.bucket.collected
	if s.final != nil {
		c.Segments, c.Merged, c.Pages = s.final.segments, s.final.merged, s.pages
		s.final.all.countQueues(&c)
		s.countMade(&c)
		c.Recreated, c.Again = s.final.all.recreated(), s.final.all.consumersAgain()
	}
	return c
}
