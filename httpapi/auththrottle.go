package httpapi

import (
	"net/netip"
	"sync"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// An address may fail this often at once, and once more per interval.
	attemptsBurst    = 10
	attemptsInterval = 3 * time.Second
	// Further addresses share one account.
	attemptsAddressesMax = 4096
)

// authThrottle counts failed authentications by remote address. A caller that fails with
// none left is told only to wait, on a connection that ends. A valid key still works: many
// callers may share an address with one that fails.
type authThrottle struct {
	mu sync.Mutex
	// until is when an address will have all its attempts back.
	until map[netip.Prefix]time.Time
}

func newAuthThrottle() *authThrottle { return &authThrottle{until: map[netip.Prefix]time.Time{}} }

// attemptsOf returns the account of a remote address: an IPv6 host has a /64.
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
func (a *authThrottle) left(from netip.Prefix) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	debt := time.Until(a.until[a.accountLocked(from)])
	return debt <= (attemptsBurst-1)*attemptsInterval
}

// failed takes an attempt from an address.
func (a *authThrottle) failed(from netip.Prefix) {
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

func (a *authThrottle) accountLocked(from netip.Prefix) netip.Prefix {
	if _, known := a.until[from]; !known && len(a.until) >= attemptsAddressesMax {
		return netip.Prefix{}
	}
	return from
}

func tooManyAttempts() error {
	return &seb.Error{
		Code: codeTooManyAttempts, Outcome: seb.NotCommitted, Detail: "too many requests with invalid API keys came from this address",
		Hint: "wait a moment; a valid key works at once", RetryAfter: attemptsInterval,
	}
}
