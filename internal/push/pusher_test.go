package push

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/simple-event-broker/seb/internal/test/loglines"
	"github.com/simple-event-broker/seb/sebprom"
)

// A pusher receives only what it can send at once, and sends all of that at once.
func TestNoMoreThanWantedIsUnderWay(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) {
			const most, messages = 5, 60
			var underWay, worst atomic.Int32
			counted, release := make(chan struct{}, messages), make(chan struct{})
			q, to := newQueue(), serve(t, version, func(http.ResponseWriter, *http.Request) {
				now := underWay.Add(1)
				for seen := worst.Load(); now > seen && !worst.CompareAndSwap(seen, now); seen = worst.Load() {
				}
				counted <- struct{}{}
				<-release
				underWay.Add(-1)
			})
			for range messages {
				q.add("v")
			}
			p := to.pusher(t, q, func(tg *Target, _ *Options) { tg.MaxInFlight = most })
			run(t, p)
			for range most {
				to.next(t)
				<-counted
			}
			if ready, _ := q.counts(); ready != messages-most || p.Status().InFlight != most {
				t.Errorf("%d are ready, %+v", ready, p.Status())
			}
			close(release)
			for range messages {
				if o := q.next(t); !o.acked {
					t.Errorf("the queue was told %+v", o)
				}
			}
			if worst.Load() != most {
				t.Errorf("%d requests were under way at once", worst.Load())
			}
		})
	}
}

func TestSlowTargetHoldsBackItselfOnly(t *testing.T) {
	release := make(chan struct{})
	slow := serve(t, "HTTP/1.1", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	fast := serve(t, "HTTP/1.1", answerStatus(http.StatusOK))
	slowQueue, fastQueue := newQueue(), newQueue()
	run(t, slow.pusher(t, slowQueue, nil))
	run(t, fast.pusher(t, fastQueue, nil))
	for range 100 {
		slowQueue.add("v")
		fastQueue.add("v")
	}
	for range 100 {
		fastQueue.next(t)
	}
	slowQueue.nothing(t)
	close(release)
	slowQueue.next(t)
}

// All messages wait for as long as the target asks, over real HTTP.
func TestTargetThatAsksIsLeftAlone(t *testing.T) {
	var requests atomic.Int32
	q, to := newQueue(), serve(t, "HTTP/2.0", func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	p := to.pusher(t, q, nil)
	run(t, p)
	q.add("v")
	if o := q.next(t); o.atLeast != time.Second || !strings.HasPrefix(o.reason, "HTTP 503") {
		t.Errorf("the queue was told %+v", o)
	}
	began := time.Now()
	q.add("v", "v", "v")
	if s := p.Status(); s.SlowedUntil.IsZero() || s.Limit != 1 {
		t.Errorf("slowed: %+v", s)
	}
	for range 3 {
		if o := q.next(t); !o.acked {
			t.Errorf("the queue was told %+v", o)
		}
	}
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("asked again after %v", took)
	}
}

func TestTargetThatIsGoneGetsNoMoreRequests(t *testing.T) {
	q, to := newQueue(), serve(t, "HTTP/1.1", answerStatus(http.StatusGone))
	p := to.pusher(t, q, func(tg *Target, _ *Options) { tg.MaxInFlight = 1 })
	for range 50 {
		q.add("v")
	}
	if err := p.Run(t.Context()); !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "410 Gone") {
		t.Errorf("Run returned %v", err)
	}
	if o := q.next(t); o.acked || o.reason != "HTTP 410 Gone" {
		t.Errorf("the queue was told %+v", o)
	}
	if len(to.came) != 1 {
		t.Errorf("%d requests came", len(to.came))
	}
}

