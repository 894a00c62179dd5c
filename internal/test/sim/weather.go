package sim

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// weather is how likely what is to befall a request to the store.
type weather struct {
	name    string
	latency time.Duration // of a usual request
	slow    float64       // it takes up to a minute: longer than its caller waits
	refuse  float64       // 409, 429, 503, reset: never executed
	lose    float64       // executed, and the answer is lost
	late    float64       // answered an error, and executed up to hours later
	twice   float64       // executed, and again later
	retried float64       // executed twice, and the second answer is what comes back
	bend    float64       // cut off or flipped on the way
	undated float64       // without the store's time
	stripes int           // one key in so many is throttled: always refused
}

var (
	fair = weather{name: "fair", latency: 20 * time.Millisecond}

	weathers = []weather{
		fair,
		{name: "drizzle", latency: 20 * time.Millisecond, slow: 0.02, refuse: 0.03, lose: 0.03, late: 0.03, twice: 0.03, retried: 0.02, bend: 0.03, undated: 0.03},
		{name: "storm", latency: 200 * time.Millisecond, slow: 0.1, refuse: 0.15, lose: 0.15, late: 0.1, twice: 0.1, retried: 0.05, bend: 0.1, undated: 0.1},
		{name: "outage", refuse: 1},
		{name: "deaf", latency: 10 * time.Millisecond, lose: 1},
		{name: "throttled", latency: 50 * time.Millisecond, stripes: 3},
		{name: "slow", latency: 5 * time.Second, slow: 0.1},
		{name: "late", latency: 20 * time.Millisecond, late: 0.4, slow: 0.2},
		{name: "retrying proxy", latency: 20 * time.Millisecond, retried: 0.5, twice: 0.3},
	}
)

// fate is what befalls one request.
type fate struct {
	before, after time.Duration // on the way there and back
	refused, lost bool
	late          time.Duration // executed so much after the error
	again         time.Duration // executed once more so much later
	retried       bool
	bend          storetest.Fault
	undated       bool
	swing         float64 // by which part of the swing its date is off, -1 to 1
	// mortal: it is never executed if its sender dies before.
	mortal bool
	pages  int // limit of a List's page, 0 = the store's own
}

// draw decides a request's fate.
func (w *weather) draw(r *rand.Rand, verb objstore.Verb, hours time.Duration) fate {
	f := fate{
		before:  time.Duration(r.Int64N(int64(w.latency) + 1)),
		after:   time.Duration(r.Int64N(int64(w.latency) + 1)),
		refused: chance(r, w.refuse),
		lost:    chance(r, w.lose),
		retried: chance(r, w.retried),
		undated: chance(r, w.undated),
		mortal:  chance(r, 0.5),
		swing:   2*r.Float64() - 1,
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
	if chance(r, w.bend) {
		f.bend = pick(r, storetest.Truncate(r.IntN(120)), storetest.FlipByte(r.IntN(200)), storetest.FlipByte(-1-r.IntN(100)))
	}
	if verb == objstore.VerbList && chance(r, 0.2) {
		f.pages = 1 + r.IntN(5)
	}
	return f
}

// delayed returns how late a request is executed: often so soon that its sender
// is still about, and as often so late that others have deleted what it was for.
func delayed(r *rand.Rand, hours time.Duration) time.Duration {
	if chance(r, 0.5) {
		return between(r, 10*time.Millisecond, hours)
	}
	return time.Duration(r.Int64N(int64(hours)))
}

// throttles tells whether a key is one of those that are always refused.
func (w *weather) throttles(r *rand.Rand, key string) bool {
	return w.stripes > 0 && strings.Contains(key, "/") && r.IntN(w.stripes) == 0
}
