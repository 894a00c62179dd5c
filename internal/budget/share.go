package budget

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// Share is a part of a budget. It holds requests while clients send them, and answers while clients read
// them. Slow clients may need any length of time for this.
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

// String returns the share's name in metrics and error messages.
func (s Share) String() string { return [...]string{"small", "bodies", "answers"}[s] }

// Holder says on whose behalf memory is held: an API key, or the network address of a caller without
// a key. Many callers may have the same address, such as the address of a proxy. API keys tell such
// callers apart.
type Holder struct {
	Key     uint64       // 0: no key
	Address netip.Prefix // zero: unknown, or Key is set
}

const (
	// shareWaitMin is how long a request waits before the share ends other requests to make room. It is
	// smallWaitMin for the share of small requests, since a small request usually takes only some milliseconds,
	// and for the share of large responses, which ends only those of slow clients.
	shareWaitMin = time.Second
	smallWaitMin = 100 * time.Millisecond
	// confinedFor is how long a holder is confined after the share ended a request of that holder in favor
	// of a holder with less memory. A confined holder may have only its part of the share: see the method
	// part.
	confinedFor = time.Minute
	// confinedMax is how many holders can be confined at a time, and of how many holders the share knows how late
	// their clients were.
	confinedMax = 4096
	// The client of a response is slow, and other requests may get the memory of its response, if the client is behind
	// the following pace by more than answerGrace: the pace that takes the whole response in answerTime, or answerRate
	// (bytes per second) if that is faster. A holder whose clients were late by more than answerGrace, in all
	// responses of confinedFor together, is confined: otherwise a client could hold memory again and again if it
	// always ended its connection just before answerGrace had passed.
	answerGrace = time.Second
	answerTime  = 4 * time.Second
	answerRate  = 1 << 20
)

// share is memory that holders compete for. While there is room, every holder gets what it asks
// for, except that a confined holder gets at most its part: see the methods mayHave and part. When
// the share is full, requests wait. The share first serves the request whose holder would then have
// the least memory. If this request has waited for s.patience, the share ends another request: a
// request of a holder that has more memory, or else a request that also waits and that began later.
// So some requests can always finish, and no request has to wait for a client that has stopped
// sending or reading.
//
// Responses differ in two ways, since a response that ends early has cost the client and the broker all its work.
// First, every holder gets at most its part. Second, the share ends a response only if the client is slow: see the
// method behind. Before any other request, it ends the response of the slowest client.
type share struct {
	name     Share
	limit    int64
	patience time.Duration // how long a request waits before the share ends other requests to make room
	ceiling  int64         // the share grows only while the whole budget has at most this many bytes in use

	used     int64
	leaving  int64 // part of used: held by requests that were told to end
	accounts map[Holder]*account
	limited  int                       // accounts of confined holders
	confined map[Holder]time.Time      // until when a holder may have only its part of the share
	endings  []ending                  // when confinements end, in order
	late     map[Holder]lateness       // of holders that are not confined
	holding  map[*Reservation]struct{} // reservations that can be revoked
	waiting  []*Reservation
}

// ending is when a holder's confinement ends, unless the holder was confined again.
type ending struct {
	holder Holder
	at     time.Time
}

// lateness is how late the clients of a holder were, in all responses since the given time.
type lateness struct {
	sum   time.Duration
	since time.Time
}

// account is what one holder has of a share.
type account struct {
	used     int64
	requests int          // requests that hold memory or wait
	confined bool         // the holder may have only its part of the share
	oldest   *Reservation // for the method next alone: the oldest waiting request that may have more memory
}

// Reservation is the memory of a share that one request holds. It may grow and shrink. A Reservation is safe
// for concurrent use. The zero Reservation can't be used.
type Reservation struct {
	b      *Budget
	share  *share
	holder Holder
	began  time.Time
	revoke func()

	response bool // the memory is for a response

	// Guarded by Budget.mu.
	account *account // of the holder; nil while the reservation neither holds memory nor waits
	held    int64
	wants   int64         // bytes that the reservation waits for; 0 if it does not wait
	since   time.Time     // when the reservation began to wait
	ready   chan struct{} // while the reservation waits: closed when it gets the bytes, or is revoked
	ended   error         // why the reservation was revoked; nil if it was not
	begun   time.Time     // when the broker began to send the response that the memory is for
	sent    int64         // bytes of that response that the client has taken
	broken  bool          // the client ended the connection before it had taken the response
}

func (s *share) setUp(name Share, limit int64) {
	parts := [...]struct{ limit, ceiling int64 }{Small: {1, 14}, Bodies: {7, 12}, Answers: {4, 13}}[name]
	*s = share{
		name: name, limit: limit / 16 * parts.limit, ceiling: limit / 16 * parts.ceiling, patience: shareWaitMin,
		accounts: map[Holder]*account{}, confined: map[Holder]time.Time{}, late: map[Holder]lateness{}, holding: map[*Reservation]struct{}{},
	}
	if name != Bodies {
		s.patience = smallWaitMin
	}
}