// Nothing is sent while Options.Gone runs, which may take long.
func TestTargetThatIsGoneIsLeftAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, sent := newQueue(), 0
		q.ackErr = func(int) error {
			time.Sleep(time.Minute)
			return nil
		}
		p := inBubble(t, q, func(context.Context, *Message) answer {
			sent++
			return answer{outcome: Gone, reason: "HTTP 410 Gone"}
		})
		p.gate = newGate(1)
		q.add("v", "v", "v")
		if err := p.Run(t.Context()); !errors.Is(err, ErrGone) || sent != 1 {
			t.Errorf("Run returned %v after %d requests", err, sent)
		}
		<-q.told
	})
}

func TestShutdownLetsRequestsEnd(t *testing.T) {
	release := make(chan struct{})
	q, to := newQueue(), serve(t, "HTTP/1.1", func(http.ResponseWriter, *http.Request) { <-release })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	p := to.pusher(t, q, nil)
	go func() { ended <- p.Run(ctx) }()
	q.add("v", "v")
	to.next(t)
	to.next(t)
	cancel()
	close(release)
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
	if first, second := <-q.told, <-q.told; !first.acked || !second.acked {
		t.Errorf("the queue was told %+v, %+v", first, second)
	}
}

func TestShutdownLeavesToTheLeaseWhatDoesNotEnd(t *testing.T) {
	q, to := newQueue(), serve(t, "HTTP/1.1", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	stop := run(t, to.pusher(t, q, func(_ *Target, o *Options) { o.Grace = 50 * time.Millisecond }))
	q.add("v")
	to.next(t)
	if err := stop(); err != nil {
		t.Errorf("Run returned %v", err)
	}
	q.nothing(t)
}

// inBubble returns a pusher for virtual time, whose requests are answered by send.
func inBubble(t *testing.T, q Queue, send func(context.Context, *Message) answer) *Pusher {
	t.Helper()
	to := target{url: "http://hooks.example/"}
	p := to.pusher(t, q, func(tg *Target, _ *Options) { tg.MaxInFlight = 4 })
	p.send = send
	return p
}

// The log has no err=<nil> of a message that was delivered.
func TestLogLinesOfAnswersHaveNoEmptyAttributes(t *testing.T) {
	var log strings.Builder
	p := &Pusher{log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	p.report(answer{outcome: Delivered}, 0)
	p.report(answer{outcome: Slowed, reason: "the target answered 429"}, time.Second)
	p.report(answer{outcome: Unreachable, reason: "no connection", err: errors.New("connection refused")}, time.Second)
	loglines.Check(t, log.String())
	if got := log.String(); strings.Contains(got, `=""`) || strings.Count(got, "err=") != 1 || strings.Count(got, "why=") != 2 || strings.Count(got, "for=1s") != 2 {
		t.Errorf("the log is\n%s", got)
	}
}

// While the broker's settings forbid the address, no attempt is used up, and the log has a line about
// it once an hour.
func TestForbiddenAddressUsesUpNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		var log strings.Builder // slog's handler locks it
		var allowed atomic.Bool
		var sent atomic.Int64
		to := target{url: "http://hooks.example/a-secret"}
		p := to.pusher(t, q, func(_ *Target, o *Options) { o.Logger = loglines.Text(t, &log, slog.LevelInfo) })
		p.send = func(context.Context, *Message) answer {
			sent.Add(1)
			if allowed.Load() {
				return answer{outcome: Delivered}
			}
			return unanswered(&forbiddenError{netip.MustParseAddrPort("10.1.2.3:80"), "is not public", "--push-allow"}, false, false, 0)
		}
		p.gate = newGate(1)
		stop := run(t, p)
		q.add("v")
		time.Sleep(50 * time.Minute)
		q.nothing(t)
		if why := p.Status().Blocked; !strings.Contains(why, "is not public") || !strings.Contains(why, "--push-allow") || sent.Load() < 5 {
			t.Errorf("after %d requests: %q", sent.Load(), why)
		}
		allowed.Store(true)
		time.Sleep(2 * closedMax)
		if o := q.next(t); !o.acked || p.Status().Blocked != "" {
			t.Errorf("the queue was told %+v, %+v", o, p.Status())
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		said := log.String()
		if n := strings.Count(said, "level=WARN"); n != 1 || strings.Contains(said, "secret") {
			t.Errorf("%d warnings:\n%s", n, said)
		}
		for _, want := range []string{"host=hooks.example", "address=10.1.2.3", "--push-allow"} {
			if !strings.Contains(said, want) {
				t.Errorf("no %s:\n%s", want, said)
			}
		}
	})
}

