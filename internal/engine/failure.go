package engine

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/objstore"
)

// fullReport is the least time between two reports that the store is full. The engine refuses each commit at
// once while the store is full, so there may be hundreds in a second.
const fullReport = 10 * time.Second

// seldom bounds how often something is logged.
type seldom struct {
	mu   sync.Mutex
	last time.Time
}

// may returns true once in d.
func (s *seldom) may(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.last.IsZero() || now.Sub(s.last) >= d {
		s.last = now
		return true
	}
	return false
}

// logFailure logs that a store request failed: as an error, with what to do, if an operator has to do
// something, else as a warning.
func (e *Engine) logFailure(msg string, err error, attrs ...any) {
	level := slog.LevelWarn
	attrs = append(attrs, "err", err)
	if f := objstore.FailureOf(err); f != nil && f.Hint != "" {
		level, attrs = slog.LevelError, append(attrs, "hint", f.Hint)
	}
	e.logger.Log(e.life, level, msg, attrs...)
}

// logFull logs that the store has no room, if err says so.
func (e *Engine) logFull(err error) {
	if errors.Is(err, objstore.ErrFull) && e.full.may(fullReport) {
		e.logFailure("the store is full; writes are refused until there is room", err)
	}
}

// logCause logs a failed store request in the words of the program that reported the failure, such as an SDK.
func (e *Engine) logCause(op objstore.Op) {
	err := op.Err
	if f := objstore.FailureOf(err); f != nil && f.Err != nil {
		err = f.Err
	}
	e.logger.Debug("a store request failed", "verb", string(op.Verb), "key", op.Key, "took", op.Duration, "err", err)
}
