package budget

import (
	"maps"
	"time"
)

// How much of a share each reservation may have, and which one is too slow.

// weight returns how many bytes r's holder would have if r got n more bytes.
func (s *share) weight(r *Reservation, n int64) int64 { return r.account.used + n }

// mayHave tells whether the limit of r's holder allows n more bytes for r. It does not check whether there
// is room.
func (s *share) mayHave(r *Reservation, n int64) bool { return n <= s.allowance(r) }

// allowance returns how many more bytes r may take, as far as the limit of its holder goes. A holder has no limit
// if only r has memory of the share, or if r can be revoked, is not for a response, and its holder is not
// confined. Otherwise the limit is the holder's part of the share. In the share [Answers], a confined holder
// may take more memory only as long as all holders together then use at most half of the share.
func (s *share) allowance(r *Reservation) int64 {
	confined := r.account.confined
	switch {
	case s.used == r.held || !r.response && r.revoke != nil && !confined:
		return s.limit
	case s.name == Answers && confined:
		return min(s.part()-s.weight(r, 0), s.limit/2-(s.used-s.leaving))
	}
	return s.part() - s.weight(r, 0)
}

// part returns how many bytes of the share are the part of each holder: the share divided by one more than the
// number of holders, or three quarters of it if there is only one. So a holder that comes later finds room at once,
// although all others have their whole part. In Answers, confined holders don't count.
func (s *share) part() int64 {
	n := len(s.accounts)
	if s.name == Answers {
		n -= s.limited
	}
	if n > 1 {
		return s.limit / int64(n+1)
	}
	return s.alone()
}

// slowest returns the reservation of the slow client that is furthest behind, or nil if no client is slow.
func (s *share) slowest() (found *Reservation) {
	var most time.Duration
	now := time.Now()
	for v := range s.holding {
		if behind := v.behind(now); behind > most {
			found, most = v, behind
		}
	}
	return found
}

// behind returns by how much the client of a response is too slow.
func (r *Reservation) behind(now time.Time) time.Duration {
	if !r.response || r.begun.IsZero() {
		return 0
	}
	return r.lateness(now) - answerGrace
}

// lateness returns how much longer the client took for the bytes that it has taken than it should. If the client has
// ended the connection (broken), all of the time counts, since the bytes may have reached only the kernel's buffers.
func (r *Reservation) lateness(now time.Time) time.Duration {
	if r.broken {
		return now.Sub(r.begun)
	}
	rate := max(answerRate, float64(r.held)/answerTime.Seconds())
	return now.Sub(r.begun) - time.Duration(float64(r.sent)/rate*float64(time.Second))
}

// sum adds to the lateness of r's holder when a response ends, and confines the holder if it was late for more than
// answerGrace. r still holds the memory of the response.
func (s *share) sum(r *Reservation) {
	now := time.Now()
	if !r.response || r.begun.IsZero() || r.lateness(now) <= 0 {
		return
	}
	l, known := s.late[r.holder]
	if !known && len(s.late) >= confinedMax {
		maps.DeleteFunc(s.late, func(_ Holder, l lateness) bool { return now.Sub(l.since) > confinedFor })
		if len(s.late) >= confinedMax {
			return
		}
	}
	if !known || now.Sub(l.since) > confinedFor {
		l = lateness{since: now}
	}
	if l.sum += r.lateness(now); l.sum <= answerGrace {
		s.late[r.holder] = l
		return
	}
	delete(s.late, r.holder)
	s.confine(r.holder)
}

func (s *share) alone() int64 { return s.limit / 4 * 3 }

// confine limits a holder to its part for confinedFor.
func (s *share) confine(h Holder) {
	if _, again := s.confined[h]; !again && len(s.confined) >= confinedMax {
		return
	}
	until := time.Now().Add(confinedFor)
	s.confined[h] = until
	s.endings = append(s.endings, ending{h, until})
	s.setConfined(s.accounts[h], true)
}

// release ends the confinements whose time has passed.
func (s *share) release() {
	now := time.Now()
	for len(s.endings) > 0 && !now.Before(s.endings[0].at) {
		x := s.endings[0]
		s.endings = s.endings[1:]
		if s.confined[x.holder].Equal(x.at) {
			delete(s.confined, x.holder)
			s.setConfined(s.accounts[x.holder], false)
		}
	}
}

// setConfined marks the account of a holder, which is nil if the holder neither holds memory nor waits.
func (s *share) setConfined(a *account, confined bool) {
	if a == nil || a.confined == confined {
		return
	}
	a.confined = confined
	if confined {
		s.limited++
	} else {
		s.limited--
	}
}
