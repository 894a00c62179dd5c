package leases

// Holder counts the records that are leased to a worker with a limit. A record counts from its
// delivery until its lease ends or the worker answers; again if the lease is extended after
// that.
type Holder struct {
	out   int
	Freed func() // called when the count falls; it must not call the table
}

// Out returns how many records the holder has. A lease that ran out counts until
// [Table.Expire].
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
