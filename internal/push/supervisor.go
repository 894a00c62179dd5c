package push

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/wait"
)

const (
	// tick is how often a supervisor checks whether the owners of pushed queues are alive.
	tick = 5 * time.Second
	// superviseAgain is how long a supervisor waits before it tries again, after it failed to push a queue
	// or to take a queue over.
	superviseAgain = time.Second
	// stopMax is how long one attempt to commit that a target is gone may take.
	stopMax = 10 * time.Second
)

// ErrRunning is what [Supervisor.Run] returns when another call of Run has not ended.
var ErrRunning = errors.New("this broker already pushes the records of queues")

// Pushed is a queue that, according to the log, has a target and is neither stopped nor paused.
type Pushed struct {
	ID          format.QueueID
	Topic, Name string
	TopicID     string // see [Options]
	Target      Target

	Epoch format.Epoch // the owner's epoch
	Owned bool         // the queue has an owner
	Owner string       // the owner's address; may be empty
	Seen  time.Time    // time of the owner's latest sign of life in the log
	Here  bool         // this broker owns the queue
	// Mine says that this broker was the owner before it was restarted.
	Mine bool
}

// Broker is what a [Supervisor] needs from the broker that it runs in. The errors of its methods wrap
// [ErrNoQueue] if the queue was deleted or has another owner.
type Broker interface {
	// Pushed returns the queues that should be pushed now, by id.
	Pushed() map[format.QueueID]Pushed
	// HasWork tells whether the queue q has records that the owner should push now or is pushing now.
	HasWork(q Pushed) bool
	// TakeOver makes this broker the owner of q's queue. It does nothing if the owner has changed since
	// Pushed returned q.
	TakeOver(ctx context.Context, q Pushed) error
	// Show commits a sign of life: other brokers see in the log that this broker, the owner, runs.
	Show(ctx context.Context, q Pushed) error
	// Stop commits that a queue is no longer pushed, and why. It commits nothing if the queue has another
	// target by now.
	Stop(ctx context.Context, q Pushed, why string) error
	// Follow makes the broker keep reading new commits of the log, until leave is called.
	Follow() (leave func())
	// Follows tells whether the broker has read the log in the last seconds. If not, the broker may not
	// know about the owners' latest signs of life.
	Follows() bool
}

// SupervisorOptions say how often owners of pushed queues commit a sign of life, and when another broker
// takes over.
type SupervisorOptions struct {
	// Silence is how long an owner that has records to push may write nothing to the log before
	// another broker takes the queue over.
	Silence time.Duration
	// Shows is how often an owner commits a sign of life while it has records to push.
	Shows  time.Duration
	Logger *slog.Logger
}

// Supervisor runs a [Pusher] for each pushed queue that this broker owns, and takes over queues whose
// owner is lost.
type Supervisor struct {
	b       Broker
	opts    SupervisorOptions
	changed chan struct{} // holds a value when there may be something to do

	mu      sync.Mutex
	running bool
	pushers map[format.QueueID]*Pusher // by queue
	busy    map[format.QueueID]bool    // queues for which a takeover or a Show is under way
}

// NewSupervisor returns a supervisor that does nothing until Run is called.
func NewSupervisor(b Broker, o SupervisorOptions) *Supervisor {
	return &Supervisor{b: b, opts: o, changed: make(chan struct{}, 1), pushers: map[format.QueueID]*Pusher{}, busy: map[format.QueueID]bool{}}
}

// Notify makes the supervisor check the pushed queues. The caller calls Notify when they may have changed.
// Notify does not block.
func (s *Supervisor) Notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Status returns the state of a queue's target; the zero Status if this broker does not push the queue.
func (s *Supervisor) Status(queue format.QueueID) Status {
	s.mu.Lock()
	p := s.pushers[queue]
	s.mu.Unlock()
	if p == nil {
		return Status{}
	}
	return p.Status()
}

