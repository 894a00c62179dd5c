package budget

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// Share is a part of a budget for what clients make a broker hold, for as long as they send or
// read slowly.
type Share int

// The shares.
const (
	// Small is for requests and answers that take little, so that large ones
	// never keep them waiting.
	Small Share = iota
	// Bodies is for large requests while the broker receives them.
	Bodies
	// Answers is for large answers while clients read them.
	Answers
	// ShareCount is how many shares there are.
	ShareCount
)

// String returns the share's name in metrics and refusals.
func (s Share) String() string { return [...]string{"small", "bodies", "answers"}[s] }

// Holder is the account that memory is charged to: an API key, or the address of a caller
// without one. Many callers may share an address, such as a proxy's; keys tell them apart.
type Holder struct {
	Key     uint64       // 0: no key
	Address netip.Prefix // zero: unknown, or Key is set
}

const (
	// shareWaitMin is how long a request waits before memory is taken from others for it.
	shareWaitMin = time.Second
	// confinedFor is how long a holder that memory was taken from gets no more than its part.
	confinedFor = time.Minute
	// confinedMax bounds how many such holders are remembered.
	confinedMax = 4096
)

// share is what its holders compete for. While there is room, all holders
// get what they ask for. When the share is full, the holder that has least is served first,
// and after shareWaitMin the share takes memory from a holder that has more than that one
// would have: it ends a request. Among equals those that wait too, and began later, are ended. So some
// are always able to end, and nobody has to wait for a client that does not go on.
type share struct {
	name    Share
	limit   int64
	ceiling int64 // of all that is used of the budget

	used     int64
	leaving  int64 // of used: held by requests that were ended
	accounts map[Holder]account
	confined map[Holder]time.Time      // until when
	holding  map[*Reservation]struct{} // those from which memory can be taken
	waiting  []*Reservation
}

type account struct {
	used     int64
	requests int // that hold something, or wait
}

// Reservation is memory that one request holds, and that may grow. It is safe for
// concurrent use; the zero Reservation is not.
type Reservation struct {
	b      *Budget
	share  *share
	holder Holder
	began  time.Time
	revoke func()

	// Guarded by Budget.mu.
	held  int64
	wants int64         // while it waits
	since time.Time     // it waits
	ready chan struct{} // while it waits: closed when it has got that, or is ended
	ended error
}

func (s *share) setUp(name Share, limit int64) {
	parts := [...]struct{ limit, ceiling int64 }{Small: {1, 14}, Bodies: {7, 12}, Answers: {4, 13}}[name]
	*s = share{
		name: name, limit: limit / 16 * parts.limit, ceiling: limit / 16 * parts.ceiling,
		accounts: map[Holder]account{}, confined: map[Holder]time.Time{}, holding: map[*Reservation]struct{}{},
	}
}

// Reservation returns a reservation of a share, which holds nothing yet, for a request of that
// holder. If others need the memory more, the budget calls revoke, once, and the request must end
// and give back its memory. revoke must not block. A nil revoke means that the budget can't take
// the memory back.
func (b *Budget) Reservation(s Share, of Holder, revoke func()) *Reservation {
	if of.Key != 0 {
		of.Address = netip.Prefix{}
	}
	return &Reservation{b: b, share: &b.shares[s], holder: of, began: time.Now(), revoke: revoke}
}

// ShareBytes returns how much of a share is held, and how much may be.
func (b *Budget) ShareBytes(s Share) (used, limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.shares[s].used, b.shares[s].limit
}

// ShareAlone returns how much of a share a holder may have while no other holder wants any. A
// request that can limit its use asks for no more, and leaves the rest to later ones.
func (b *Budget) ShareAlone(s Share) int64 { return b.shares[s].alone() }

// Grow takes n more bytes. It waits some seconds for room, then returns a [*FullError]; if ctx
// ends first, the context's error. In both cases the reservation keeps what it has.
func (r *Reservation) Grow(ctx context.Context, n int64) error {
	return r.grow(ctx, n, waitMax)
}

// GrowSoon is [Reservation.Grow] that waits for d at most.
func (r *Reservation) GrowSoon(ctx context.Context, n int64, d time.Duration) error {
	return r.grow(ctx, n, min(d, waitMax))
}

