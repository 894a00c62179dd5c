package explore

import (
	"bytes"
	"encoding/binary"

	"github.com/simple-event-broker/seb/internal/handover"
)

// handoverKeys is the model of handing over: it encodes worlds as keys, and decodes keys. Brokers are
// interchangeable, so a key has them in sorted order.
type handoverKeys struct {
	cfg     *HandoverConfig
	key     []byte
	brokers [brokersMax][]byte
}

// Explore is like [Explore], for brokers that hand over bundles.
func (cfg HandoverConfig) Explore() Result {
	cfg.mustFit()
	return explore[handoverWorld](&handoverKeys{cfg: &cfg}, cfg.StatesMax)
}

// Walk is like [Walk], for brokers that hand over bundles.
func (cfg HandoverConfig) Walk(seed uint64, steps int) Result {
	cfg.mustFit()
	return walk[handoverWorld](&handoverKeys{cfg: &cfg}, seed, steps)
}

func (k *handoverKeys) begin() *handoverWorld { return newHandoverWorld(k.cfg) }

func (k *handoverKeys) of(w *handoverWorld) []byte {
	names := w.names()
	for i := range w.brokers[:w.Brokers] {
		k.brokers[i] = w.brokers[i].append(k.brokers[i][:0], names)
	}
	for i := 1; i < w.Brokers; i++ {
		for j := i; j > 0 && bytes.Compare(k.brokers[j], k.brokers[j-1]) < 0; j-- {
			k.brokers[j], k.brokers[j-1] = k.brokers[j-1], k.brokers[j]
			w.brokers[j], w.brokers[j-1] = w.brokers[j-1], w.brokers[j]
		}
	}
	var doubled byte
	if w.doubled {
		doubled = 1
	}
	b := append(k.key[:0], byte(w.sealed), byte(w.end), w.refused, doubled, byte(w.crashed))
	for _, s := range w.bundles[:w.sealed] {
		var conditional byte
		if s.conditional {
			conditional = 1
		}
		b = append(b, s.session, s.number, s.before, s.request, s.earlier, conditional)
	}
	for _, c := range w.log[1 : w.end+1] {
		b = binary.AppendUvarint(b, uint64(c))
	}
	b = appendWritten(b, w.flights)
	b = appendWritten(b, w.told)
	b = append(b, byte(len(w.frames)))
	for _, f := range w.frames {
		b = append(b, byte(f.bundle), f.after)
	}
	for _, bb := range k.brokers[:w.Brokers] {
		b = append(b, bb...)
	}
	k.key = b
	return b
}

func appendWritten(b []byte, list []written) []byte {
	b = append(b, byte(len(list)))
	for _, c := range list {
		b = binary.AppendUvarint(b, uint64(c))
	}
	return b
}

func (br *handoverBroker) append(b []byte, names handover.Names) []byte {
	b = binary.AppendUvarint(append(b, br.session, br.sealed, br.kept, br.home), uint64(br.claim))
	return br.take.AppendKey(br.send.AppendKey(b, names), names)
}

func (k *handoverKeys) worldOf(key []byte, c *choices, t *trace) *handoverWorld {
	r := reader{key}
	w := &handoverWorld{HandoverConfig: k.cfg, moment: moment{choices: c, trace: t, only: k.cfg.Only}}
	w.bundles[stranger] = sealedBundle{session: strangersSession, number: 1}
	w.sealed, w.end, w.refused, w.doubled, w.crashed = int(r.byte()), int(r.byte()), r.byte(), r.byte() == 1, int(r.byte())
	for i := range w.bundles[:w.sealed] {
		w.bundles[i] = sealedBundle{
			session: r.byte(), number: r.byte(), before: r.byte(), request: r.byte(), earlier: r.byte(), conditional: r.byte() == 1,
		}
	}
	for s := 1; s <= w.end; s++ {
		w.log[s] = r.written()
	}
	w.flights, w.told = r.writtenList(), r.writtenList()
	for range r.byte() {
		w.frames = append(w.frames, handedOver{bundle(r.byte()), r.byte()})
	}
	names, receiverNames := w.names(), w.receiverNames()
	for i := range w.brokers[:w.Brokers] {
		b := &w.brokers[i]
		b.name = 'A' + byte(i)
		b.session, b.sealed, b.kept, b.home, b.claim = r.byte(), r.byte(), r.byte(), r.byte(), r.written()
		b.send, r.b = handover.SenderFromKey(r.b, handover.Session{b.session}, names)
		b.take, r.b = handover.ReceiverFromKey(r.b, w.limits(), receiverNames)
	}
	return w
}

func (r *reader) written() written {
	x, n := binary.Uvarint(r.b)
	r.b = r.b[n:]
	return written(x)
}

func (r *reader) writtenList() (list []written) {
	for range r.byte() {
		list = append(list, r.written())
	}
	return list
}
