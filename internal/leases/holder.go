package leases

// Holder counts the records that are leased to one who wants no more than some at a
// time. A record counts from when it is handed out until its lease ends, or it is
// answered; again if its lease is extended after that.
type Holder struct {
	out   int
	Freed func() // is called whenever there is one less; it must not call the table
}

// Out returns how many records the holder has. Leases that ran out count until the table
// notices.
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