// Reservation returns a reservation of a share, with no bytes yet, for one request of a holder. The
// budget may take the memory back for another request: it ends a waiting call of Grow with a
// [*FullError], or else calls revoke, once. Then the request must end and give back its memory. revoke
// must not block. If revoke is nil, the budget can't take the memory back.
func (b *Budget) Reservation(s Share, of Holder, revoke func()) *Reservation {
	if of.Key != 0 {
		of.Address = netip.Prefix{}
	}
	return &Reservation{b: b, share: &b.shares[s], holder: of, began: time.Now(), revoke: revoke, response: s == Answers}
}

// ForResponse says that r is for a response. The budget then calls revoke only if the client is slow: see
// [Reservation.Sent]. All reservations of Answers are for responses. Call ForResponse before r gets memory. It
// returns r.
func (r *Reservation) ForResponse() *Reservation {
	r.response = true
	return r
}

// Sent tells the budget that the client has taken n more bytes of the response that the memory is for. The first
// call, with n = 0, comes when the broker begins to send. Until then, the client doesn't count as slow.
func (r *Reservation) Sent(n int64) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if r.begun.IsZero() {
		r.begun = time.Now()
	}
	r.sent += n
}

// Broken tells the budget that the client has ended the connection before it had taken the response.
func (r *Reservation) Broken() {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.broken = true
}

// ShareBytes returns how many bytes of a share are in use, and how many bytes the share has.
func (b *Budget) ShareBytes(s Share) (used, limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.shares[s].used, b.shares[s].limit
}

// ShareAlone returns how many bytes of a share a holder should use at most while no other holder uses the
// share. A request that can work with less memory should not take more than that, so that later requests
// have room.
func (b *Budget) ShareAlone(s Share) int64 { return b.shares[s].alone() }

// Grow takes n more bytes. It waits up to 5 s for room, then returns a [*FullError]. If ctx ends
// first, it returns the context's error. In both cases the reservation keeps the bytes that it has.
func (r *Reservation) Grow(ctx context.Context, n int64) error {
	return r.grow(ctx, n, waitMax)
}

// GrowSoon does the same as [Reservation.Grow], but waits for at most d.
func (r *Reservation) GrowSoon(ctx context.Context, n int64, d time.Duration) error {
	return r.grow(ctx, n, min(d, waitMax))
}

// GrowNow takes as many bytes as there is room for now, and as the limit of the holder allows, but not more than
// the parameter most, and returns how many it took. It takes none if these are fewer than the parameter least, if
// a waiting request may have the room, or if r was revoked.
func (r *Reservation) GrowNow(least, most int64) int64 {
	b, s := r.b, r.share
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.ended != nil || s.next() != nil {
		return 0
	}
	s.enter(r)
	n := min(most, s.limit-s.used, s.ceiling-b.used, s.allowance(r))
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
	b.serveShareLocked(s) // serves r at once if r is the next request to serve, and there is room for r
	b.resize(b.limit - b.used)
	b.mu.Unlock()

	end, help := time.NewTimer(patience), time.NewTimer(s.patience)
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
			help.Reset(s.patience / 4)
		case <-end.C:
			return b.stopWaiting(r, nil)
		case <-ctx.Done():
			return b.stopWaiting(r, ctx.Err())
		}
	}
}

// stopWaiting ends the wait of r, and returns err, or a FullError if err is nil. If r has got its bytes
// meanwhile, stopWaiting returns nil. If r was revoked meanwhile, it returns why.
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
	b.serveLocked() // there may be room for another request that needs fewer bytes than r
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
	if n == r.held {
		s.sum(r)
	}
	r.held -= n
	s.used -= n
	b.used -= n
	if r.ended != nil {
		s.leaving -= n
	}
	r.account.used -= n
	s.exit(r)
	b.serveLocked()
}

// Ended returns a [*FullError] that says why the budget has revoked the reservation, or nil if the budget
// has not revoked it.
func (r *Reservation) Ended() error {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	return r.ended
}

// mayGrowLocked tells whether r may take n more bytes: there is room, and the limit of r's holder allows it.
func (b *Budget) mayGrowLocked(r *Reservation, n int64) bool {
	s := r.share
	return s.used+n <= s.limit && b.used+n <= s.ceiling && s.mayHave(r, n)
}

func (b *Budget) growLocked(r *Reservation, n int64) {
	s := r.share
	b.used += n
	s.used += n
	r.held += n
	r.account.used += n
	if r.revoke != nil {
		s.holding[r] = struct{}{}
	}
}

