package budget

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// Share is a part of a budget. It is for the requests and answers that a broker must hold for as long
// as clients send or read them slowly.
type Share int

// The shares.
const (
	// Small is for small requests and answers, so that large ones never keep them waiting.
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
// without a key. Many callers may share an address, such as that of a proxy; API keys
// distinguish them.
type Holder struct {
	Key     uint64       // 0: no key
	Address netip.Prefix // zero: unknown, or Key is set
}

const (
	// shareWaitMin is how long a request waits before the share ends other requests to make room.
	shareWaitMin = time.Second
	// confinedFor is how long a holder is limited to its part of the share, after the share ended one of
	// its requests in favor of a holder with less memory.
	confinedFor = time.Minute
	// confinedMax is how many holders at most a share limits to their part.
	confinedMax = 4096
)

// share is memory that holders compete for. While there is room, every holder gets what it asks
// for, unless it is limited to its part: see mayHave. When the share is full, it first serves the
// holder that would then have least memory. If the request of this holder has waited for
// shareWaitMin, the share ends a request of a holder that has more memory. If no holder has more,
// the share ends a request that also waits and began later. So some requests can always come to
// their end, and no request has to wait for a client that has stopped sending or reading.
type share struct {
	name    Share
	limit   int64
	ceiling int64 // the share does not grow if the whole budget would then have more bytes in use than this

	used     int64
	leaving  int64 // part of used: held by requests that were told to end
	accounts map[Holder]account
	confined map[Holder]time.Time      // when the limit of a holder to its part ends
	holding  map[*Reservation]struct{} // reservations that can be revoked
	waiting  []*Reservation
}

type account struct {
	used     int64
	requests int // requests that hold memory or wait
}

// Reservation is memory that one request holds, and that may grow. It is safe for
// concurrent use. The zero Reservation can't be used.
type Reservation struct {
	b      *Budget
	share  *share
	holder Holder
	began  time.Time
	revoke func()

	// Guarded by Budget.mu.
	held  int64
	wants int64         // bytes that the reservation waits for; 0 if it does not wait
	since time.Time     // when it began to wait
	ready chan struct{} // while it waits: closed when it gets the bytes, or is revoked
	ended error         // why it was revoked; nil if it was not
}

func (s *share) setUp(name Share, limit int64) {
	parts := [...]struct{ limit, ceiling int64 }{Small: {1, 14}, Bodies: {7, 12}, Answers: {4, 13}}[name]
	*s = share{
		name: name, limit: limit / 16 * parts.limit, ceiling: limit / 16 * parts.ceiling,
		accounts: map[Holder]account{}, confined: map[Holder]time.Time{}, holding: map[*Reservation]struct{}{},
	}
}

// Reservation returns a reservation of a share for a request of that holder. The reservation holds
// nothing yet. If other holders need the memory more, the budget calls revoke, once; then the request
// must end and give back its memory. revoke must not block. A nil revoke means that the budget can't
// take the memory back.
func (b *Budget) Reservation(s Share, of Holder, revoke func()) *Reservation {
	if of.Key != 0 {
		of.Address = netip.Prefix{}
	}
	return &Reservation{b: b, share: &b.shares[s], holder: of, began: time.Now(), revoke: revoke}
}

// ShareBytes returns how many bytes of a share are held, and how many may be.
func (b *Budget) ShareBytes(s Share) (used, limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.shares[s].used, b.shares[s].limit
}

// ShareAlone returns how many bytes of a share a holder may have while no other holder wants any. A
// request that can limit its use should not take more, so that later requests have room.
func (b *Budget) ShareAlone(s Share) int64 { return b.shares[s].alone() }

// Grow takes n more bytes. It waits up to 5 s for room, then returns a [*FullError]. If ctx ends
// first, it returns the context's error. In both cases the reservation keeps what it has.
func (r *Reservation) Grow(ctx context.Context, n int64) error {
	return r.grow(ctx, n, waitMax)
}

// GrowSoon is [Reservation.Grow], but waits for d at most.
func (r *Reservation) GrowSoon(ctx context.Context, n int64, d time.Duration) error {
	return r.grow(ctx, n, min(d, waitMax))
}

// GrowNow takes as many bytes as there is room for now, up to most, and returns how many it took. It
// takes none if there is room for fewer than least, or if other requests wait for room.
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
	b.serveShareLocked(s) // serves r at once if next returns it, and there is room for it
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

// stopWaiting ends the wait of r. If r no longer waits, it returns nil, or the reason for which r
// was revoked. Otherwise it returns err, or a FullError if err is nil.
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
	b.serveLocked() // other requests may need fewer bytes than r, for which there is room
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

// Ended returns why the budget has revoked the reservation, a [*FullError]; nil if it has not.
func (r *Reservation) Ended() error {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	return r.ended
}

// mayGrowLocked tells whether there is room for n more bytes, and the limit of r's holder allows
// them.
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

// serveShareLocked gives memory to waiting requests while there is room, in the order in which next
// returns them.
func (b *Budget) serveShareLocked(s *share) {
	for len(s.waiting) > 0 && s.used < s.limit && b.used < s.ceiling {
		r := s.next()
		if r == nil || !b.mayGrowLocked(r, r.wants) {
			return
		}
		n := r.wants
		ready := r.ready
		s.dequeue(r)
		s.enter(r) // dequeue may have removed r from its holder's account
		b.growLocked(r, n)
		close(ready)
	}
}

// next returns the waiting request that is served next; nil if no waiting request may have more. Only
// the oldest request of each holder counts. Of these, the one comes next whose holder would have the
// least memory once it is served. If the smallest request came next instead, new requests would take
// the memory that old ones need to come to their end.
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

// takeBackFor revokes reservations so that the request that is served next gets its memory. Each
// waiting request calls it, but it acts only for the first one in line: examining all reservations
// once is enough.
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
			v.ended = &FullError{Detail: fmt.Sprintf("the memory for %s is full (%d of %d bytes), and the broker gives the memory of this request to another one that waits", s.name.what(), s.used, s.limit), Limit: s.limit}
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

// victim returns the reservation to revoke for r; nil if there is none. Only a reservation whose
// holder has more than r's holder would have, or one that waits and began after r, can be revoked.
// Of these, victim returns the one that began last, of the holder that has most. unfair tells
// whether this holder has more than r's holder would have.
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

// what returns what a share is for, for refusals.
func (s Share) what() string {
	return [...]string{"small requests", "large requests", "large responses"}[s]
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

// enter counts r in its holder's account. Call it before r begins to hold memory or to wait. It does
// nothing if r already does one of both, since r is counted by then.
func (s *share) enter(r *Reservation) {
	if r.held == 0 && r.wants == 0 {
		s.count(r.holder, 0, 1)
	}
}

// exit removes r from its holder's account if r neither holds memory nor waits. Call it when r may
// have stopped doing so.
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

// weight returns how many bytes r's holder would have if r got n more.
func (s *share) weight(r *Reservation, n int64) int64 { return s.accounts[r.holder].used + n }

// mayHave tells whether the limit of r's holder allows r n more bytes. It does not check whether
// there is room. If the holder is confined, or r can't be revoked, the limit is the holder's part
// of the share. Otherwise, or if no other reservation has memory of the share, there is no limit.
func (s *share) mayHave(r *Reservation, n int64) bool {
	if s.used == r.held || r.revoke != nil && !s.isConfined(r.holder) {
		return true // r alone has memory of the share, or r is not limited to the holder's part
	}
	return s.weight(r, n) <= s.part()
}

// part returns how many bytes each holder may have if all holders want some. A holder that is alone
// leaves a quarter of the share to holders that may come.
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

// confine limits a holder to its part for confinedFor.
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
