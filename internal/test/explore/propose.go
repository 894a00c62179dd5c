package explore

// propose mirrors the first part of Log.Commit's loop, and Log.propose.
func (w *world) propose(b *broker) {
	if b.claim != 0 || b.log.seq() == w.Slots || !w.idle(b) || b.payload.data() && !b.stored && w.Without != ClaimEarly {
		w.skip()
		return
	}
	if b.payload == 0 && !w.choose(b) || w.renewed(b) {
		return
	}
	b.claim = b.log.then(b.payload)
	w.tell("%c wants slot %d for %v", b.name, b.claim.seq(), b.payload)
	b.p.Propose(b.claim.hash())
	if w.Renewals && w.pick(2) == 1 {
		w.renew(b)
		return
	}
	w.request(b, b.p.Next(0))
}

// choose gives a broker something to commit: a payload that will be in the commit itself, or a floor entry. It
// returns false if neither is possible.
func (w *world) choose(b *broker) bool {
	var kinds []entry
	if !w.Data || w.Inline {
		kinds = append(kinds, 0)
	}
	if w.Sweeps {
		kinds = append(kinds, floorBit)
	}
	if len(kinds) == 0 {
		w.skip()
		return false
	}
	kind := kinds[w.pick(len(kinds))]
	if !w.number(b) {
		return false
	}
	b.payload |= kind
	return true
}

// number gives a broker a payload with a new number. It returns false if all numbers are used.
func (w *world) number(b *broker) bool {
	if w.payloads == w.Payloads {
		w.skip()
		return false
	}
	w.payloads++
	b.payload = entry(w.payloads)
	return true
}
