package commitlog

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

const (
	// Commit watches the log after watchLost lost races in a row, at most watchesMax times.
	watchLost, watchesMax = 2, 32

	watchAhead = 2  // slots that a watch reads at a time
	watchRate  = 8  // Gets of each of these slots per answer time
	watchGets  = 64 // Gets of a watch in all, at most
	// watchPatience is after how many answer times without a new commit a watch ends.
	watchPatience = 3
	// watchRead is how many bytes of a commit each Get of a watch reads. Several Gets may find the same commit.
	watchRead = 64 << 10
)

// shouldWatch reports whether to watch the log before the next claim, after so many lost races in a row. A broker that has turns
// should not: the others would wait for it meanwhile. Nor should one whose store answers so fast that the log would go far ahead
// during the pauses of a watch, such as a directory.
func (l *Log) shouldWatch(lost int) bool {
	applied, _ := l.Position()
	return l.turns.answer >= watchRate*pollPauseMin && lost >= watchLost && lost < watchLost+watchesMax && l.turns.outside(applied)
}

// watch reads the next slots again and again until it has seen another broker write one, or until nobody has written one for
// a while.
//
// A broker without turns hardly ever wins a slot beside a broker that commits all the time. After each commit of the other
// broker, it needs a Create in vain, a Get of the commit, and then a Create for the next slot. The other broker needs only
// the last of these. But the Gets of a watch are under way when a commit appears in the store, so this broker can claim the
// next slot about as soon as the winner. A commit that is found by the first answer about its slot may be there for long, so
// watch goes on with the next slot, whose Gets are under way already.
//
// The protocol gets the answers with commits, like those to other Gets. The first error ends the watch, since the store may
// be overloaded.
func (l *Log) watch(ctx context.Context) error {
	var applied, known format.Seq
	l.with(func(p *Protocol) {
		applied, _ = p.Position()
		known = p.Known()
	})
	type read struct {
		slotRead
		slot format.Seq
		took time.Duration
		err  error
	}
	var (
		// answer may have been measured long ago, when the store was slow. So it gets smaller with the answers.
		answer = max(l.turns.answer, watchRate*pollPauseMin)
		since  = time.Now()  // when the last commit was found
		next   = applied + 1 // the first slot whose commit is not found yet
		absent = map[format.Seq]bool{}
		found  = map[format.Seq]slotRead{}
		failed error
		reads  = make(chan read, watchGets)
		gets   sync.WaitGroup
	)
	within, cancel := context.WithCancel(ctx) // a Get that is canceled says nothing about the store, unlike one that times out
	defer cancel()
	tick := time.NewTicker(pollPauseMin) // the first Gets come at once
	defer tick.Stop()
	over := time.NewTimer(watchPatience * answer)
	defer over.Stop()
	for sent, answered, ends := 0, 0, false; !ends && answered < watchGets; {
		select {
		case <-tick.C:
			tick.Reset(answer / watchRate)
			for s := next; s < min(next+watchAhead, applied+Window) && sent < watchGets; s++ {
				if _, ok := found[s]; ok {
					continue
				}
				sent++
				gets.Go(func() {
					r, begin := read{slot: s}, time.Now()
					r.err = l.readSlot(within, &r.slotRead, s, watchRead, known)
					r.took = time.Since(begin)
					reads <- r
				})
			}
		case r := <-reads:
			answered++
			if usual := max(2*r.took, watchRate*pollPauseMin); usual < answer && r.err == nil { // one answer alone may be fast
				answer = usual
				tick.Reset(answer / watchRate)
				over.Reset(watchPatience*answer - time.Since(since))
			}
			_, again := found[r.slot]
			switch missing := r.Seq != 0 && !r.Found && r.start.Body == nil; {
			case again:
			case missing:
				absent[r.slot] = true
				delete(l.damaged, format.LogKey(r.slot))
			default:
				found[r.slot], failed = r.slotRead, r.err
				for ; found[next].Seq != 0; next++ {
					since = time.Now()
					over.Reset(watchPatience * answer)
				}
				fresh := absent[next-1] && next == applied+1+format.Seq(len(found))
				ends = failed != nil || r.start.Body != nil || fresh
			}
		case <-over.C:
			ends = true
		case <-l.inbox.heard: // Commit takes what another broker has sent
			ends = true
		case <-ctx.Done():
			ends = true
		}
	}
	cancel()
	gets.Wait()
	want := slices.Sorted(maps.Keys(found))
	results := make([]slotRead, 0, len(want))
	for _, s := range want {
		results = append(results, found[s])
	}
	if err := l.readLarge(ctx, results); failed == nil {
		failed = err
	}
	return l.takeReads(want, results, failed)
}
