package leases

// Holder counts the records that one worker has leased, so that the caller can limit this number. A
// record counts from its delivery until the lease ends or the worker answers. If the lease has ended,
// and the worker then extends the lease, the record counts again.
type Holder struct {
	out   int
	Freed func() // the table calls Freed when the count falls; Freed must not call the table
}

// Out returns how many records the worker has leased. A record whose lease has run out counts until the
// next [Table.Expire].
func (h *Holder) Out() int { return h.out }

func (h *Holder) more() {
	if h != nil {
		h.out++
	}
}

func (h *Holder) less() {
	if h != nil {
		h.out--
		h.Freed()
	}
}
