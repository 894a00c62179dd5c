package engine

import (
	"context"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// The engine waits at least askMin and at most askMax for another broker that it has asked where the log ends.
const (
	askMin = 300 * time.Millisecond
	askMax = 2 * time.Second
)

// question is a question that the engine has sent to the broker that wrote the last commit: where does the log end? The
// answer, and the commits that this other broker sends, take the place of a Get. Only the commit loop uses a question.
type question struct {
	asked  time.Time
	syncs  []*syncRequest // the requests that the answer settles; all of them came before asked
	answer <-chan format.Seq
	cancel context.CancelFunc // ends the wait for the answer
}

// meshLog is the Engine as package mesh sees it.
type meshLog struct{ *Engine }

// Position implements mesh.Log.
func (e meshLog) Position() (format.Seq, format.Hash) { return e.log.Position() }

// Told implements mesh.Log.
func (e meshLog) Told(body []byte, size int64, at time.Time) error { return e.log.Told(body, size, at) }

// Lost implements mesh.Log: a broker no longer sends its commits, so syncs come at the shortest interval again.
func (e meshLog) Lost() {
	e.tail.foreign()
	e.tail.wakeLoop()
}

// Sync implements mesh.Log. It asks no further broker: two that ask each other would wait in vain.
func (e meshLog) Sync(ctx context.Context) error { return e.sync(ctx, &syncRequest{own: true}) }

// askPeer asks the broker that wrote the last commit where the log ends, and returns true: the answer will settle the
// syncs. It returns false if that broker is not connected, if a question is open, if a sync allows no question (relist
// or own), or if only a request to the store helps: the store fails, or the log lease needs a renewal.
func (e *Engine) askPeer(syncs []*syncRequest) bool {
	if e.question != nil || !e.mesh.Connected(e.writer) || e.storeFails() || !e.log.Young() {
		return false
	}
	for _, l := range syncs {
		if l.relist || l.own {
			return false
		}
	}
	answer := make(chan format.Seq, 1)
	ctx, cancel := context.WithTimeout(e.life, min(max(askMin, 4*e.log.AnswerTime()), askMax))
	writer := e.writer
	e.question = &question{asked: time.Now(), syncs: syncs, answer: answer, cancel: cancel}
	e.tasks.Go(func() {
		defer cancel()
		defer close(answer)
		if end, err := e.mesh.Ask(ctx, writer); err == nil {
			answer <- end
		}
	})
	return true
}

// answered ends the question. If the answer did not come, or names a slot whose commit did not come, the engine reads the
// log itself.
func (e *Engine) answered(end format.Seq, came bool) {
	q := e.question
	e.question = nil
	e.follow()
	if !came || e.Applied() < end {
		e.writer = format.SessionID{} // ask that broker nothing more until it commits again
		e.answerSyncs(q.syncs)
		return
	}
	e.tail.synced(q.asked, false) // false: other brokers sent the commits that came meanwhile, so don't sync more often
	for _, l := range q.syncs {
		l.done <- nil
	}
}

// proven ends the question, since a commit that began after the question has proven where the log ends.
func (e *Engine) proven() {
	if e.question == nil {
		return
	}
	for _, l := range e.question.syncs {
		l.done <- nil
	}
	e.question.cancel()
	e.question = nil
}

// answers returns the channel with the answer to the question; nil if there is no question.
func (e *Engine) answers() <-chan format.Seq {
	if e.question == nil {
		return nil
	}
	return e.question.answer
}
