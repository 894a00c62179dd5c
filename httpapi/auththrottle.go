package httpapi

import (
	"net/netip"
	"sync"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// Every remote address begins with attemptsBurst attempts, and never has more. Each failed
	// authentication takes one attempt away, and each attemptsInterval gives one back.
	attemptsBurst    = 10
	attemptsInterval = 3 * time.Second
	// attemptsAddressesMax is how many addresses have a count of their own. All other addresses share
	// one count.
	attemptsAddressesMax = 4096
)

// authThrottle counts failed authentications by remote address. If an address has no attempts left,
// a caller with a wrong key is only told to wait, and the caller's connection is closed. A valid
// key still works, since callers with valid keys may share the address.
type authThrottle struct {
	mu sync.Mutex
	// until has, for each address with failed attempts, the time at which the address has all attempts again.
	until map[netip.Prefix]time.Time
}

func newAuthThrottle() *authThrottle { return &authThrottle{until: map[netip.Prefix]time.Time{}} }

// attemptsOf returns the prefix under which failures of a remote address are counted: a whole IPv4
// address, or the /64 of an IPv6 address.
func attemptsOf(remote string) netip.Prefix {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{} // the connection is not TCP
	}
	a, bits := ap.Addr().Unmap().WithZone(""), 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // no error: bits is valid for either kind of address
	return p
}

// left tells whether the address has an attempt left.
func (a *authThrottle) left(from netip.Prefix) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	debt := time.Until(a.until[a.accountLocked(from)])
	return debt <= (attemptsBurst-1)*attemptsInterval
}

// failed counts a failed attempt from the address.
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