// serveShareLocked gives memory to waiting requests while there is room, in the order that the method next
// decides.
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

// next returns the waiting request to serve next, or nil if no waiting request may have more memory. The
// candidates are the oldest waiting requests of each holder. next returns the candidate whose holder would
// have the least memory after being served. It does not prefer small requests: otherwise, new requests
// would take the memory that old ones need in order to finish.
func (s *share) next() *Reservation {
	s.release()
	for _, r := range s.waiting {
		r.account.oldest = nil
	}
	for _, r := range s.waiting {
		if x := r.account.oldest; s.mayHave(r, r.wants) && (x == nil || r.began.Before(x.began)) {
			r.account.oldest = r
		}
	}
	var best *Reservation
	var least int64
	for _, r := range s.waiting {
		if r.account.oldest != r {
			continue
		}
		if n := s.weight(r, r.wants); best == nil || n < least || n == least && r.began.Before(best.began) {
			best, least = r, n
		}
	}
	return best
}

// takeBackFor revokes reservations if the request to serve next has waited for s.patience. Every
// waiting request calls takeBackFor. But only the call of the first request in s.waiting has an effect,
// so that not every request examines all reservations.
func (b *Budget) takeBackFor(waiting *Reservation) {
	b.mu.Lock()
	s := waiting.share
	if len(s.waiting) == 0 || s.waiting[0] != waiting {
		b.mu.Unlock()
		return
	}
	var revoked []func()
	if r := s.claimant(); r != nil && time.Since(r.since) >= s.patience && b.used-s.used+r.wants <= s.ceiling {
		for s.used-s.leaving+r.wants > s.limit || b.used-s.leaving+r.wants > s.ceiling || !s.mayHave(r, r.wants) {
			v, unfair := s.victim(r)
			if v == nil {
				break
			}
			if unfair {
				s.confine(v.holder)
			}
			v.ended = &FullError{Detail: fmt.Sprintf("the memory for %s is full (%d of %d bytes), and the broker gives the memory of this request to another request that waits", s.name.what(), s.used, s.limit), Limit: s.limit}
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

// claimant returns the waiting request for which the share may end other requests, or nil if there is none. In
// Answers, that can be a request that may have no more memory: its holder's part grows when the share ends the
// responses of slow clients. Requests of confined holders come last.
func (s *share) claimant() *Reservation {
	if r := s.next(); r != nil || s.name != Answers {
		return r
	}
	var confined *Reservation
	for _, r := range s.waiting {
		switch {
		case s.weight(r, r.wants) > s.alone() || r.account.confined && r.wants > s.limit/2:
		case !r.account.confined:
			return r
		case confined == nil:
			confined = r
		}
	}
	return confined
}

// victim returns the reservation to revoke so that r gets memory, or nil if there is none. A reservation
// can be revoked if its holder has more memory than r's holder would have with the bytes that r wants, or
// if the reservation also waits and began after r. Of these reservations, victim chooses those of the
// holder with the most memory, and of these it returns the reservation that began last. unfair tells
// whether that holder has more memory than r's holder would have.
//
// If there are responses with slow clients, victim returns the one whose client is furthest behind. It returns no
// other response.
func (s *share) victim(r *Reservation) (found *Reservation, unfair bool) {
	if v := s.slowest(); v != nil {
		return v, true
	}
	mine, most := s.weight(r, r.wants), int64(-1)
	for v := range s.holding {
		n := s.weight(v, 0)
		if v == r || v.response || n <= mine && (v.wants == 0 || !v.began.After(r.began)) {
			continue
		}
		if found == nil || n > most || n == most && v.began.After(found.began) {
			found, most = v, n
		}
	}
	return found, most > mine
}

// what describes, for error messages, what the share is for.
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

// enter counts r in the account of r's holder. The caller calls enter before r begins to hold memory or to
// wait. If r already holds memory or waits, it is counted already, and enter does nothing.
func (s *share) enter(r *Reservation) {
	if r.account != nil {
		return
	}
	a := s.accounts[r.holder]
	if a == nil {
		a = &account{}
		s.accounts[r.holder] = a
		_, confined := s.confined[r.holder]
		s.setConfined(a, confined)
	}
	a.requests++
	r.account = a
}

// exit removes r from the account of r's holder if r neither holds memory nor waits. Call exit when r
// has given back memory or has stopped waiting.
func (s *share) exit(r *Reservation) {
	if r.account == nil || r.held > 0 || r.wants > 0 {
		return
	}
	a := r.account
	r.account = nil
	delete(s.holding, r)
	if a.requests--; a.requests == 0 {
		s.setConfined(a, false)
		delete(s.accounts, r.holder)
	}
}