// GrowNow takes up to most bytes, as many as there is room for now, and returns how many. It takes
// nothing if there is room for fewer than least, or if other requests wait for room.
func (r *Reservation) GrowNow(least, most int64) int64 {
	b, s := r.b, r.share
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.ended != nil || s.next() != nil {
		return 0
	}
	s.enter(r)
	n := min(most, s.limit-s.used, s.ceiling-b.used)
	if !s.mayHave(r, n) {
		n = min(n, s.part()-s.weight(r, 0))
	}
	if n < max(least, 1) {
		s.exit(r)
		return 0
	}
	b.growLocked(r, n)
	b.resize(b.limit - b.used)
	return n
}

func (r *Reservation) grow(ctx context.Context, n int64, patience time.Duration) error {
	b, s := r.b, r.share
	if n <= 0 {
		return r.Ended()
	}
	b.mu.Lock()
	if r.ended != nil || r.held+n > s.limit {
		defer b.mu.Unlock()
		if r.ended != nil {
			return r.ended
		}
		return s.refusal(n)
	}
	s.enter(r)
	if len(s.waiting) == 0 && b.mayGrowLocked(r, n) {
		b.growLocked(r, n)
		b.resize(b.limit - b.used)
		b.mu.Unlock()
		return nil
	}
	if patience <= 0 {
		defer b.mu.Unlock()
		s.exit(r)
		return s.refusal(n)
	}
	ready := make(chan struct{})
	r.wants, r.since, r.ready = n, time.Now(), ready
	s.waiting = append(s.waiting, r)
	b.serveShareLocked(s) // those who wait may not be allowed more
	b.resize(b.limit - b.used)
	b.mu.Unlock()

	end, help := time.NewTimer(patience), time.NewTimer(shareWaitMin)
	defer end.Stop()
	defer help.Stop()
	for {
		select {
		case <-ready:
			b.mu.Lock()
			defer b.mu.Unlock()
			return r.ended
		case <-help.C:
			b.takeBackFor(r)
			help.Reset(shareWaitMin / 4)
		case <-end.C:
			return b.stopWaiting(r, nil)
		case <-ctx.Done():
			return b.stopWaiting(r, ctx.Err())
		}
	}
}

// stopWaiting returns err, or that there was no room; nil if the reservation has grown.
func (b *Budget) stopWaiting(r *Reservation, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.wants == 0 {
		return r.ended
	}
	if err == nil {
		err = r.share.refusal(r.wants)
	}
	r.share.dequeue(r)
	b.serveLocked() // those behind may be smaller
	return err
}

// Shrink gives n bytes back.
func (r *Reservation) Shrink(n int64) {
	if n == 0 {
		return
	}
	b, s := r.b, r.share
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > r.held {
		panic("budget: a reservation gives back more than it has")
	}
	r.held -= n
	s.used -= n
	b.used -= n
	if r.ended != nil {
		s.leaving -= n
	}
	s.count(r.holder, -n, 0)
	s.exit(r)
	b.serveLocked()
}

// Ended returns why the budget has taken the reservation back, a [*FullError], or nil if it has not.
func (r *Reservation) Ended() error {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	return r.ended
}

// mayGrowLocked tells whether there is room for n bytes more, and r's holder may have them.
func (b *Budget) mayGrowLocked(r *Reservation, n int64) bool {
	s := r.share
	return s.used+n <= s.limit && b.used+n <= s.ceiling && s.mayHave(r, n)
}

func (b *Budget) growLocked(r *Reservation, n int64) {
	s := r.share
	b.used += n
	s.used += n
	r.held += n
	s.count(r.holder, n, 0)
	if r.revoke != nil {
		s.holding[r] = struct{}{}
	}
}

// serveShareLocked gives those who wait what there is room for, the holders of least first.
func (b *Budget) serveShareLocked(s *share) {
	for len(s.waiting) > 0 && s.used < s.limit && b.used < s.ceiling {
		r := s.next()
		if r == nil || !b.mayGrowLocked(r, r.wants) {
			return
		}
		n := r.wants
		ready := r.ready
		s.dequeue(r)
		s.enter(r) // dequeue may have been the last to count it
		b.growLocked(r, n)
		close(ready)
	}
}

// next returns whose turn it is, of those who may have more: the oldest request of the
// holder that would have least. If the smallest went first, new requests would take
// what the old ones need to come to their end.
func (s *share) next() *Reservation {
	oldest := map[Holder]*Reservation{}
	for _, r := range s.waiting {
		if x := oldest[r.holder]; s.mayHave(r, r.wants) && (x == nil || r.began.Before(x.began)) {
			oldest[r.holder] = r
		}
	}
	var best *Reservation
	var least int64
	for _, r := range oldest {
		if n := s.weight(r, r.wants); best == nil || n < least || n == least && r.began.Before(best.began) {
			best, least = r, n
		}
	}
	return best
}

