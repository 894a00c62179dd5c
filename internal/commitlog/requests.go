package commitlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
)

// timeout returns a context for a request that transfers the given number of bytes. More bytes get a longer
// timeout.
func timeout(ctx context.Context, bytes int64) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, requestTimeout+time.Duration(bytes)*time.Second/bytesPerSecond)
}

func (l *Log) list(ctx context.Context, applied format.Seq) error {
	sent := l.clock.Boot()
	var out Listing
	after := format.AfterKey(format.CheckpointPrefix, applied)
	for first := true; ; first = false {
		page, err := l.listPage(ctx, format.CheckpointPrefix, after)
		if err != nil {
			return err
		}
		if first {
			out.At = l.note(Stamp{Store: page.Time, Boot: sent})
		}
		for _, k := range page.Keys {
			if s, ok := format.ParseSeqKey(format.CheckpointPrefix, k); ok {
				out.Checkpoint = s
			}
		}
		if !page.More || len(page.Keys) == 0 {
			break
		}
		after = page.Keys[len(page.Keys)-1]
	}
	if out.At.Store.IsZero() {
		return errors.New("the store's response to a List has no date, without which the log lease can't begin")
	}
	out.From = max(applied, out.Checkpoint)
	page, err := l.listPage(ctx, format.LogPrefix, format.AfterKey(format.LogPrefix, out.From))
	if err != nil {
		return err
	}
	if page.Time.IsZero() {
		return errors.New("the store's response to a List has no date, without which the log lease can't begin")
	}
	out.LogAt, out.More = l.note(l.stamp(page.Time)), page.More
	for _, k := range page.Keys {
		if s, ok := format.ParseSeqKey(format.LogPrefix, k); ok {
			if out.First == 0 {
				out.First = s
			}
			out.Last = s
		}
	}
	l.with(func(p *Protocol) { p.Listed(out) })
	return nil
}

func (l *Log) listPage(ctx context.Context, prefix, after string) (objstore.Page, error) {
	page, err := listOnce(ctx, l.store, prefix, after)
	if err != nil {
		return page, l.judge(prefix, err)
	}
	delete(l.damaged, prefix)
	return page, nil
}

func listOnce(ctx context.Context, store objstore.Store, prefix, after string) (objstore.Page, error) {
	ctx, cancel := timeout(ctx, 0)
	defer cancel()
	page, err := store.List(ctx, prefix, after, listPageKeys)
	if err != nil {
		return page, err
	}
	if err := CheckPage(page, prefix, after); err != nil {
		return page, fmt.Errorf("list %s: %w", prefix, err)
	}
	return page, nil
}

// CheckPage returns an error for an invalid answer to a List: the keys are not ascending, a key does not
// have the prefix, or there are no keys although More is set. A caller that continues after the last key
// of such a page might miss keys, or loop for ever.
func CheckPage(page objstore.Page, prefix, after string) error {
	if page.More && len(page.Keys) == 0 {
		return errors.New("the store's response to a List has no keys, but says that there are more")
	}
	for _, k := range page.Keys {
		if k <= after || !strings.HasPrefix(k, prefix) {
			return fmt.Errorf("the store's response to a List has the key %q after %q: out of order, or not below the prefix", k, after)
		}
		after = k
	}
	return nil
}

func (l *Log) load(ctx context.Context, s format.Seq) error {
	key := format.CheckpointKey(s)
	ctx, cancel := timeout(ctx, 1<<30)
	defer cancel()
	var badStart error
	o, err := objstore.GetWholeIf(ctx, l.store, key, format.CheckpointBytesMax, func(first []byte, size int64) error {
		badStart = format.CheckCheckpointStart(first, size)
		return badStart
	})
	if errors.Is(err, objstore.ErrNotFound) {
		l.with((*Protocol).LoadMissing)
		return fmt.Errorf("a List showed a checkpoint that is gone: %w", err)
	}
	if errors.Is(err, objstore.ErrTooLarge) {
		return l.damage(key, fmt.Errorf("the newest checkpoint, %s, does not verify: %w: %w", key, format.ErrCorrupt, err))
	}
	if err != nil && badStart == nil {
		return l.judge(key, err)
	}
	var c *format.Checkpoint
	if err == nil {
		c, err = format.DecodeCheckpoint(o.Body)
	}
	if err == nil && (c.Cluster != l.cluster.ID || c.Seq != s) {
		err = foreign("checkpoint", c.Seq, c.Cluster)
	}
	if err != nil {
		return l.damage(key, fmt.Errorf("the newest checkpoint, %s, does not verify: %w", key, err))
	}
	var unread error // a page could not be read
	err = l.fold.Load(c, func(pages []format.Page) (bodies [][]byte, err error) {
		bodies, unread = l.pages(ctx, s, pages)
		return bodies, unread
	})
	if unread != nil {
		return unread
	}
	if err != nil {
		return l.stop(fmt.Errorf("load %s: %w", key, err))
	}
	clear(l.damaged)
	maps.DeleteFunc(l.read, func(r format.Seq, _ readCommit) bool { return r <= s })
	l.stats.Loads.Add(1)
	var ended Claim
	l.with(func(p *Protocol) { ended = p.Loaded(s, c.Hash) })
	if l.claim != nil {
		l.claim, l.claimParts = nil, nil
		if ended.Sent {
			return fmt.Errorf("%w: its slot %d was claimed, but then checkpoint %d was loaded, which covers that slot", ErrUnknown, ended.Seq, s)
		}
	}
	return nil
}

