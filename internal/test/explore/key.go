package explore

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/format"
)

// keys is the model of the log: it encodes worlds as keys, and decodes keys. Brokers are interchangeable,
// so a key has them in sorted order.
type keys struct {
	cfg     *Config
	key     []byte
	brokers [brokersMax][]byte
}

func (k *keys) begin() *world { return newWorld(k.cfg) }

func (k *keys) of(w *world) []byte {
	for i := range w.brokers[:w.Brokers] {
		k.brokers[i] = w.appendBroker(k.brokers[i][:0], &w.brokers[i])
	}
	for i := 1; i < w.Brokers; i++ {
		for j := i; j > 0 && bytes.Compare(k.brokers[j], k.brokers[j-1]) < 0; j-- {
			k.brokers[j], k.brokers[j-1] = k.brokers[j-1], k.brokers[j]
			w.brokers[j], w.brokers[j-1] = w.brokers[j-1], w.brokers[j]
		}
	}
	b := append(k.key[:0], byte(w.now), byte(w.payloads), byte(w.void), byte(w.void>>8))
	if w.Pages {
		b = append(b, byte(w.bare), byte(w.bare>>8))
	}
	for s := 1; s <= w.Slots; s++ {
		b = appendCommit(b, w.slots[s])
		b = appendCommit(b, w.first[s])
		c := w.checkpoints[s]
		b = append(b, w.age(c.since), w.age(c.begun))
		if c.since != 0 {
			b = appendCommit(b, c.log)
		}
	}
	b = appendCommits(b, w.flights)
	b = appendCommits(b, w.acked)
	for _, o := range w.objects {
		if w.matters(o.entry) {
			b = append(b, byte(o.entry), w.objectFlags(o))
		}
	}
	b = append(b, 0, byte(w.losses), byte(len(w.uploads)))
	for _, u := range w.uploads {
		b = appendCommit(append(b, byte(u.begun)), u.log)
	}
	b = append(b, byte(len(w.replies)))
	for _, r := range w.replies {
		b = appendCommit(append(b, byte(r.at)), r.commit)
	}
	if w.Wire {
		b = append(b, byte(len(w.wire)))
		for _, r := range w.wire {
			b = appendCommit(append(b, byte(r.at)), r.commit)
		}
		for s := 1; s <= w.Slots; s++ {
			b = append(b, byte(w.dates[s]))
		}
	}
	for _, bb := range k.brokers[:w.Brokers] {
		b = append(b, bb...)
	}
	k.key = b
	return b
}

const storedBit = 0x80

// matters reports whether a commit refers to a data object, or may refer to it later. If neither is so, a
// key leaves the object out.
func (w *world) matters(e entry) bool {
	for b := range w.living() {
		if b.payload == e {
			return true
		}
	}
	return w.decided().slotOf(e) != 0 || slices.ContainsFunc(w.flights, func(c commit) bool { return c.last() == e })
}

// objectFlags tells whether a data object is in the store, and whether the object was ever written. The
// latter matters only while a broker waits for the answer to its upload.
func (w *world) objectFlags(o object) (flags byte) {
	if o.stands {
		flags |= 1
	}
	for b := range w.living() {
		if o.landed && b.payload == o.entry && !b.stored {
			flags |= 2
		}
	}
	return flags
}

// age returns 1 + how long ago t was, at most 1 + Delay; 0 if t is 0, which means never.
func (w *world) age(t int) byte {
	if t == 0 {
		return 0
	}
	return byte(1 + min(w.now-t, w.Delay))
}

// since is the inverse of age.
func (w *world) since(age byte) int {
	if age == 0 {
		return 0
	}
	return w.now + 1 - int(age)
}

func appendCommit(b []byte, c commit) []byte { return binary.AppendUvarint(b, uint64(c)) }

func appendCommits(b []byte, s commits) []byte {
	b = append(b, byte(len(s)))
	for _, c := range s {
		b = appendCommit(b, c)
	}
	return b
}

func (w *world) appendBroker(b []byte, br *broker) []byte {
	if br.halted {
		return append(b, 255)
	}
	var flags byte
	if br.readBack {
		flags |= 1
	}
	for s := 1; s <= w.Slots+1; s++ {
		if br.false404&(1<<s) != 0 && br.p.Held(format.Seq(s)) {
			flags |= 1 << s
		}
	}
	kind := byte(br.pending.kind)
	if br.stored {
		kind |= storedBit
	}
	evidence := br.evidence
	if w.Losses == 0 || evidence <= br.log.seq()+1 {
		evidence = 0 // it makes no difference: the broker never claims a slot that it has applied
	}
	b = append(b, flags, kind, byte(br.payload), byte(evidence))
	b = appendCommit(b, br.log)
	b = appendCommit(b, br.claim)
	b = appendCommit(b, br.ended)
	for s := 1; s <= w.Slots; s++ {
		c := br.read[s]
		if !br.p.Held(format.Seq(s)) {
			c = 0 // the broker reads the slot again before it applies the slot
		}
		b = appendCommit(b, c)
	}
	b = br.p.AppendKey(b, stampAt(w.horizon(br)).Store, format.Seq(w.Slots))
	switch p := &br.pending; p.kind {
	case aListing:
		l := &p.listing
		b = append(b, byte(l.Checkpoint), byte(l.From), w.unitOf(l.At))
	case someGets:
		b = append(b, byte(p.known), byte(p.want), byte(p.want>>8))
		for s := 1; s <= w.Slots+1; s++ {
			g := &p.got[s]
			f := byte(0)
			if g.false404 {
				f = 1
			}
			b = appendCommit(append(b, byte(g.at), f), g.commit)
		}
	case aCreate:
		b = append(b, byte(p.sent))
	case nothing:
	}
	return b
}

