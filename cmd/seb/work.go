package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

type workCmd struct {
	serverFlag
	Topic       string         `arg:"" type:"topic" help:"Name of the topic."`
	Queue       string         `arg:"" help:"Name of the queue."`
	Exec        string         `env:"-" required:"" placeholder:"CMD" help:"Run CMD by sh -c for each record."`
	Concurrency int            `default:"1" placeholder:"N" help:"Run up to N commands at a time (default ${default})."`
	Lease       time.Duration  `placeholder:"DURATION" help:"How long a record stays with this worker if the worker is killed; while the command runs, the lease is extended (default: the queue's)."`
	RetryIn     *time.Duration `placeholder:"DURATION" help:"How long a record waits after exit code 75 (default: the queue's backoff)."`
	Drain       bool           `env:"-" help:"End when no record is ready or held back; delayed records stay."`
	Limit       int64          `env:"-" placeholder:"N" help:"End after N records, 1 or more (default: no limit)."`
	Grace       time.Duration  `default:"10s" placeholder:"DURATION" help:"How long a command may take to exit after SIGTERM, before SIGKILL (default ${default})."`
}

// Help tells what the command gets, and what its exit code means.
func (workCmd) Help() string {
	return `The command gets the record's value on its standard input, and in its environment:

    SEB_MESSAGE_TOPIC, SEB_MESSAGE_QUEUE
    SEB_MESSAGE_PARTITION, SEB_MESSAGE_OFFSET     where the record is
    SEB_MESSAGE_TIMESTAMP                         RFC 3339, UTC
    SEB_MESSAGE_KEY                               unset if it has none
    SEB_MESSAGE_ATTEMPT                           1, 2 and so on
    SEB_MESSAGE_HEADER_NAME                       the header name, in capitals; what is neither letter nor digit is _

(The names differ from the variables of seb's own flags, so that the command may call seb.) A key or header with a zero
byte, or of more than 64 KiB, is not passed; if several headers have the same variable, only the first is passed.

Exit code 0 means that the record is done. 75 (EX_TEMPFAIL) puts it back, to wait for --retry-in. Every other code, or
a signal, puts it back, to wait for the queue's backoff. The last lines of standard error are the reason. After the queue's last attempt the record
is parked (a dead letter): see seb queue dead. 126 and 127, by which a shell says that it can't run the command, end the
worker too; so does a machine that can't start a command, such as one with a full disk.

Examples:

    seb work orders mail --exec 'mail -s Ordered shop@example.com' --concurrency 4
    seb work orders mail --exec 'curl -fsS --data-binary @- https://example.com/hook'
    seb work pictures thumbs --drain --exec 'convert - -resize 100 "thumbs/$SEB_MESSAGE_OFFSET.png"'

The same record may come again: after a crash, and after a lost lease, which ends the command by SIGTERM to its process
group. Be sure that doing the work twice does no harm. If seb work is killed by SIGKILL, its commands go on alone, and
their records go to another worker once their leases end. While no broker answers, also at the start, seb work tries
again, and says so; only with --drain, the first request must succeed. A host that does not exist ends it at once.

--drain waits for records that are held back after the loss of a broker, for at most the queue's lease, but neither for
records that other workers have, nor for delayed ones.

With --drain or --limit, and if the command can't be run, it exits with 7 if the last attempt of a record failed, so
that the record was parked. On Ctrl-C, SIGTERM or SIGHUP it takes no more records, waits for running commands, and exits with 0. If
--drain or --limit was given and not reached, it exits with 130 (Ctrl-C), 143 (SIGTERM) or 129 (SIGHUP). A second
signal ends the commands: their attempts have failed. The output of the commands is passed through.`
}

