package seb

import (
	"context"
	"net/netip"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
)

// Share is a part of the memory budget. It is for requests and answers: the broker must hold these
// until the clients have sent or read them, which takes long if a client is slow.
type Share int

const (
	// ShareSmall is for small requests and answers, so that they never wait for memory that large
	// ones hold.
	ShareSmall Share = Share(budget.Small)
	// ShareBodies is for large requests while the broker receives them.
	ShareBodies Share = Share(budget.Bodies)
	// ShareAnswers is the part for large answers, while clients read them.
	ShareAnswers Share = Share(budget.Answers)
)

// String returns the share's name in metrics and refusals.
func (s Share) String() string { return budget.Share(s).String() }

// Holder is the account that memory is charged to: an API key, or the address of a caller
// without a key. Many callers may share an address, such as that of a proxy; API keys
// distinguish them.
type Holder struct {
	Key     KeyID        // 0: no key
	Address netip.Prefix // zero: unknown, or Key is set
}

// Reservation is memory that one request holds, and that may grow. It is safe for
// concurrent use. The zero Reservation can't be used.
type Reservation struct{ of *budget.Reservation }

// NewReservation returns an empty reservation of a share for a request of that holder. While another request waits for
// room, the broker may call revoke, once: for a response (all of ShareAnswers, see ForResponse) if its client is slow;
// else if that holder has more memory than the holder of the waiting request would have. Then the request must end and
// give back its memory. revoke must not block. If revoke is nil, the broker can't take the memory back.
func (b *Broker) NewReservation(s Share, of Holder, revoke func()) *Reservation {
	return &Reservation{of: b.engine.Budget().Reservation(budget.Share(s), budget.Holder{Key: uint64(of.Key), Address: of.Address}, revoke)}
}

// ForResponse marks r, which holds no memory yet, as memory of a response: see [Broker.NewReservation]. It returns r.
func (r *Reservation) ForResponse() *Reservation {
	return &Reservation{of: r.of.ForResponse()}
}

// ShareBytes returns how many bytes of a share are held, and how many may be held.
func (b *Broker) ShareBytes(s Share) (used, limit int64) {
	return b.engine.Budget().ShareBytes(budget.Share(s))
}

// ShareAlone returns how many bytes of a share a holder should use at most while no other holder uses
// the share. A request that can work with less memory should not take more than that, so that later
// requests have room.
func (b *Broker) ShareAlone(s Share) int64 { return b.engine.Budget().ShareAlone(budget.Share(s)) }

// Grow takes n more bytes. If there is no room for them within some seconds, Grow returns
// CodeOverMemoryBudget, and the reservation keeps the bytes that it had.
func (r *Reservation) Grow(ctx context.Context, n int64) (err error) {
	defer writes(&err)
	return r.of.Grow(ctx, n)
}

// GrowSoon is [Reservation.Grow], but waits at most d for room.
func (r *Reservation) GrowSoon(ctx context.Context, n int64, d time.Duration) (err error) {
	defer writes(&err)
	return r.of.GrowSoon(ctx, n, d)
}

// GrowNow takes up to most bytes: as many as there is room for now, and as the holder may have. It returns how many it
// took. It takes none if it could take fewer than least, if r was revoked, or if a request waits that may have more
// memory: the room is for that request.
func (r *Reservation) GrowNow(least, most int64) int64 { return r.of.GrowNow(least, most) }

// Shrink gives n bytes back.
func (r *Reservation) Shrink(n int64) { r.of.Shrink(n) }

// Sent counts n bytes of the response that the client has taken. Call Sent(0) when you begin to send the response.
func (r *Reservation) Sent(n int64) { r.of.Sent(n) }

// Broken tells the budget that the client has ended the connection before it had taken the response.
func (r *Reservation) Broken() { r.of.Broken() }

// Ended returns why the broker has revoked the reservation; nil if it was not revoked.
func (r *Reservation) Ended() (err error) {
	defer writes(&err)
	return r.of.Ended()
}

// Reserve takes n bytes of the memory budget for an adapter's own buffers, which the adapter
// does not hold for long. For what clients send or read, use [Broker.NewReservation]. If there is
// no room within some seconds, Reserve returns CodeOverMemoryBudget. The first call of release
// gives the bytes back; further calls do nothing.
func (b *Broker) Reserve(ctx context.Context, n int64) (release func(), err error) {
	defer writes(&err)
	return b.engine.Budget().Hold(ctx, budget.Adapters, n)
}

// ReserveMore is [Broker.Reserve] for a request that holds memory already. ReserveMore may fill more of the budget than
// Reserve, so that such requests get what they need to end. Pieces of 64 KiB or more must leave some of it for others.
func (b *Broker) ReserveMore(ctx context.Context, n int64) (release func(), err error) {
	defer writes(&err)
	c := budget.More
	if n >= 64<<10 {
		c = budget.Lists
	}
	return b.engine.Budget().Hold(ctx, c, n)
}