// horizon returns the earliest date of the answers that the broker's protocol can still get.
func (w *world) horizon(b *broker) int {
	if w.Replies || w.Wire || w.Without == SendTime {
		return 0
	}
	from := w.now
	switch p := &b.pending; p.kind {
	case aListing:
		from = min(from, int(w.unitOf(p.listing.At)))
	case someGets:
		for _, g := range p.got[:w.Slots+2] {
			if g.at > 0 {
				from = min(from, int(g.at))
			}
		}
	case aCreate, nothing:
	}
	return from
}

func (w *world) unitOf(at commitlog.Stamp) byte { return byte(at.Store.Sub(time.Unix(0, 0)) / tick) }

func (k *keys) worldOf(key []byte, c *choices, t *trace) *world {
	r, cfg := reader{key}, k.cfg
	w := &world{Config: cfg, moment: moment{choices: c, trace: t, only: cfg.Only}}
	w.now, w.payloads = int(r.byte()), int(r.byte())
	w.void = uint16(r.byte()) | uint16(r.byte())<<8
	if cfg.Pages {
		w.bare = uint16(r.byte()) | uint16(r.byte())<<8
	}
	for s := 1; s <= cfg.Slots; s++ {
		w.slots[s], w.first[s] = r.commit(), r.commit()
		c := &w.checkpoints[s]
		c.since, c.begun = w.since(r.byte()), w.since(r.byte())
		if c.since != 0 {
			c.log = r.commit()
		}
	}
	w.flights, w.acked = r.commits(), r.commits()
	for e := entry(r.byte()); e != 0; e = entry(r.byte()) {
		flags := r.byte()
		w.objects = append(w.objects, object{e, flags&1 != 0, flags&2 != 0})
	}
	w.losses = int(r.byte())
	for range r.byte() {
		w.uploads = append(w.uploads, upload{int(r.byte()), r.commit()})
	}
	for range r.byte() {
		w.replies = append(w.replies, reply{int(r.byte()), r.commit()})
	}
	if cfg.Wire {
		for range r.byte() {
			w.wire = append(w.wire, reply{int(r.byte()), r.commit()})
		}
		for s := 1; s <= cfg.Slots; s++ {
			w.dates[s] = int(r.byte())
		}
	}
	for i := range w.brokers[:cfg.Brokers] {
		w.brokers[i].name = 'A' + byte(i)
		w.readBroker(&r, &w.brokers[i])
	}
	return w
}

func (w *world) readBroker(r *reader, b *broker) {
	flags := r.byte()
	if flags == 255 {
		b.halted = true
		return
	}
	b.false404, b.readBack = uint16(flags&^1), flags&1 != 0
	k := r.byte()
	b.pending.kind, b.stored, b.payload = kind(k&^storedBit), k&storedBit != 0, entry(r.byte())
	b.evidence = int(r.byte())
	b.log, b.claim, b.ended = r.commit(), r.commit(), r.commit()
	for s := 1; s <= w.Slots; s++ {
		b.read[s] = r.commit()
	}
	b.p, r.b = commitlog.ProtocolFromKey(r.b, w.lease(), time.Duration(w.Margin)*tick)
	switch p := &b.pending; p.kind {
	case aListing:
		l := &p.listing
		l.Checkpoint, l.From = format.Seq(r.byte()), format.Seq(r.byte())
		l.At = stampAt(int(r.byte()))
	case someGets:
		p.known = int(r.byte())
		p.want = uint16(r.byte()) | uint16(r.byte())<<8
		for s := 1; s <= w.Slots+1; s++ {
			p.got[s] = got{at: int8(r.byte()), false404: r.byte() == 1, commit: r.commit()}
		}
	case aCreate:
		p.sent = int(r.byte())
	case nothing:
	}
}

// reader decodes a key.
type reader struct{ b []byte }

func (r *reader) byte() byte {
	x := r.b[0]
	r.b = r.b[1:]
	return x
}

func (r *reader) commit() commit {
	x, n := binary.Uvarint(r.b)
	r.b = r.b[n:]
	return commit(x)
}

func (r *reader) commits() commits {
	n := int(r.byte())
	if n == 0 {
		return nil
	}
	s := make(commits, n)
	for i := range s {
		s[i] = r.commit()
	}
	return slices.Clip(s)
}