// Run works until it is interrupted, or until --drain or --limit is reached.
func (c *workCmd) Run(ctx context.Context, std streams) error {
	if err := c.check(); err != nil {
		return err
	}
	if err := checkGroups(); err != nil {
		return err
	}
	broker, err := c.client()
	if err != nil {
		return err
	}
	queue := broker.Queue(c.Topic, c.Queue)
	config, err := c.open(ctx, queue, std)
	switch {
	case err != nil && ctx.Err() != nil && !c.Drain && c.Limit == 0:
		return nil // interrupted while no broker answered
	case err != nil && ctx.Err() != nil:
		err = errInterrupted
	}
	if err != nil {
		return fmt.Errorf("work on queue %s of %s: %w", c.Queue, c.Topic, err)
	}
	// main ignores SIGPIPE, and a child process would ignore it too. While this process has a handler for
	// SIGPIPE, the commands of --exec get the default action instead.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)

	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	hurry, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer onSecondSignal(ctx, end)()
	h := &handler{cmd: c, std: std, stop: stop, onEnd: func(f func()) func() bool { return context.AfterFunc(hurry, f) }}
	said := h.output.own(std.err)
	defer context.AfterFunc(ctx, func() {
		note(said, "taking no more records; waiting for running commands (another Ctrl-C or SIGTERM ends them)\n")
	})()
	away := &outage{w: said}
	source := &boundedSource{
		WorkSource: queue, away: away,
		limit: c.Limit, drain: c.Drain, places: c.Concurrency, attempts: config.MaxAttempts,
		held: heldBack(queue, said), stop: func() { stop(errReached) },
	}
	worker := &seb.Worker{
		Source: source, Handle: h.handle, Concurrency: c.Concurrency, Lease: config.Lease,
		Logger: slog.New(workLog{away}),
	}
	err = worker.Run(running)
	note(said, "%d done, %d put back, %d dead\n", source.done.Load(), source.back.Load(), source.dead.Load())
	return c.ended(ctx, running, err, source.back.Load(), source.dead.Load())
}

// heldBack returns a function that tells whether the broker holds records back, since a broker that was lost may have
// handed them out. The first time that it does, the function also writes a note about it to the writer said.
func heldBack(queue client.Queue, said io.Writer) func(context.Context) (bool, error) {
	var once sync.Once
	return func(ctx context.Context) (bool, error) {
		q, err := queue.Describe(ctx)
		if err != nil || q.Held == 0 {
			return false, err
		}
		once.Do(func() {
			note(said, "%s held back until %s, since workers may have got them from a broker that was lost; waiting for them\n",
				counted(q.Held, "record is", "records are"), q.HeldUntil.UTC().Format(timestampLayout))
		})
		return true, nil
	}
}

// errReached is the cause with which --drain or --limit ends the worker.
var errReached = errors.New("reached")

// ended returns the error with which the command ends. back and dead are how many records it put back and parked.
func (c *workCmd) ended(ctx, running context.Context, err error, back, dead int64) error {
	cause := context.Cause(running)
	var noCommand noCommandError
	switch {
	case err != nil:
		return err // err names the queue already
	case errors.Is(cause, errReached) && dead > 0:
		err = fmt.Errorf("work on queue %s of %s: %s", c.Queue, c.Topic, counted(dead, "record was parked (a dead letter)", "records were parked (dead letters)"))
		return codedError{hinted(err, fmt.Sprintf("seb queue dead %s %s lists them", c.Topic, c.Queue)), exitDead}
	case errors.Is(cause, errReached):
		return nil
	case errors.As(cause, &noCommand):
		return noCommand.after(c, back, dead)
	case ctx.Err() != nil && (c.Drain || c.Limit > 0):
		return fmt.Errorf("work on queue %s of %s: %w", c.Queue, c.Topic, errInterrupted)
	default:
		return nil
	}
}

func (c *workCmd) check() error {
	switch {
	case c.Exec == "":
		return usage(errors.New("--exec is empty: name the command to run"))
	case c.Concurrency < 1 || c.Concurrency > workersMax:
		return usage(fmt.Errorf("invalid --concurrency %d: it must be 1 to %d", c.Concurrency, workersMax))
	case c.Lease < 0 || c.Grace < 0:
		return usage(fmt.Errorf("invalid --lease %v or --grace %v: they must not be negative", c.Lease, c.Grace))
	case c.RetryIn != nil && *c.RetryIn < 0:
		return usage(fmt.Errorf("invalid --retry-in %v: it must not be negative", *c.RetryIn))
	}
	return nil
}

