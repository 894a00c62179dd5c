package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/objstore"
)

// Exit codes: a script can choose by the code what to do next.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitDamage      = 3
	exitRefused     = 4
	exitUnknown     = 5
	exitUnreachable = 6
	exitDead        = 7
	exitSignal      = 128 // plus the signal's number
)

// exitCodes say in the help what each code means.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "success"},
	{exitFailure, "any failure that no other code describes"},
	{exitUsage, "wrong usage or setup, such as an unknown flag, an invalid value, or wrong credentials for the store: nothing was done"},
	{exitDamage, "the log or an object is damaged, or the store can't be trusted: find the cause before you go on"},
	{exitRefused, "refused: for example, something does not exist, exists already or is too large"},
	{exitUnknown, "the outcome is unknown: the change may be in the log or not; check before you try again"},
	{exitUnreachable, "the broker or the store does not answer, is too busy or has no room: the failed request changed nothing; try again later"},
	{exitDead, "seb work ended by --drain or --limit, or because it can't run the command of --exec, and at least one record became a dead letter while it ran"},
	{exitSignal + int(syscall.SIGINT), "interrupted by Ctrl-C; the code is 143 after SIGTERM, and 129 after SIGHUP, as when the terminal is closed"},
}

// exitHelp is the table of codes.
func exitHelp() string {
	var s strings.Builder
	for _, c := range exitCodes {
		fmt.Fprintf(&s, "  %-4d %s\n", c.code, c.meaning)
	}
	return s.String()
}

// codedError is an error with an exit code that the command chose for it.
type codedError struct {
	error
	code int
}

func (e codedError) Unwrap() error { return e.error }

// errInterrupted is the error of a command that a signal interrupted.
var errInterrupted = errors.New("interrupted")

// errEnded is the error of a command that only an interrupt can end, such as consume --follow. run does not
// report it.
var errEnded = fmt.Errorf("%w, the only end of this command", errInterrupted)

// interruption is the cause with which a signal cancels a command's context.
type interruption struct{ signal os.Signal }

func (i interruption) Error() string { return i.signal.String() }

// Is makes an interruption a context.Canceled for errors.Is.
func (i interruption) Is(target error) bool { return target == context.Canceled }

func (i interruption) exitCode() int {
	if s, ok := i.signal.(syscall.Signal); ok {
		return exitSignal + int(s)
	}
	return exitSignal + int(syscall.SIGINT)
}

// exitCode returns the exit code of the process after err.
func exitCode(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil && (errors.Is(err, errInterrupted) || errors.Is(err, context.Canceled)) {
		var i interruption
		_ = errors.As(context.Cause(ctx), &i) // i stays zero if the cause is no signal: the exit code is then that of Ctrl-C
		return i.exitCode()
	}
	var coded codedError
	var broker *seb.Error
	switch {
	case errors.As(err, new(usageError)):
		return exitUsage
	case errors.As(err, &coded):
		return coded.code
	case objstore.SetupFailureOf(err) != nil:
		return exitUsage
	case errors.As(err, &broker):
		return brokerExitCode(broker)
	case errors.Is(err, objstore.ErrNotRegular):
		return exitDamage
	case errors.Is(err, objstore.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return exitRefused
	case isUnreachable(err), objstore.FailureOf(err) != nil:
		return exitUnreachable
	}
	return exitFailure
}

// brokerExitCode returns the exit code for an error of a broker, in this process or behind a URL.
func brokerExitCode(e *seb.Error) int {
	if e.Outcome == seb.Unknown {
		return exitUnknown
	}
	if _, setup := errors.AsType[client.SetupError](e); setup {
		return exitUsage
	}
	switch e.Code {
	case seb.CodeBrokerStopped, seb.CodeStoreUnusable, seb.CodeDataLost:
		return exitDamage
	case client.CodeUnreachable, seb.CodeStoreUnavailable, seb.CodeOverMemoryBudget, seb.CodeOverStateBudget,
		seb.CodeIdempotencyKeysFull, seb.CodeBrokerClosed, codeRequestTimeout:
		return exitUnreachable
	default:
		return otherExitCode(e)
	}
}

// otherExitCode returns the exit code for an error whose code alone does not decide it.
func otherExitCode(e *seb.Error) int {
	status, foreign := errors.AsType[client.StatusError](e)
	switch {
	case e.RetryAfter > 0:
		return exitUnreachable
	case e.Code == seb.CodeCanceled, e.Code == codeInternal, e.Code == client.CodeUnexpectedResponse && (!foreign || status/100 != 4):
		return exitFailure
	default:
		return exitRefused
	}
}

// Codes of errors that only the HTTP API returns.
const (
	codeRequestTimeout seb.Code = "request_timeout"
	codeInternal       seb.Code = "internal"
)

// isFull tells whether a store refused a request because it has no room.
func isFull(err error) bool {
	f := objstore.FailureOf(err)
	return f != nil && f.Full || errors.Is(err, objstore.ErrFull)
}

// isUnreachable tells whether a store could not be reached, or did not answer.
func isUnreachable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op != "listen" || errors.As(err, new(*net.DNSError)) || errors.Is(err, context.DeadlineExceeded)
}
