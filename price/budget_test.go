package price

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

// month simulates brokers that share a log and have a request waiting at any time.
type month struct {
	brokers  []*Budget
	prices   List
	now      time.Time
	puts     int64        // for commits
	all      seb.StoreUse // all requests of the month
	reported seb.StoreUse // those that the log says
	report   time.Time    // when brokers tell the next time
	others   float64      // dollars for other requests, for each dollar for a commit
	owed     float64      // of these
	commits  int
	longest  time.Duration
}

// add adds a broker, whose clock is that of the month.
func (m *month) add(b *Budget) {
	b.now = func() time.Time { return m.now }
	m.brokers = append(m.brokers, b)
}

// fill is what the engine tells of an open batch that began at that time.
func (m *month) fill(began time.Time) seb.Fill {
	return seb.Fill{Requests: 1, Bytes: 100, Age: m.now.Sub(began), Now: m.now, Puts: m.puts, Spent: m.reported}
}

// commit makes a commit, with the other requests that it causes.
func (m *month) commit(began time.Time) {
	m.puts, m.commits, m.all.Creates = m.puts+1, m.commits+1, m.all.Creates+1
	m.longest = max(m.longest, m.now.Sub(began))
	m.owed += m.others * m.prices.ClassA
	for ; m.owed >= m.prices.ClassB; m.owed -= m.prices.ClassB {
		m.all.Gets++
	}
	m.pass(20 * time.Millisecond)
}

func (m *month) pass(d time.Duration) {
	before := m.now
	m.now = m.now.Add(d)
	if !m.now.Before(m.report) {
		m.reported, m.report = m.all, m.now.Add(time.Minute)
	}
	if before.Month() != m.now.Month() {
		m.all, m.reported = seb.StoreUse{}, seb.StoreUse{}
	}
}

// run lets brokers commit for that long. Those whose batch may be committed at the same time do so one after the other, as brokers
// that are not connected.
func (m *month) run(length time.Duration) {
	end := m.now.Add(length)
	began := make([]time.Time, len(m.brokers))
	for i := range began {
		began[i] = m.now
	}
	for m.now.Before(end) {
		next := end.Sub(m.now)
		var due []int
		for i, b := range m.brokers {
			if wait := b.Wait(m.fill(began[i])); wait <= 0 {
				due = append(due, i)
			} else {
				next = min(next, wait)
			}
		}
		for _, i := range due {
			if !m.now.Before(end) {
				return
			}
			m.commit(began[i])
			began[i] = m.now
		}
		if len(due) == 0 {
			m.pass(next)
		}
	}
}

func simulated(brokers int, dollars, others float64, at time.Time) *month {
	m := &month{prices: amazon, now: at, report: at, others: others}
	for range brokers {
		m.add(NewBudget(BudgetOptions{Dollars: dollars, Prices: amazon, MaxLinger: 5 * time.Second, Bytes: 4 << 20}))
	}
	return m
}

func (m *month) dollars() float64 { return m.prices.OfRequests(m.all) }

// Under sustained load, brokers spend the budget of a month, and not more, however many they are, and whatever else they spend.
func TestBudgetOfAMonthIsSpent(t *testing.T) {
	for _, brokers := range []int{1, 3} {
		for _, test := range []struct {
			month           time.Month
			dollars, others float64
			from            time.Duration // since the month began
		}{
			{time.November, 10, 0.17, 0}, {time.February, 12, 0, 0},
			{time.November, 10, 0.1, 20 * 24 * time.Hour},
		} {
			t.Run(fmt.Sprintf("%d brokers, $%v from %v of %v, $%v for the rest", brokers, test.dollars, test.from, test.month, test.others), func(t *testing.T) {
				start := time.Date(2026, test.month, 1, 0, 0, 0, 0, time.UTC)
				m := simulated(brokers, test.dollars, test.others, start.Add(test.from))
				m.run(start.AddDate(0, 1, 0).Sub(m.now) - time.Second)
				spent := m.dollars()
				t.Logf("$%.3f, %d commits, the longest wait is %v", spent, m.commits, m.longest)
				if math.Abs(spent-test.dollars) > 0.02*test.dollars {
					t.Errorf("the month costs $%v", spent)
				}
				if brokers == 1 && m.longest > 5*time.Second {
					t.Errorf("a batch waited for %v", m.longest)
				}
			})
		}
	}
}

// The next month has money again.
func TestBudgetIsForEachMonth(t *testing.T) {
	m := simulated(1, 10, 0.05, time.Date(2026, time.October, 31, 22, 0, 0, 0, time.UTC))
	m.run(2*time.Hour - time.Second)
	if october := m.dollars(); october < 1.7 || october > 1.9 { // the simulated load costs less than the budget
		t.Errorf("two hours of October cost $%v", october)
	}
	m.pass(2 * time.Second)
	m.run(29*24*time.Hour + 23*time.Hour)
	if november := m.dollars(); math.Abs(november-10) > 0.2 {
		t.Errorf("November costs $%v", november)
	}
}