// While there is no connection to the target, only the request that found that out uses up an attempt.
func TestOutageOfTheTargetUsesUpOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		var down atomic.Bool
		var sent atomic.Int64
		p := inBubble(t, q, func(context.Context, *Message) answer {
			sent.Add(1)
			time.Sleep(time.Second)
			if down.Load() {
				return answer{outcome: Unreachable, reason: "no connection: connection refused"}
			}
			return answer{outcome: Delivered}
		})
		run(t, p)
		for range 2 {
			down.Store(true)
			sent.Store(0)
			q.add("a", "b", "c", "d")
			time.Sleep(12 * time.Hour)
			if o := q.next(t); o.acked || !strings.HasPrefix(o.reason, "no connection") {
				t.Errorf("the queue was told %+v", o)
			}
			q.nothing(t)
			if n := sent.Load(); n < 100 {
				t.Errorf("only %d requests in 12 hours", n)
			}
			down.Store(false)
			time.Sleep(2 * closedMax)
			for range 3 {
				if o := q.next(t); !o.acked {
					t.Errorf("the queue was told %+v", o)
				}
			}
		}
	})
}

func TestLeaseIsExtendedWhileARequestIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		stop := run(t, inBubble(t, q, func(context.Context, *Message) answer {
			time.Sleep(4 * lease)
			return answer{outcome: Delivered}
		}))
		q.add("v")
		time.Sleep(lease/2 - time.Second)
		if _, extends := q.counts(); extends != 0 {
			t.Errorf("extended %d times before half of the lease", extends)
		}
		time.Sleep(2 * time.Second)
		if _, extends := q.counts(); extends != 1 {
			t.Errorf("extended %d times after half of the lease", extends)
		}
		time.Sleep(4 * lease)
		if _, extends := q.counts(); extends < 7 || extends > 8 {
			t.Errorf("extended %d times in all", extends)
		}
		if o := <-q.told; !o.acked {
			t.Errorf("the queue was told %+v", o)
		}
		_ = stop()
	})
}

// The queue can't be reached for longer than the lease. No other worker gets the record meanwhile, and
// the lease is extended again afterwards.
func TestLeaseIsExtendedAgainAfterTheQueueWasAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, from := newQueue(), time.Now()
		q.extendErr = func(int) error {
			if time.Since(from) < 3*lease {
				return errors.New("not now")
			}
			return nil
		}
		stop := run(t, inBubble(t, q, func(context.Context, *Message) answer {
			time.Sleep(10 * lease)
			return answer{outcome: Delivered}
		}))
		q.add("v")
		time.Sleep(3*lease + 10*time.Second)
		_, tried := q.counts()
		time.Sleep(5 * lease)
		if _, extends := q.counts(); extends <= tried || tried > 150 {
			t.Errorf("extended %d times, of them %d while the queue was away", extends, tried)
		}
		time.Sleep(3 * lease)
		_ = stop()
	})
}

func TestLeaseThatIsLostIsNotExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.extendErr = func(call int) error {
			return []error{errors.New("not now"), errors.New("not now"), nil, ErrLost}[call]
		}
		stop := run(t, inBubble(t, q, func(context.Context, *Message) answer {
			time.Sleep(10 * lease)
			return answer{outcome: Delivered}
		}))
		q.add("v")
		time.Sleep(11 * lease)
		if _, extends := q.counts(); extends != 4 {
			t.Errorf("extended %d times", extends)
		}
		_ = stop()
	})
}