// workersMax is the most commands that run at a time, and the most records that a receive returns.
const workersMax = 1000

// open asks the broker for the queue, so that a wrong name or a missing permission is reported at the start.
// It returns the queue's config, with the lease to ask for.
func (c *workCmd) open(ctx context.Context, queue client.Queue, std streams) (config seb.QueueConfig, _ error) {
	var q seb.QueueInfo
	ask := func() (err error) {
		q, err = queue.Describe(ctx)
		return err
	}
	var err error
	if c.Drain {
		err = ask() // only once: a script that drains a queue should learn soon that no broker answers
	} else {
		err = untilAnswered(ctx, std.err, ask)
	}
	if seb.CodeOf(err) == seb.CodeQueueNotFound {
		err = hinted(err, fmt.Sprintf("create it with `seb queue create %s %s`", c.Topic, c.Queue))
	}
	if err != nil {
		return config, err
	}
	note(std.err, "working on queue %s of %s; %s\n", c.Queue, c.Topic, counted(q.Ready, "record is ready", "records are ready"))
	if q.Config.Paused {
		note(std.err, "the queue is paused: it hands out nothing until `seb queue resume %s %s`\n", c.Topic, c.Queue)
	}
	if p, err := pushOf(ctx, queue); err == nil && p != nil {
		note(std.err, "warning: the queue is pushed to %s: each record goes either there or to a worker; `seb queue push delete %s %s` ends the push\n", oneLine(p.URL), c.Topic, c.Queue)
	}
	config = q.Config
	if c.Lease > 0 {
		config.Lease = c.Lease
	}
	return config, nil
}

// handler runs the command of --exec.
type handler struct {
	cmd    *workCmd
	std    streams
	output workOutput
	stop   context.CancelCauseFunc
	onEnd  func(f func()) (undo func() bool) // calls f when the commands must end
}

// handle runs the command for a record, and returns how the record failed, if it did.
func (h *handler) handle(ctx context.Context, m seb.Message) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer h.onEnd(func() { cancel(errInterrupted) })()
	err := h.run(ctx, m)
	if err == nil {
		return nil
	}
	note(h.output.own(h.std.err), "seb: partition %d offset %d, attempt %d: %s\n", m.Partition, m.Offset, m.Attempt, oneLine(firstLine(err.Error())))
	var failure *commandError
	switch {
	case errors.Is(context.Cause(ctx), errInterrupted):
		return &seb.RetryIn{Err: errors.New("seb work got a second signal, and ended the command")}
	case !errors.As(err, &failure):
		h.stop(noCommandError{err, "check the disk, memory and processes of this machine"})
	case failure.code == exitTempFail && h.cmd.RetryIn != nil:
		return &seb.RetryIn{Delay: *h.cmd.RetryIn, Err: err}
	case failure.code == exitNoCommand || failure.code == exitNotRunnable:
		h.stop(noCommandError{fmt.Errorf("the shell can't run the command: %w", err), "check --exec"})
	}
	return err
}

// Exit codes of a command that work treats in a special way.
const (
	exitTempFail    = 75
	exitNotRunnable = 126
	exitNoCommand   = 127
)

// noCommandError means that this machine can't run the command for any record.
type noCommandError struct {
	error
	check string // what to do about it
}

func (e noCommandError) Unwrap() error { return e.error }

// after returns e with a hint that says what became of the records. Their counts are 0 if the broker could not be
// told that a record failed; the record then comes again after its lease.
func (e noCommandError) after(c *workCmd, back, dead int64) error {
	switch {
	case dead == 1:
		return codedError{hinted(e, fmt.Sprintf("%s; 1 record was parked (a dead letter): seb queue dead %s %s lists it", e.check, c.Topic, c.Queue)), exitDead}
	case dead > 1:
		return codedError{hinted(e, fmt.Sprintf("%s; %d records were parked (dead letters): seb queue dead %s %s lists them", e.check, dead, c.Topic, c.Queue)), exitDead}
	case back > 0:
		return hinted(e, e.check+"; the record was put back")
	}
	return hinted(e, e.check)
}