// Quiet traffic is committed at once. A burst is, too, as long as the hour lasts that was saved up.
func TestBudgetLetsQuietTrafficPass(t *testing.T) {
	m := simulated(1, 10, 0, time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC))
	b := m.brokers[0]
	for range 100 {
		m.pass(10 * time.Second)
		if wait := b.Wait(m.fill(m.now)); wait > 0 {
			t.Fatalf("a lone request waits for %v", wait)
		}
		m.commit(m.now)
	}
	b.Wait(m.fill(m.now))
	m.pass(3 * time.Hour)
	burst := 0
	for b.Wait(m.fill(m.now)) <= 0 {
		m.commit(m.now)
		burst++
	}
	if hour := b.o.Rate() * 3600; float64(burst) < hour || float64(burst) > 1.05*hour {
		t.Errorf("after hours without requests, a burst has %d commits; an hour has %.0f", burst, hour)
	}
	wait := b.Wait(m.fill(m.now))
	if interval := time.Duration(float64(time.Second) / b.o.Rate()); wait <= 0 || wait > interval {
		t.Errorf("after the burst, a request waits for %v; at an even pace for %v", wait, interval)
	}
	if wait := b.Wait(seb.Fill{Requests: 1, Bytes: 4 << 20, Now: m.now, Puts: m.puts, Spent: m.reported}); wait > 0 {
		t.Errorf("a full batch waits for %v", wait)
	}
}

// The commits of other brokers empty the bucket, and a broker that has asked nothing for long is where the others are.
func TestBudgetIsSharedWithoutTalking(t *testing.T) {
	m := simulated(2, 10, 0, time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC))
	quiet := m.brokers[1]
	quiet.Wait(m.fill(m.now))
	m.brokers = m.brokers[:1]
	m.run(10 * time.Hour)
	quiet.Wait(m.fill(m.now))
	if minute := m.brokers[0].o.Rate() * 60; math.Abs(quiet.puts) > minute || m.commits < 20_000 {
		t.Errorf("after %d commits of the other broker, it may make %v at once; a minute has %v", m.commits, quiet.puts, minute)
	}
}

// When the money is spent, each commit waits for MaxLinger, and overdraws the budget. The log says so once a month.
func TestBudgetThatIsUsedUpIsOverdrawn(t *testing.T) {
	var log bytes.Buffer
	m := simulated(1, 1, 0, time.Date(2026, time.November, 10, 0, 0, 0, 0, time.UTC))
	b := m.brokers[0]
	b.o.Logger, b.o.Linger = slog.New(slog.NewTextHandler(&log, nil)), time.Millisecond
	m.all.Creates, m.report = 300_000, m.now // $1.50
	m.pass(0)
	m.run(time.Hour)
	if most := 3600/5 + 2; m.commits > most || m.commits < most*9/10 || m.longest != 5*time.Second {
		t.Errorf("in an hour there are %d commits; the longest wait is %v", m.commits, m.longest)
	}
	if n := strings.Count(log.String(), "budget"); n == 0 || strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "spent_dollars=1.5") {
		t.Errorf("the log says %q", log.String())
	}
	metrics := b.Metrics()
	if got := metrics[2].Series[0].Value; math.Abs(got-float64(m.commits)) > 2 {
		t.Errorf("%v commits have overdrawn the budget, of %d", got, m.commits)
	}
	if b.puts < -1 {
		t.Errorf("it owes %v commits", -b.puts)
	}
	m.now = time.Date(2026, time.December, 1, 1, 0, 0, 0, time.UTC) // with new money
	m.all, m.reported = seb.StoreUse{}, seb.StoreUse{}
	b.Wait(m.fill(m.now))
	m.pass(10 * time.Minute)
	if wait := b.Wait(m.fill(m.now)); wait > time.Millisecond {
		t.Errorf("in the next month a request waits for %v", wait)
	}
}

func TestBudgetWithoutALog(t *testing.T) {
	b := simulated(1, 10, 0, time.Time{}).brokers[0]
	b.o.Linger = time.Second
	if wait := b.Wait(seb.Fill{Requests: 1, Age: 400 * time.Millisecond}); wait != 600*time.Millisecond {
		t.Errorf("the first request of a log waits for %v", wait)
	}
}

// A broker that starts again and again does not spend more.
func TestRestartsDoNotSpendMore(t *testing.T) {
	m := simulated(1, 10, 0, time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC))
	for range 30 * 24 * 6 {
		m.run(10 * time.Minute)
		o := m.brokers[0].o
		m.brokers = nil
		m.add(NewBudget(o))
	}
	if spent := m.prices.OfRequests(seb.StoreUse{Creates: int64(m.commits)}); spent > 10.2 {
		t.Errorf("the month costs $%v", spent)
	}
}

// While the log's time stands still, since the store's clock is behind it, money comes all the same.
func TestBudgetWhileTheLogIsAhead(t *testing.T) {
	now := time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC)
	b := NewBudget(BudgetOptions{Dollars: 10, Prices: amazon, MaxLinger: 5 * time.Second, Bytes: 4 << 20})
	b.now = func() time.Time { return now }
	ahead, waited := now.Add(time.Hour), 0
	for i := range 2000 {
		if b.Wait(seb.Fill{Requests: 1, Bytes: 100, Now: ahead.Add(time.Duration(i) * time.Microsecond), Puts: int64(i)}) > 0 {
			waited++
		}
		now = now.Add(3 * time.Second) // a commit every 1.5 s is affordable
	}
	if waited > 0 {
		t.Errorf("%d of 2000 batches wait for money", waited)
	}
}

// Near the end of a month the bucket has at most the money that is left.
func TestBudgetAtTheEndOfAMonth(t *testing.T) {
	now := time.Date(2026, 6, 30, 22, 0, 0, 0, time.UTC)
	b := NewBudget(BudgetOptions{Dollars: 10, Prices: amazon, MaxLinger: 5 * time.Second, Bytes: 4 << 20})
	b.now = func() time.Time { return now }
	for range 119 {
		b.Wait(seb.Fill{Requests: 1, Bytes: 100, Now: now})
		now = now.Add(time.Minute)
	}
	if most := 10 / amazon.ClassA * 1e6; b.puts > most {
		t.Errorf("a minute before the end of the month, %.0f commits may be made at once; the budget has %.0f", b.puts, most)
	}
}