// Messages that were handed out just as the target closed are returned, and come again.
func TestMessagesThatComeTooLateAreReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, sent := newQueue(), make(chan time.Time, 99)
		q.late = 3
		p := inBubble(t, q, func(_ context.Context, m *Message) answer {
			sent <- time.Now()
			time.Sleep(time.Second) // by then, the pusher waits for more messages
			if m.Offset == 0 {
				return answer{outcome: Slowed, reason: "slow", after: 10 * time.Minute}
			}
			return answer{outcome: Delivered}
		})
		began := time.Now()
		stop := run(t, p)
		q.add("v")
		time.Sleep(9 * time.Minute)
		if ready, extends := q.counts(); p.Status().Held != 0 || ready != 3 || len(sent) != 1 || extends != 0 {
			t.Errorf("%+v, %d were sent, %d are ready, %d leases extended", p.Status(), len(sent), ready, extends)
		}
		time.Sleep(3 * time.Minute)
		<-sent
		first, second, third := <-sent, <-sent, <-sent
		if at := first.Sub(began); at < 10*time.Minute {
			t.Errorf("sent after %v", at)
		}
		if second.Sub(first) != time.Second || third != second { // one answer lets two more through
			t.Errorf("sent at %v, %v, %v", first, second, third)
		}
		_ = stop()
	})
}

// A message that is handed out while the pusher ends is not sent, and its attempt is not used up.
func TestShutdownReturnsWhatHasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, sent := newQueue(), 0
		q.late = 3
		stop := run(t, inBubble(t, q, func(context.Context, *Message) answer {
			sent++
			return answer{outcome: Delivered}
		}))
		synctest.Wait()
		if err := stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
		if ready, _ := q.counts(); ready != 3 || sent > 0 {
			t.Errorf("%d are ready, %d were sent", ready, sent)
		}
		q.nothing(t)
	})
}

func TestQueueIsAskedAgainUntilItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.ackErr = func(call int) error {
			if call < 5 {
				return errors.New("the store is away")
			}
			return nil
		}
		stop := run(t, inBubble(t, q, func(context.Context, *Message) answer { return answer{outcome: Delivered} }))
		q.add("v")
		if o := <-q.told; !o.acked {
			t.Errorf("the queue was told %+v", o)
		}
		_ = stop()
	})
}

func TestQueueThatDoesNotAnswerIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.receiveErr = func(call int) error {
			switch {
			case call < 20:
				return errors.New("the store is away")
			case call == 21:
				time.Sleep(time.Second)
				return ErrNoQueue
			}
			return nil
		}
		began := time.Now()
		p := inBubble(t, q, func(context.Context, *Message) answer { return answer{outcome: Delivered} })
		ended := make(chan error, 1)
		go func() { ended <- p.Run(t.Context()) }()
		q.add("v")
		<-q.told
		if took := time.Since(began); took < time.Minute || took > 3*time.Minute {
			t.Errorf("20 calls took %v", took)
		}
		if err := <-ended; !errors.Is(err, ErrNoQueue) {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestMetricsShowEachTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics, q := NewMetrics(), newQueue()
		registry := prometheus.NewRegistry()
		registry.MustRegister(sebprom.NewCollector(metrics.Families))
		q.ackErr = func(call int) error {
			if call == 1 {
				return ErrLost
			}
			return nil
		}
		answers := []answer{{outcome: Delivered}, {outcome: Refused, reason: "no"}, {outcome: Slowed, reason: "slow", after: time.Hour}}
		p := inBubble(t, q, func(ctx context.Context, m *Message) answer {
			if m.Offset < 3 {
				time.Sleep(2 * time.Second)
				return answers[m.Offset]
			}
			<-ctx.Done()
			return answer{outcome: Abandoned}
		})
		p.opts.Metrics = metrics
		stop := run(t, p)
		for range 4 {
			q.add("v")
			time.Sleep(3 * time.Second)
		}
		time.Sleep(time.Hour + 8*time.Minute)
		want := `
# HELP seb_push_deliveries_total Requests to the target, by outcome.
# TYPE seb_push_deliveries_total counter
`
		for _, o := range []string{"abandoned 0", "broken 0", "delivered 1", "failed 0", "forbidden 0", "gone 0", "redirected 0", "refused 1", "slowed 1", "timed_out 0", "unreachable 0"} {
			name, n, _ := strings.Cut(o, " ")
			want += `seb_push_deliveries_total{outcome="` + name + `",queue="mail",topic="orders"} ` + n + "\n"
		}
		want += `
# HELP seb_push_in_flight Requests to the target that are under way.
# TYPE seb_push_in_flight gauge
seb_push_in_flight{queue="mail",topic="orders"} 1
# HELP seb_push_slowed_until_timestamp_seconds When requests to the target begin again, in seconds since 1970; 0 if they are not paused.
# TYPE seb_push_slowed_until_timestamp_seconds gauge
seb_push_slowed_until_timestamp_seconds{queue="mail",topic="orders"} 0
# HELP seb_push_unsettled_total Messages whose outcome could not be committed; they are delivered again.
# TYPE seb_push_unsettled_total counter
seb_push_unsettled_total{queue="mail",topic="orders"} 1
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
			"seb_push_deliveries_total", "seb_push_in_flight", "seb_push_slowed_until_timestamp_seconds", "seb_push_unsettled_total"); err != nil {
			t.Error(err)
		}
		if n, err := testutil.GatherAndCount(registry, "seb_push_duration_seconds"); n != 1 || err != nil {
			t.Errorf("%d histograms: %v", n, err)
		}
		_ = stop()
		if n, err := testutil.GatherAndCount(registry); n != 0 || err != nil {
			t.Errorf("%d series are left behind: %v", n, err)
		}
	})
}

// seriesOf returns how many series each metric has.
func seriesOf(t *testing.T, g prometheus.Gatherer) map[string]int {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			n[f.GetName()]++
			n[f.GetName()] += len(m.GetHistogram().GetBucket()) // in addition to the one for the total
		}
	}
	return n
}

func TestMetricsAreBounded(t *testing.T) {
	metrics, registry := NewMetrics(), prometheus.NewRegistry()
	registry.MustRegister(sebprom.NewCollector(metrics.Families))
	pusher := func(queue int) *Pusher {
		return &Pusher{opts: Options{Topic: "t", Queue: "q" + strconv.Itoa(queue)}, gate: newGate(1)}
	}
	const targets = 1200
	for i := range targets {
		s := metrics.begin(pusher(i))
		s.observe(Delivered, time.Second)
		s.unsettled()
	}
	for name, n := range seriesOf(t, registry) {
		if n > 1000 || n < 900 {
			t.Errorf("%s has %d series", name, n)
		}
	}
	if n := int(metrics.deliveries[names{}][Delivered].Load()); n != targets-targetsCounted {
		t.Errorf("the others have %v deliveries", n)
	}
	if n := int(metrics.untold[names{}].Load()); n != targets-targetsShown {
		t.Errorf("of the others %v are unsettled", n)
	}

	before := metrics.running[names{"t", "q0"}]
	metrics.begin(pusher(0)).observe(Delivered, time.Second) // the next pusher to the same target
	metrics.end(before)                                      // after the next pusher has begun
	if n := metrics.deliveries[names{"t", "q0"}][Delivered].Load(); n != 2 {
		t.Errorf("a target has %v deliveries", n)
	}
	metrics.end(metrics.running[names{"t", "q1"}]) // this makes room for another pusher
	another := pusher(targets)
	metrics.begin(another).observe(Delivered, time.Second)
	if n := metrics.deliveries[names{"t", another.opts.Queue}][Delivered].Load(); n != 1 {
		t.Errorf("a target that there is room for has %v deliveries", n)
	}
}
