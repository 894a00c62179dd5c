package explore

import (
	"bytes"
	"encoding/binary"
)

// queueKeys is the model of a queue: it encodes worlds as keys, and decodes keys. Brokers are
// interchangeable, so a key has them in sorted order.
type queueKeys struct {
	cfg     *QueueConfig
	folds   *folds
	key     []byte
	brokers [brokersMax][]byte
}

func newQueueKeys(cfg *QueueConfig) *queueKeys {
	cfg.mustFit()
	return &queueKeys{cfg: cfg, folds: newFolds(cfg.Attempts)}
}

// Explore is like [Explore], for a queue.
func (cfg QueueConfig) Explore() Result {
	return explore[queueWorld](newQueueKeys(&cfg), cfg.StatesMax)
}

// Walk is like [Walk], for a queue.
func (cfg QueueConfig) Walk(seed uint64, steps int) Result {
	return walk[queueWorld](newQueueKeys(&cfg), seed, steps)
}

func (k *queueKeys) begin() *queueWorld { return newQueueWorld(k.cfg, k.folds) }

func (k *queueKeys) of(w *queueWorld) []byte {
	for i := range w.brokers[:w.Brokers] {
		k.brokers[i] = w.appendBroker(k.brokers[i][:0], &w.brokers[i])
	}
	for i := 1; i < w.Brokers; i++ {
		for j := i; j > 0 && bytes.Compare(k.brokers[j], k.brokers[j-1]) < 0; j-- {
			k.brokers[j], k.brokers[j-1] = k.brokers[j-1], k.brokers[j]
			w.brokers[j], w.brokers[j-1] = w.brokers[j-1], w.brokers[j]
		}
	}
	b := append(binary.AppendUvarint(k.key[:0], uint64(w.log)), byte(w.redriven))
	for o := range w.Records {
		b = append(b, w.made[o], w.base[o], w.back[o])
	}
	for _, bb := range k.brokers[:w.Brokers] {
		b = append(b, bb...)
	}
	k.key = b
	return b
}

const leavingBit = 0x80

// appendBroker appends a broker to a key. If the broker does not believe that it is the owner, the key
// leaves out what the broker knows, since nothing that the broker does depends on that. The key also
// leaves out deliveries that the broker's view of the log shows.
func (w *queueWorld) appendBroker(b []byte, br *queueBroker) []byte {
	epoch := br.epoch
	if br.leaving {
		epoch |= leavingBit
	}
	b = append(b, epoch)
	if epoch == 0 && w.Without != RefuseUnsynced {
		return b
	}
	b = binary.AppendUvarint(append(b, br.lower), uint64(br.view))
	v := w.folds.at(br.view)
	for o := range w.Records {
		gave, owes := br.gave[o], br.owes[o]
		switch r := &v.records[o]; w.Without {
		case WindowAfter, AttemptAfter, OwnOnly, TakeUp, AttemptAhead:
		default:
			if r.sure {
				gave = 0
			}
			if r.over() {
				owes = 0
			}
		}
		b = append(b, gave<<4|owes)
		if w.Leases {
			b = append(b, br.keeps[o])
		}
	}
	return b
}

func (k *queueKeys) worldOf(key []byte, c *choices, t *trace) *queueWorld {
	r, w := reader{key}, k.begin()
	w.choices, w.trace = c, t
	w.log = r.fold()
	w.redriven = int(r.byte())
	for o := range w.Records {
		w.made[o], w.base[o], w.back[o] = r.byte(), r.byte(), r.byte()
	}
	for i := range w.brokers[:w.Brokers] {
		b := &w.brokers[i]
		epoch := r.byte()
		b.epoch, b.leaving = epoch&^leavingBit, epoch&leavingBit != 0
		if epoch == 0 && w.Without != RefuseUnsynced {
			continue
		}
		b.lower = r.byte()
		b.view = r.fold()
		for o := range w.Records {
			x := r.byte()
			b.gave[o], b.owes[o] = x>>4, x&0xf
			if w.Leases {
				b.keeps[o] = r.byte()
			}
		}
	}
	return w
}

func (r *reader) fold() fold {
	x, n := binary.Uvarint(r.b)
	r.b = r.b[n:]
	return fold(x)
}