// foreign returns the error for an object that says that it is of another cluster or slot than its place in the bucket.
func foreign(what string, s format.Seq, id format.ClusterID) error {
	return fmt.Errorf("%w: the object says that it is the %s of slot %d of cluster %v", format.ErrForeign, what, s, id)
}

// stop halts the protocol with err, and returns err.
func (l *Log) stop(err error) error {
	l.with(func(p *Protocol) { p.stop(err) })
	return err
}

// damage counts an answer with damaged or foreign bytes for an object, and returns err. The
// network may have damaged the bytes, so only damagedReadsMax such answers in a row for the same
// object stop the broker. Reads that fail in other ways, such as a timeout, don't change the count.
func (l *Log) damage(key string, err error) error {
	l.damaged[key]++
	if l.damaged[key] >= damagedReadsMax {
		return l.stop(err)
	}
	return err
}

// judge calls damage if err says that the bytes of an object are damaged or foreign. It returns err.
func (l *Log) judge(key string, err error) error {
	if isDamage(err) {
		return l.damage(key, err)
	}
	return err
}

func isDamage(err error) bool {
	return errors.Is(err, format.ErrCorrupt) || errors.Is(err, format.ErrForeign) || errors.Is(err, format.ErrVersion) || errors.Is(err, objstore.ErrNotRegular)
}

// get reads the heads of the slots in [from, to] in parallel. Even if some reads fail, it passes the
// other answers to the protocol, so that a broker makes progress while a store has faults. It leaves out
// slots whose heads would take more memory than aheadBytesMax allows: the protocol asks for them again.
func (l *Log) get(ctx context.Context, from, to format.Seq) error {
	var (
		known   format.Seq
		settled bool
		want    []format.Seq
	)
	l.with(func(p *Protocol) {
		known, settled = p.Known(), p.Settled()
		for s := from; s <= to; s++ {
			if !p.Held(s) {
				want = append(want, s)
			}
		}
	})
	size := int64(headRead)
	if !settled || len(want) > wholeReadsMax {
		size = recoveryRead
	}
	results := make([]slotRead, len(want))
	err := l.readStarts(ctx, results, want, size, known)
	if failed := l.readLarge(ctx, results); err == nil {
		err = failed
	}
	return l.takeReads(want, results, err)
}

// takeReads passes the answers to Gets of the slots want to the protocol, and counts damaged ones. err is the error of
// these Gets, if any; takeReads returns it, or one that says what is damaged.
func (l *Log) takeReads(want []format.Seq, results []slotRead, err error) error {
	for i, r := range results {
		switch key := format.LogKey(want[i]); {
		case r.err != nil:
			err = l.damage(key, r.err)
		case r.Seq != 0:
			delete(l.damaged, key)
		}
	}
	// Pass the answers to the protocol in the order of their dates. In another order, the store's
	// clock would seem to step back.
	slices.SortFunc(results, func(a, b slotRead) int { return a.At.Store.Compare(b.At.Store) })
	for _, r := range results {
		if r.Seq == 0 {
			continue // the read failed, or the slot was left out
		}
		if r.Found {
			l.read[r.Seq] = r.readCommit
		}
		l.note(r.At)
		l.with(func(p *Protocol) { p.Answered(r.Answer) })
	}
	return err
}

