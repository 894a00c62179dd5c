package sim

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"

	"github.com/simple-event-broker/seb"
)

// plan is what a seed decides before anything runs.
type plan struct {
	brokers, clients, ops int

	// calm says that the run has no faults. Then the checker expects fresh reads.
	calm bool
	// clock says that the brokers' clock since boot follows the bubble's time. If clock is false, that clock
	// stands still, as in a virtual machine that was restored from a snapshot.
	clock bool
	cache bool
	// dateJitter is how far, at most, the date of an answer differs from the clock of the link that carries
	// the answer.
	dateJitter time.Duration
	// walls says that the wall clocks of machines are hours off, and jump.
	walls bool
	// deletes says that a goroutine deletes the objects that the log's rules allow a broker to delete.
	deletes       bool
	delay, margin time.Duration
	// s3 says that brokers reach the bucket through the S3 client, by HTTP.
	s3 bool
	// keys says that the log has API keys. Then every HTTP request needs an API key.
	keys bool

	topics []topic // topics that exist during the whole run

	// age is up to which age the topic ages keeps records; 0 if there is no such topic. agePauses is the mean pause between two
	// appends to it.
	age, agePauses time.Duration

	// workers is how many clients work on queues.
	workers int
	// queue is the configuration of all queues.
	queue seb.QueueConfig
	// reach says how brokers reach each other.
	reach reach
}

// reach tells which addresses brokers advertise: none; the same address for all brokers; or a different
// address for each life of a broker.
type reach string

const (
	unreachable reach = "nowhere"
	alike       reach = "the same"
	reachable   reach = "each its own"
)

// skew is larger than the error in the date of any answer of the store.
func (p *plan) skew() time.Duration { return p.margin/4 + time.Second }

// skewBetween is larger than the difference between the times that two brokers take from the store's
// answers. When another broker takes a queue over, a delay may get shorter or longer by up to this
// difference.
func (p *plan) skewBetween() time.Duration { return 2 * p.skew() }

// address returns the address that a life advertises.
func (p *plan) address(life string) string {
	switch p.reach {
	case reachable:
		return "http://" + life + ":80"
	case alike:
		return "http://seb:80"
	default:
		return ""
	}
}

type topic struct {
	name       string
	partitions int
}

// stream returns random numbers that depend on nothing but the seed and labels.
func stream(seed uint64, labels ...any) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, labels...) // writing to a hash never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// chance returns true with probability p.
func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// between returns a duration whose logarithm is evenly spread, so that short durations are as likely
// as long ones.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return time.Duration(float64(low) * math.Pow(float64(high)/float64(low), r.Float64()))
}

func newPlan(seed uint64) plan {
	r := stream(seed, "plan")
	p := plan{
		brokers: 1 + r.IntN(3),
		clients: 2 + r.IntN(4),
		ops:     10 + r.IntN(34),
		calm:    chance(r, 0.1),
		clock:   chance(r, 0.7),
		cache:   chance(r, 0.3),
		deletes: chance(r, 0.7),
		margin:  pick(r, 10*time.Second, 10*time.Second, 10*time.Second, time.Minute, time.Hour),
		s3:      chance(stream(seed, "s3"), 1./16),
		keys:    chance(stream(seed, "keys"), 1./4),
	}
	p.delay = p.margin * time.Duration(4+r.IntN(8))
	for i := range 1 + r.IntN(2) {
		p.topics = append(p.topics, topic{fmt.Sprintf("stays-%d", i), 1 + r.IntN(2)})
	}
	p.deletes = p.deletes && chance(stream(seed, "collector"), 0.5) // else brokers find more to delete
	p.planClocks(stream(seed, "clocks"))
	p.planQueues(stream(seed, "queues"))
	p.planAging(stream(seed, "aging plan"))
	return p
}

func (p *plan) planClocks(r *rand.Rand) {
	p.walls = chance(r, 0.7)
	if chance(r, 0.5) {
		p.dateJitter = p.margin / 16
	}
}

func (p *plan) planQueues(r *rand.Rand) {
	p.workers = r.IntN(3)
	p.reach = pick(r, unreachable, alike, reachable, reachable)
	p.queue = seb.QueueConfig{
		Lease: pick(r, time.Second, 5*time.Second, 20*time.Second), MaxAttempts: pick(r, 1, 2, 3, 5),
		BackoffMin: pick(r, 0, time.Second), DeadLetterTopic: pick(r, "", dead), Order: pick(r, seb.OrderNone, seb.OrderKey, seb.OrderKey),
	}
	p.queue.BackoffMax = 8 * p.queue.BackoffMin
}

// options returns a configuration for a broker. A restarted broker may get a different one.
func (p *plan) options(r *rand.Rand) seb.Options {
	return seb.Options{
		Batching:          pick(r, seb.Immediate(), seb.Immediate(), seb.Each(), seb.Timed(pick(r, time.Millisecond, 250*time.Millisecond), 64<<10)),
		AppendTimeout:     pick(r, time.Second, 5*time.Second, 30*time.Second),
		CheckpointCommits: pick(r, 1, 3, 10, 50),
		StaleMax:          pick(r, time.Nanosecond, time.Nanosecond, time.Second),
		Memory:            16 << 20,
		Cluster:           seb.ClusterOptions{DeleteDelay: p.delay, Margin: p.margin},
	}
}
