package push

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/httprecord"
)

// ErrGone is what [Pusher.Run] returns when the target answered 410: its URL is gone for good.
var ErrGone = errors.New("the receiver answered that the URL is gone for good")

// Bounds on how long a pusher waits after a failed Receive before it calls Receive again.
const (
	receiveRetryMin = 100 * time.Millisecond
	receiveRetryMax = 10 * time.Second
)

// Options are what a [Pusher] needs in addition to its target.
type Options struct {
	// Topic, TopicID and Queue name the queue in requests, logs and metrics. A TopicID, such as
	// 1f0c6a3e.7, is never given to another topic. Each webhook-id begins with TopicID, with a - instead of
	// the full stop.
	Topic, TopicID, Queue string
	// Networks says where requests may go.
	Networks Networks
	// Proxy, if set, gets all requests. Then the proxy, and not Networks, decides where requests may go.
	// Environment variables such as HTTPS_PROXY have no effect.
	Proxy *url.URL
	// RootCAs are the authorities that may have signed a target's certificate; nil means the system's
	// authorities.
	RootCAs *x509.CertPool
	// Resolver finds the addresses of hosts; nil means the system's resolver.
	Resolver *net.Resolver
	// Dial, if set, makes all connections, and Networks does not apply to them. Tests set it, so that they
	// need no network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Grace is how long requests may go on once Run's context has ended; 0 means the
	// target's Timeout.
	Grace time.Duration
	// Gone, if set, is called when the target is gone for good, with the error that Run will return (it wraps
	// [ErrGone]). Other requests may still be under way.
	Gone func(error)
	// Logger gets log messages; nil discards them.
	Logger *slog.Logger
	// Metrics, if set, counts requests and their outcomes.
	Metrics *Metrics
}

// Pusher delivers the messages of one queue to one target.
type Pusher struct {
	queue   Queue
	target  Target
	opts    Options
	log     *slog.Logger
	gate    *gate
	send    func(context.Context, *Message) answer
	close   func()
	metrics *series
}

// New checks the target t and returns a pusher. The pusher sends nothing before the caller calls Run.
func New(t Target, q Queue, o Options) (*Pusher, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	t = t.OrDefaults()
	for _, name := range []string{o.Topic, o.TopicID, o.Queue} {
		if name == "" || !httprecord.Fits(name) {
			return nil, fmt.Errorf("push from topic %q with id %q, queue %q: one of the three is empty, or can't be the value of an HTTP header", o.Topic, o.TopicID, o.Queue)
		}
	}
	if o.Grace == 0 {
		o.Grace = t.Timeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := newClient(t, o)
	if err != nil {
		return nil, err
	}
	return &Pusher{
		queue: q, target: t, opts: o, gate: newGate(t.MaxInFlight),
		log:  o.Logger.With("topic", o.Topic, "queue", o.Queue), // without the URL, which may hold a secret
		send: c.send, close: c.transport.CloseIdleConnections,
	}, nil
}

// Status returns the state of the target.
func (p *Pusher) Status() Status { return p.gate.status() }

// Run pushes until ctx ends, the queue returns [ErrNoQueue], or the target answers 410. It returns
// nil, ErrNoQueue or [ErrGone], respectively. Before it returns, requests under way have Options.Grace
// to end. Messages whose requests don't end by then stay leased until their leases end. Messages that
// were not sent go back to the queue. Run may be called once.
func (p *Pusher) Run(ctx context.Context) error {
	defer p.close()
	p.metrics = p.opts.Metrics.begin(p)
	defer p.opts.Metrics.end(p)

	begin, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	var deliveries sync.WaitGroup
	for {
		messages, err := p.receive(begin)
		for _, m := range messages {
			deliveries.Go(func() { p.deliver(begin, work, stop, &m) })
		}
		if err != nil {
			stop(err)
			break
		}
	}
	defer time.AfterFunc(p.opts.Grace, abandon).Stop()
	cause := context.Cause(begin)
	if errors.Is(cause, ErrGone) && p.opts.Gone != nil {
		p.opts.Gone(cause)
	}
	deliveries.Wait()
	if ctx.Err() == nil || cause != context.Cause(ctx) { //nolint:errorlint // not errors.Is: Run returns nil only if begin ended because ctx ended, so cause must be the cause of ctx itself
		return cause
	}
	return nil
}

// receive returns the next messages; there may be none. If it returns an error, the pusher ends.
func (p *Pusher) receive(ctx context.Context) ([]Message, error) {
	for wait := receiveRetryMin; ; wait = min(2*wait, receiveRetryMax) {
		room, err := p.gate.room(ctx)
		if err != nil {
			return nil, err
		}
		open, giveUp := context.WithCancel(ctx)
		received := p.gate.receiving(giveUp)
		messages, err := p.queue.Receive(open, room)
		received(len(messages))
		closed := open.Err() != nil
		giveUp()
		switch {
		case errors.Is(err, ErrNoQueue):
			return messages, err
		case ctx.Err() != nil:
			return messages, context.Cause(ctx)
		case closed || len(messages) > 0:
			err = nil // the gate ended the call, which is no failure; or messages came, and the next call returns an error that persists
		}
		if err == nil {
			return messages, nil
		}
		p.log.Warn("can't receive messages to push", "err", err, "again_in", wait)
		if !pause(ctx, wait) {
			return nil, context.Cause(ctx)
		}
	}
}

// pause waits for about the given time. It returns false if ctx ends first.
func pause(ctx context.Context, about time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(about/2 + rand.N(about/2+1)):
		return true
	}
}
