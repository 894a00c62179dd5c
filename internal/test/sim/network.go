package sim

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// network tells how requests to the store travel: how long they take, and with which probability (0 to 1)
// each fault occurs.
type network struct {
	name    string
	latency time.Duration // a usual request takes at most this long to the store, and its answer at most this long back
	slow    float64       // the request takes 1 s to 60 s longer, so that the caller may have stopped waiting
	refuse  float64       // the store never executes the request: 409, 429, 503 or a reset connection
	lose    float64       // the store executes the request, and the answer is lost
	late    float64       // the caller gets an error, and the store executes the request up to hours later
	twice   float64       // the store executes the request, and executes it again later
	retried float64       // the store executes the request twice, and the caller gets the second answer
	damage  float64       // the answer is cut off, or a byte of it is flipped
	undated float64       // the answer lacks the store's time
	stripes int           // one key in this many is throttled: the network refuses all requests for it; 0 means no key
}

var (
	healthy = network{name: "healthy", latency: 20 * time.Millisecond}

	networks = []network{
		healthy,
		{name: "flaky", latency: 20 * time.Millisecond, slow: 0.02, refuse: 0.03, lose: 0.03, late: 0.03, twice: 0.03, retried: 0.02, damage: 0.03, undated: 0.03},
		{name: "very flaky", latency: 200 * time.Millisecond, slow: 0.1, refuse: 0.15, lose: 0.15, late: 0.1, twice: 0.1, retried: 0.05, damage: 0.1, undated: 0.1},
		{name: "outage", refuse: 1},
		{name: "no answers", latency: 10 * time.Millisecond, lose: 1},
		{name: "throttled", latency: 50 * time.Millisecond, stripes: 3},
		{name: "slow", latency: 5 * time.Second, slow: 0.1},
		{name: "late", latency: 20 * time.Millisecond, late: 0.4, slow: 0.2},
		{name: "retrying proxy", latency: 20 * time.Millisecond, retried: 0.5, twice: 0.3},
	}
)

// outcome is what happens to one request.
type outcome struct {
	before, after time.Duration // how long the request takes to the store, and the answer back
	refused, lost bool
	late          time.Duration // if > 0, the caller gets an error, and the store executes the request this much later
	again         time.Duration // if > 0, the store executes the request once more, this much later
	retried       bool
	damage        storetest.Fault
	undated       bool
	dateJitter    float64 // how far the date of the answer is off, -1 to 1 times the plan's dateJitter
	// diesWithSender says that the store never executes the request if its sender dies first.
	diesWithSender bool
	pages          int  // most keys in a page of a List; 0 means the store's limit
	full           bool // the store has no room for an object; only if refused is true
}

// draw decides the outcome of a request. The fields take their random numbers in a fixed order. A new fault
// must be drawn last, so that the other faults of each seed stay the same.
func (w *network) draw(r *rand.Rand, verb objstore.Verb, hours time.Duration) outcome {
	f := outcome{
		before:         time.Duration(r.Int64N(int64(w.latency) + 1)),
		after:          time.Duration(r.Int64N(int64(w.latency) + 1)),
		refused:        chance(r, w.refuse),
		lost:           chance(r, w.lose),
		retried:        chance(r, w.retried),
		undated:        chance(r, w.undated),
		diesWithSender: chance(r, 0.5),
		dateJitter:     2*r.Float64() - 1,
	}
	if chance(r, w.slow) {
		f.before += between(r, time.Second, time.Minute)
	}
	if chance(r, w.late) {
		f.late = delayed(r, hours)
	}
	if chance(r, w.twice) {
		f.again = delayed(r, hours)
	}
	if chance(r, w.damage) {
		f.damage = pick(r, storetest.Truncate(r.IntN(120)), storetest.FlipByte(r.IntN(200)), storetest.FlipByte(-1-r.IntN(100)))
	}
	if verb == objstore.VerbList && chance(r, 0.2) {
		f.pages = 1 + r.IntN(5)
	}
	f.full = f.refused && chance(r, 0.3)
	return f
}

// delayed returns how late the store executes a request. Half of the delays are mostly short, so that the
// sender may still run then. The others are mostly long, so that the object under the request's key may have
// been deleted by then.
func delayed(r *rand.Rand, hours time.Duration) time.Duration {
	if chance(r, 0.5) {
		return between(r, 10*time.Millisecond, hours)
	}
	return time.Duration(r.Int64N(int64(hours)))
}

// throttles reports whether the network refuses all requests for a key.
func (w *network) throttles(r *rand.Rand, key string) bool {
	return w.stripes > 0 && strings.Contains(key, "/") && r.IntN(w.stripes) == 0
}
