package httpapi

import (
	"net/netip"
	"sync"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// A caller may fail that often at once, and once more per interval.
	attemptsBurst    = 10
	attemptsInterval = 3 * time.Second
	// So many addresses are told apart; further ones share an account.
	attemptsAddressesMax = 4096
)

// attempts counts failed attempts to authenticate, by remote address. Who fails
// with none left gets an answer that says nothing but to wait, on a connection that
// ends. A good key works all the same: many callers may share an address with one
// that fails.
type attempts struct {
	mu sync.Mutex
	// until is when an address will have all its attempts back.
	until map[netip.Prefix]time.Time
}

func newAttempts() *attempts { return &attempts{until: map[netip.Prefix]time.Time{}} }

// attemptsOf returns whose account a remote address uses: IPv6 hosts have a /64.
func attemptsOf(remote string) netip.Prefix {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{} // not TCP
	}
	a, bits := ap.Addr().Unmap().WithZone(""), 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // both fit their kind of address
	return p
}

// left tells whether an address has an attempt left.
func (a *attempts) left(from netip.Prefix) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	debt := time.Until(a.until[a.accountLocked(from)])
	return debt <= (attemptsBurst-1)*attemptsInterval
}

// failed takes an attempt from an address.
func (a *attempts) failed(from netip.Prefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if len(a.until) >= attemptsAddressesMax {
		for p, until := range a.until {
			if until.Before(now) {
				delete(a.until, p)
			}
		}
	}
	from = a.accountLocked(from)
	until := a.until[from]
	if until.Before(now) {
		until = now
	}
	a.until[from] = until.Add(attemptsInterval)
	if most := now.Add(attemptsBurst * attemptsInterval); a.until[from].After(most) {
		a.until[from] = most
	}
}

func (a *attempts) accountLocked(from netip.Prefix) netip.Prefix {
	if _, known := a.until[from]; !known && len(a.until) >= attemptsAddressesMax {
		return netip.Prefix{}
	}
	return from
}

func tooManyAttempts() error {
	return &seb.Error{
		Code: codeTooManyAttempts, Outcome: seb.NotCommitted, Detail: "too many attempts with keys that are not good came from this address",
		Hint: "wait a moment; a good key works at once", RetryAfter: attemptsInterval,
	}
}
