package price

import (
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/metric"
)

const (
	// elseShare of the money that is left is for other requests than those of commits: checkpoints, compaction, reads.
	elseShare = 0.15
	// A budget saves up the commits of bucketTime, and owes those of debtTime at most: it then has less money for the rest of the
	// month anyway.
	bucketTime, debtTime = time.Hour, time.Minute
)

// BudgetOptions configure a [Budget].
type BudgetOptions struct {
	Dollars float64 // what the requests of all brokers may cost in a calendar month, in UTC
	Prices  List    // its ClassA is not 0
	// Linger is how long a batch stays open at least, and MaxLinger how long it waits for money at most, since its first request came.
	Linger, MaxLinger time.Duration
	Bytes             int64        // a batch that holds this much does not wait
	Logger            *slog.Logger // learns that commits overdraw the budget
}

// Budget is a [seb.Batching] that keeps what all brokers of a log spend on requests within dollars a month. It is a bucket of PUTs
// that fills evenly with what is left of the money, over what is left of the month. The commits of all brokers empty it, so brokers
// with the same budget share it without talking to each other. After a quiet hour, the next commits are made at once; under
// sustained load, commits wait for money, but never longer than MaxLinger: then they overdraw the budget.
//
// Each broker needs a Budget of its own.
type Budget struct {
	o BudgetOptions

	mu        sync.Mutex
	now       func() time.Time
	at        time.Time // up to when the bucket is filled, by this machine's clock; zero before the first batch
	seen      int64     // PUTs up to which it is emptied
	puts      float64   // PUTs that may be made now; below 0 if they are owed
	waited    bool      // the open batch waits for money, and does not any longer because of MaxLinger
	overdrawn int64
	told      time.Month // the month in which the logger was told; 0 if it was not
}

// NewBudget returns a Budget.
func NewBudget(o BudgetOptions) *Budget { return &Budget{o: o, now: time.Now} }

// Rate returns how many PUTs for commits the budget allows in a second, if nothing is spent and the month has 30 days.
func (o *BudgetOptions) Rate() float64 {
	return o.rate(o.Dollars, 30*24*time.Hour)
}

// rate returns how many PUTs for commits there are a second if dollars are left for a time.
func (o *BudgetOptions) rate(dollars float64, left time.Duration) float64 {
	return max(0, dollars) * (1 - elseShare) / (o.Prices.ClassA / 1e6) / max(left.Seconds(), 1)
}

// Admits implements [seb.Batching].
func (*Budget) Admits(seb.Fill) bool { return true }

// Wait implements [seb.Batching].
func (b *Budget) Wait(open seb.Fill) time.Duration {
	linger := b.o.Linger - open.Age
	if open.Now.IsZero() { // the log is empty
		return linger
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	rate := b.refill(open)
	if open.Bytes >= b.o.Bytes {
		return 0
	}
	if b.puts >= 1 {
		return linger
	}
	wait := b.o.MaxLinger - open.Age
	if rate > 0 {
		wait = min(wait, time.Duration(min((1-b.puts)/rate, bucketTime.Seconds())*float64(time.Second))+1)
	}
	if b.waited = wait <= 0; b.waited {
		b.tell(open)
	}
	return max(linger, wait)
}

// refill brings the bucket up to date, and returns how many PUTs it gets in a second now.
func (b *Budget) refill(open seb.Fill) (rate float64) {
	// The month is that of the log. But the bucket fills by this machine's clock: the log's time stands still as long as the store's
	// clock is behind it.
	month, now := open.Now.UTC(), b.now()
	end := time.Date(month.Year(), month.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	money := b.o.Dollars - b.o.Prices.OfRequests(open.Spent)
	rate = b.o.rate(money, end.Sub(month))
	if b.at.IsZero() {
		// A broker that starts again and again must not get the commits of an hour each time.
		b.at, b.seen, b.puts = now, open.Puts, max(1, rate*debtTime.Seconds())
	}
	if n := open.Puts - b.seen; n > 0 && b.waited {
		b.waited, b.overdrawn = false, b.overdrawn+1
	}
	passed := max(0, now.Sub(b.at))
	b.puts += rate*passed.Seconds() - float64(open.Puts-b.seen)
	most := min(rate*bucketTime.Seconds(), b.o.rate(money, time.Second)) // near the end of a month, an hour's would be more than all that is left
	b.puts = max(min(b.puts, max(1, most)), -max(1, rate*debtTime.Seconds()))
	b.at, b.seen = now, open.Puts
	return rate
}

// tell logs, once a month, that commits overdraw the budget.
func (b *Budget) tell(open seb.Fill) {
	month := open.Now.UTC().Month()
	if b.o.Logger == nil || b.told == month {
		return
	}
	b.told = month
	b.o.Logger.Warn("the budget does not last: commits wait for --max-linger, and then overdraw it",
		"budget_dollars", b.o.Dollars, "spent_dollars", math.Round(b.o.Prices.OfRequests(open.Spent)*100)/100, "max_linger", b.o.MaxLinger,
		"hint", "raise --budget or --max-linger on every broker, or append less often; seb bill shows what the money is spent on")
}

// Metrics returns the metrics of the budget.
func (b *Budget) Metrics() []metric.Family {
	b.mu.Lock()
	defer b.mu.Unlock()
	return []metric.Family{
		metric.One(metric.Gauge, "seb_budget_dollars", "What the requests of all brokers to the object store may cost in a calendar month (--budget).", b.o.Dollars),
		metric.One(metric.Gauge, "seb_budget_commits", "Commits that the budget allows at once, when the last batch asked; below 0 if it is overdrawn.", b.puts),
		metric.One(metric.Counter, "seb_budget_overdrawn_commits_total", "Commits of this broker that overdrew the budget, since they had waited for --max-linger.", float64(b.overdrawn)),
	}
}
