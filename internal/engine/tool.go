package engine

import (
	"crypto/rand"
	"io"
	"log/slog"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// The defaults of a broker that the plans of tools depend on.
const (
	DefaultMemory            = 128 << 20
	DefaultCheckpointCommits = 1000
)

// ToolOptions returns options for a program that opens an existing log for one task. Errors go to log.
func ToolOptions(log io.Writer) Options {
	var session format.SessionID
	rand.Read(session[:])
	return Options{
		Batching: atOnce{}, AppendTimeout: 30 * time.Second, StaleMax: time.Second, CheckpointCommits: DefaultCheckpointCommits, CheckpointLarge: 1 << 20, Thorough: true,
		IdempotencyKeys: 1_000_000, Memory: DefaultMemory, StateMemory: 256 << 20, Session: session,
		DeleteDelay: 4 * time.Hour, Margin: time.Hour, // not used: the bucket has a log
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError})), Boot: BootClock(), BootID: BootIDNow(), Wall: time.Now,
	}
}

// atOnce commits each request at once: there are few.
type atOnce struct{}

func (atOnce) Wait(Fill) time.Duration { return 0 }
func (atOnce) Admits(Fill) bool        { return true }