// slotRead is what get has read of a slot.
type slotRead struct {
	Answer // the zero Answer if the read failed, or the slot was left out
	readCommit
	start CommitStart // if the rest of the head must still be read
	err   error       // an error about damaged bytes
}

// readStarts sends the first Get for each of the slots want, and decodes the heads that these read whole. A 404
// is an answer, and no error.
func (l *Log) readStarts(ctx context.Context, results []slotRead, want []format.Seq, size int64, known format.Seq) error {
	var g errgroup.Group
	for i, s := range want {
		g.Go(func() error {
			begin := time.Now()
			r := &results[i]
			err := l.readSlot(ctx, r, s, size, known)
			if i == 0 && (r.Found || r.start.Body != nil) {
				l.turns.measured(time.Since(begin))
			}
			return err
		})
	}
	return g.Wait()
}

// readSlot sends the first Get for slot s, and decodes the head if that reads it whole. A 404 is an answer, and no error.
func (l *Log) readSlot(ctx context.Context, r *slotRead, s format.Seq, size int64, known format.Seq) error {
	start, at, err := l.readStart(ctx, s, size)
	if isDamage(err) {
		r.err = err
	}
	if err != nil && !errors.Is(err, objstore.ErrNotFound) {
		return err
	}
	r.Answer = Answer{Seq: s, At: l.stamp(at), Known: known}
	if r.start = start; err == nil && start.Whole() {
		return l.readRest(ctx, r)
	}
	return nil
}

// readLarge reads the heads that are larger than the first Gets, as far as aheadBytesMax allows. It leaves out
// the other slots.
func (l *Log) readLarge(ctx context.Context, results []slotRead) error {
	memory := l.aheadBytes()
	for i := range results {
		memory += results[i].memory
	}
	var g errgroup.Group
	for i := range results {
		r := &results[i]
		if r.start.Body == nil {
			continue
		}
		// The first slot is the next one to apply, so it must be read even if it exceeds the bound.
		need := r.start.Memory()
		if i > 0 && memory+need > aheadBytesMax {
			*r = slotRead{}
			continue
		}
		memory += need
		g.Go(func() error { return l.readRest(ctx, r) })
	}
	return g.Wait()
}

// readRest reads the head that begins with r.start, and adds it to r.
func (l *Log) readRest(ctx context.Context, r *slotRead) error {
	start := r.start
	r.start = CommitStart{}
	c, object, err := l.readHead(ctx, r.Seq, start)
	if err != nil {
		r.Answer = Answer{}
		if isDamage(err) {
			r.err = err
		}
		return err
	}
	r.Found, r.Hash, r.Prev = true, c.Hash, c.Prev
	r.readCommit = readCommit{c, object, start.Memory()}
	return nil
}

// aheadBytes returns how much memory the commits take that are read and not applied yet.
func (l *Log) aheadBytes() (sum int64) {
	for _, r := range l.read {
		sum += r.memory
	}
	return sum
}

// readStart gets the first size bytes of slot s. The returned time is the date of the store's answer; an
// answer that is ErrNotFound has a date too.
func (l *Log) readStart(ctx context.Context, s format.Seq, size int64) (CommitStart, time.Time, error) {
	key := format.LogKey(s)
	ctx, cancel := timeout(ctx, size)
	defer cancel()
	o, err := l.store.Get(ctx, key, 0, size)
	if err != nil {
		return CommitStart{}, o.Time, err
	}
	start, err := StartCommit(o)
	if err != nil {
		return CommitStart{}, o.Time, fmt.Errorf("%s: %w", key, err)
	}
	return start, o.Time, nil
}

// readHead returns the head of slot s, which begins with start. If start has less than the head, readHead gets
// the head. If the whole object was read, readHead also returns the object.
func (l *Log) readHead(ctx context.Context, s format.Seq, start CommitStart) (*format.Commit, []byte, error) {
	key, body := format.LogKey(s), start.Body
	if !start.Whole() {
		ctx, cancel := timeout(ctx, start.End())
		defer cancel()
		o, err := l.store.Get(ctx, key, 0, start.End()) // not only the rest, so that no copy is needed
		if err != nil {
			return nil, nil, err
		}
		body = o.Body
	}
	c, err := l.decode(body, start.Size)
	if err == nil && c.Seq != s {
		err = foreign("commit", c.Seq, c.Cluster)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", key, err)
	}
	if int64(len(body)) < start.Size {
		body = nil
	}
	return c, body, nil
}