// Run pushes queues until ctx ends, and returns when no request is under way. For each queue that this
// broker owns, Run calls open, which returns the queue and the options of the queue's [Pusher].
func (s *Supervisor) Run(ctx context.Context, open func(Pushed) (Queue, Options)) error {
	s.mu.Lock()
	if s.running {
		s.mu.Unlock()
		return ErrRunning
	}
	s.running = true
	s.mu.Unlock()
	r := &supervision{Supervisor: s, open: open, runs: map[format.QueueID]*pushRun{}, watched: map[format.QueueID]watch{}}
	r.loop(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = false
	return nil
}

// supervision is the state of one call of [Supervisor.Run]. Only that call's goroutine uses the fields, except
// tasks.
type supervision struct {
	*Supervisor
	open    func(Pushed) (Queue, Options)
	tasks   sync.WaitGroup
	leave   func()                      // ends Broker.Follow; nil while there are no pushed queues
	runs    map[format.QueueID]*pushRun // by queue
	watched map[format.QueueID]watch
}

// pushRun is one run of a [Pusher]. It ends when the queue's target, or the owner's epoch, changes.
type pushRun struct {
	target Target
	epoch  format.Epoch
	end    context.CancelFunc
	over   chan struct{} // closed when the run has ended and the next run of the queue may begin
}

// watch says since when (on this broker's clock) an owner with records to push has written nothing to the log.
type watch struct {
	epoch format.Epoch
	seen  time.Time
	since time.Time
}

func (s *supervision) loop(ctx context.Context) {
	defer s.tasks.Wait()
	defer s.endAll()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		// reap must come before Pushed. A run that found the target gone has committed this fact before
		// the run was over. So after reap has removed such a run, Pushed no longer returns the queue, and
		// the loop does not begin another run.
		s.reap()
		queues := s.b.Pushed()
		s.follow(len(queues) > 0)
		s.endRuns(queues)
		for _, q := range queues {
			switch {
			case q.Here && s.runs[q.ID] == nil:
				s.begin(ctx, q)
			case !q.Owned, !q.Here && q.Mine:
				s.takeOver(ctx, q)
			}
		}
		select {
		case <-s.changed:
		case <-ticker.C:
			s.watch(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (s *supervision) endAll() {
	s.follow(false)
	for _, r := range s.runs {
		r.end()
	}
}

// follow starts or stops following the log. The broker follows the log while there are pushed queues, since
// it notices a lost owner only by reading the log.
func (s *supervision) follow(on bool) {
	switch {
	case on && s.leave == nil:
		s.leave = s.b.Follow()
	case !on && s.leave != nil:
		s.leave()
		s.leave = nil
	}
}

// reap forgets runs that are over.
func (s *supervision) reap() {
	for id, r := range s.runs {
		select {
		case <-r.over:
			delete(s.runs, id)
		default:
		}
	}
}

// endRuns ends each run whose queue has another owner or target by now, or should no longer be pushed.
func (s *supervision) endRuns(queues map[format.QueueID]Pushed) {
	for id, r := range s.runs {
		q, ok := queues[id]
		if !ok || !q.Here || q.Epoch != r.epoch || !q.Target.Equal(r.target) {
			r.end()
			delete(s.runs, id)
		}
	}
}

// begin starts a run for a queue that this broker owns.
func (s *supervision) begin(ctx context.Context, q Pushed) {
	ctx, end := context.WithCancel(ctx)
	r := &pushRun{target: q.Target, epoch: q.Epoch, end: end, over: make(chan struct{})}
	s.runs[q.ID] = r
	log := s.opts.Logger.With("topic", q.Topic, "queue", q.Name)
	queue, opts := s.open(q)
	opts.Gone = func(why error) { s.stopped(ctx, q, why.Error(), log) }
	p, err := New(q.Target, queue, opts)
	if err != nil { // a newer version wrote the target; this queue is not pushed until the target changes
		log.Error("can't push a queue", "err", err)
		return
	}
	s.put(q.ID, p)
	s.tasks.Go(func() {
		defer end()
		defer s.remove(q.ID, p)
		if err := p.Run(ctx); err != nil && !errors.Is(err, ErrGone) {
			log.Debug("no longer pushes a queue", "err", err)
			wait.For(ctx, superviseAgain)
		}
		close(r.over)
		s.Notify()
	})
}

func (s *Supervisor) put(queue format.QueueID, p *Pusher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pushers[queue] = p
}

// remove removes a pusher, unless the queue has another pusher by now.
func (s *Supervisor) remove(queue format.QueueID, p *Pusher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pushers[queue] == p {
		delete(s.pushers, queue)
	}
}

// stopped commits that a target is gone, and tries again until it succeeds. Meanwhile this broker
// sends nothing to the target.
func (s *supervision) stopped(ctx context.Context, q Pushed, why string, log *slog.Logger) {
	for {
		try, cancel := context.WithTimeout(ctx, stopMax)
		err := s.b.Stop(try, q, why)
		cancel()
		if err == nil || errors.Is(err, ErrNoQueue) || ctx.Err() != nil {
			return // if ctx ended, the next run sends a request to the target again
		}
		log.Warn("the receiver answered 410 (Gone), but this broker can't write to the log that the push stops; trying again", "err", err)
		wait.For(ctx, superviseAgain)
	}
}

// aside runs f for a queue in a goroutine, unless the queue is busy: an earlier f is still running, or has
// failed less than superviseAgain ago.
func (s *supervision) aside(ctx context.Context, q Pushed, doing string, f func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[q.ID] {
		return
	}
	s.busy[q.ID] = true
	s.tasks.Go(func() {
		if err := f(); err != nil && !errors.Is(err, ErrNoQueue) && ctx.Err() == nil {
			s.opts.Logger.Warn(doing+" failed; trying again", "topic", q.Topic, "queue", q.Name, "err", err)
			wait.For(ctx, superviseAgain)
		}
		s.mu.Lock()
		delete(s.busy, q.ID)
		s.mu.Unlock()
		s.Notify()
	})
}

func (s *supervision) takeOver(ctx context.Context, q Pushed) {
	s.aside(ctx, q, "taking over a queue to push its records", func() error { return s.b.TakeOver(ctx, q) })
}

// watch checks the owners of queues that have records to push. For queues that this broker owns, it commits
// signs of life. It takes over queues whose owners have written nothing to the log for too long.
func (s *supervision) watch(ctx context.Context) {
	queues := s.b.Pushed()
	for id := range s.watched {
		if _, ok := queues[id]; !ok {
			delete(s.watched, id)
		}
	}
	for id, q := range queues {
		if !q.Owned || !s.b.HasWork(q) {
			delete(s.watched, id)
			continue
		}
		w := s.watched[id]
		if w.epoch != q.Epoch || !w.seen.Equal(q.Seen) {
			w = watch{q.Epoch, q.Seen, time.Now()}
			s.watched[id] = w
		}
		switch quiet := time.Since(w.since); {
		case q.Here && quiet >= s.opts.Shows-tick: // minus tick: at the next tick, more than opts.Shows may have passed
			s.aside(ctx, q, "telling other brokers that this one pushes a queue", func() error { return s.b.Show(ctx, q) })
		case !q.Here && quiet > s.opts.Silence && s.b.Follows():
			s.opts.Logger.Warn("taking over a queue whose owner does not push", "topic", q.Topic, "queue", q.Name, "owner", q.Owner, "silent", quiet)
			s.takeOver(ctx, q)
		}
	}
}