// takeBackFor ends requests so that the one whose turn it is gets what it waits for. Of the
// waiting requests only the first does this, since each would examine all.
func (b *Budget) takeBackFor(waiting *Reservation) {
	b.mu.Lock()
	s := waiting.share
	if len(s.waiting) == 0 || s.waiting[0] != waiting {
		b.mu.Unlock()
		return
	}
	var revoked []func()
	if r := s.next(); r != nil && time.Since(r.since) >= shareWaitMin && b.used-s.used+r.wants <= s.ceiling {
		for s.used-s.leaving+r.wants > s.limit || b.used-s.leaving+r.wants > s.ceiling {
			v, unfair := s.victim(r)
			if v == nil {
				break
			}
			if unfair {
				s.confine(v.holder)
			}
			v.ended = &FullError{Detail: fmt.Sprintf("the memory for %s is full, %d of %d bytes, and other requests wait for the memory of this one", s.name.what(), s.used, s.limit), Limit: s.limit}
			s.leaving += v.held
			delete(s.holding, v)
			if v.wants > 0 {
				ready := v.ready
				s.dequeue(v)
				close(ready)
			} else {
				revoked = append(revoked, v.revoke)
			}
		}
	}
	b.mu.Unlock()
	for _, revoke := range revoked {
		revoke()
	}
}

// victim returns the request whose memory is taken for r: of the holder that has most,
// the one that began last. unfair tells that its holder has more than r's would have.
func (s *share) victim(r *Reservation) (found *Reservation, unfair bool) {
	mine, most := s.weight(r, r.wants), int64(-1)
	for v := range s.holding {
		n := s.weight(v, 0)
		if v == r || n <= mine && (v.wants == 0 || !v.began.After(r.began)) {
			continue
		}
		if found == nil || n > most || n == most && v.began.After(found.began) {
			found, most = v, n
		}
	}
	return found, most > mine
}

// what returns the purpose of a share, for refusals.
func (s Share) what() string {
	return [...]string{"small requests", "large requests", "large answers"}[s]
}

func (s *share) refusal(n int64) error {
	return &FullError{Detail: fmt.Sprintf("no room for %d bytes: the memory for %s (share %q) has %d bytes, of which %d are taken", n, s.name.what(), s.name, s.limit, s.used), Limit: s.limit}
}

func (s *share) dequeue(r *Reservation) {
	for i, x := range s.waiting {
		if x == r {
			s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
			break
		}
	}
	r.wants, r.ready = 0, nil
	s.exit(r)
}

// enter counts a request that begins to hold something, or to wait.
func (s *share) enter(r *Reservation) {
	if r.held == 0 && r.wants == 0 {
		s.count(r.holder, 0, 1)
	}
}

// exit is its opposite.
func (s *share) exit(r *Reservation) {
	if r.held == 0 && r.wants == 0 {
		s.count(r.holder, 0, -1)
		delete(s.holding, r)
	}
}

func (s *share) count(h Holder, bytes int64, requests int) {
	x := s.accounts[h]
	x.used += bytes
	x.requests += requests
	if x.requests == 0 {
		delete(s.accounts, h)
		return
	}
	s.accounts[h] = x
}

// weight is what r's holder would have with n bytes more.
func (s *share) weight(r *Reservation, n int64) int64 { return s.accounts[r.holder].used + n }

// mayHave tells whether r's holder may have n bytes more, if there is room. What can't be
// taken back keeps to the holder's part from the start.
func (s *share) mayHave(r *Reservation, n int64) bool {
	if s.used == r.held || r.revoke != nil && !s.isConfined(r.holder) {
		return true // nobody else has any: what is larger than a part has to fit as well
	}
	return s.weight(r, n) <= s.part()
}

// part is what each holder may have where all want some: one that is alone leaves a quarter to
// those who may come.
func (s *share) part() int64 {
	if n := len(s.accounts); n > 1 {
		return s.limit / int64(n)
	}
	return s.alone()
}

func (s *share) alone() int64 { return s.limit / 4 * 3 }

func (s *share) isConfined(h Holder) bool {
	return len(s.confined) > 0 && time.Now().Before(s.confined[h])
}

// confine has a holder keep to its part for a while.
func (s *share) confine(h Holder) {
	now := time.Now()
	if len(s.confined) >= confinedMax {
		for h, until := range s.confined {
			if !now.Before(until) {
				delete(s.confined, h)
			}
		}
	}
	if len(s.confined) < confinedMax {
		s.confined[h] = now.Add(confinedFor)
	}
}