// decode reads the head of a commit, and checks that it belongs to this log and to an object of that size.
func (l *Log) decode(body []byte, size int64) (*format.Commit, error) {
	c, err := format.DecodeCommit(body)
	switch {
	case err != nil:
		return nil, err
	case c.Cluster != l.cluster.ID:
		return nil, foreign("commit", c.Seq, c.Cluster)
	case c.Size() != size:
		return nil, format.Corrupt("the object has %d bytes instead of %d", size, c.Size())
	}
	return c, nil
}

// create sends the claim, and waits for the answer. If another broker says meanwhile that it has written slot s, create
// cancels the request. The claim has lost then, unless the store still answers that it has created the claim's object.
func (l *Log) create(ctx context.Context, s format.Seq) error {
	key, hash := format.LogKey(s), l.claim.Hash
	ctx, cancel := timeout(ctx, l.claim.Size())
	defer cancel()
	begin := time.Now()
	r, beaten := l.sendClaim(ctx, cancel, key)
	if r.err == nil || errors.Is(r.err, objstore.ErrExists) {
		l.turns.measured(time.Since(begin))
	}
	switch {
	case r.err == nil:
		at := l.note(l.stamp(r.date))
		l.read[s] = readCommit{commit: l.claim}
		l.with(func(p *Protocol) { p.Created(s, hash, at) })
		return nil
	case errors.Is(r.err, objstore.ErrExists):
		at := l.note(l.stamp(r.date))
		l.with(func(p *Protocol) { p.Exists(s, at) })
		return nil
	case beaten:
		return nil
	}
	if errors.Is(r.err, objstore.ErrFull) && !l.unsure { // no Create of the claim has done anything, nor will one
		l.with((*Protocol).Unsent)
		return r.err
	}
	l.unsure = true
	l.stats.UnknownCreates.Add(1)
	return l.judge(key, r.err)
}

// sendClaim creates the claim's object. beaten is true if another broker says meanwhile that it has written that slot.
// If no other broker is connected, sendClaim calls the store in the caller's goroutine: a fast store takes less time
// than the handover of its answer between goroutines.
func (l *Log) sendClaim(ctx context.Context, cancel context.CancelFunc, key string) (r created, beaten bool) {
	parts := l.claimParts
	if l.peers == nil || !l.peers.Any() {
		r.date, r.err = l.store.Create(ctx, key, parts...)
		return r, false
	}
	done := make(chan created, 1)
	go func() {
		t, err := l.store.Create(ctx, key, parts...)
		done <- created{t, err}
	}()
	r, beaten = l.awaitCreated(done)
	if beaten {
		cancel()
		r = <-done
	}
	return r, beaten
}

// created is the answer to a Create.
type created struct {
	date time.Time
	err  error
}

// awaitCreated waits for the answer to the Create of the claim. It returns without the answer, and true, if another broker
// says that it has written that slot.
func (l *Log) awaitCreated(done <-chan created) (created, bool) {
	for {
		select {
		case r := <-done:
			return r, false
		case <-l.inbox.heard:
			l.takeTold()
			if l.canApply() {
				return created{}, true
			}
		}
	}
}

func (l *Log) apply(s format.Seq) error {
	r := l.read[s]
	delete(l.read, s)
	own := l.claim != nil && r.commit.Hash == l.claim.Hash
	if own {
		r.commit = l.claim // r.commit may be another *Commit, decoded from the store's answer
	}
	l.with(func(p *Protocol) { l.byWire = p.answer(s).told })
	if err := l.fold.Apply(r.commit, r.object); err != nil {
		return l.stop(fmt.Errorf("apply %s: %w", format.LogKey(s), err))
	}
	recovered := l.settled()
	var date time.Time
	l.with(func(p *Protocol) {
		date = p.answer(s).At.Store
		l.wonLast = p.Applied()
	})
	if own && l.peers != nil {
		l.peers.Write(l.claimParts[0], l.claimParts[1:], l.claim.Size(), date)
	}
	if recovered {
		writer := format.SessionID{}
		if m := r.commit.Mark(); m != nil {
			writer = m.Session
		}
		handsOver := l.takes(writer)
		l.apart = !own && !handsOver && !l.hears(writer)
		l.turns.applied(s, r.commit, own, handsOver, l.now())
		if !own && !handsOver {
			l.rival, l.rivalAt = writer, l.clock.Boot()
		}
	}
	if !own {
		l.stats.ForeignCommits.Add(1)
	}
	return nil
}
