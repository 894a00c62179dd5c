package sim

import (
	"context"
	"errors"
	"sync"

	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// ledger compares the calls of a process to its S3 client with the requests that reach the front, and the
// front's answers with the results that the S3 client reports. So it finds two errors that would not harm
// the log, but that break the contract of [objstore.Store]: an S3 client that repeats a Create by itself,
// and an S3 client that reports a 409 as an existing key.
type ledger struct {
	mu    sync.Mutex
	lines map[line]int // for each line, how many calls of debit may still succeed
}

type line struct{ what, key string }

func newLedger() *ledger { return &ledger{lines: map[line]int{}} }

func (g *ledger) credit(what, key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lines[line{what, key}]++
}

// debit uses up a credit, and reports whether there was one.
func (g *ledger) debit(what, key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lines[line{what, key}]--
	return g.lines[line{what, key}] >= 0
}

// verdict names what an answer says about a key: created or deleted ("success"), existing, or missing. It
// returns "" for all other answers.
func verdict(verb objstore.Verb, err error) string {
	switch {
	case errors.Is(err, objstore.ErrExists):
		return string(verb) + ": exists"
	case errors.Is(err, objstore.ErrNotFound):
		return string(verb) + ": not found"
	case err == nil && verb != objstore.VerbGet && verb != objstore.VerbList:
		return string(verb) + ": success"
	}
	return ""
}

// audit is the [storetest.Fault] around the S3 client. It injects no fault: it writes the ledger.
func (f *front) audit(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
	if r.Verb == objstore.VerbCreate {
		f.ledger.credit("create", r.Key)
	}
	answer, err := next(ctx, r)
	if v := verdict(r.Verb, err); v != "" && !f.ledger.debit(v, r.Key) {
		f.link.sim.history.violate("SlotAgreement", "the S3 client of %s reports %q for %s, but the S3 server did not answer so: %v", f.link.name, v, r.Key, err)
	}
	return answer, err
}
