package format

// The entry about the push target of a queue:
//
//	25 queue push set: queue (uint64), timeout in ms (int64), most requests at a time (uint32),
//	   headers (uint32), sizes of the next three texts (3 × uint16), 0 (uint16),
//	   URL, secret, why the push was stopped (empty if it was not), then for each header, ascending by name:
//	   size of the name, of the value (2 × uint16), name, value. The entry replaces the queue's target.
//	   Without a URL all other fields are 0 or empty, and the queue has no target.
//
// The secret and the headers are stored in plain text: the broker that pushes needs them, and it
// has no other durable storage than the bucket.
const entryQueuePushSet = 25

// QueuePushSet sets or removes the push target of a queue.
type QueuePushSet struct {
	Queue QueueID
	Push  *QueuePush // nil: the queue is not pushed
}

// QueuePush is a push target.
type QueuePush struct {
	URL       string // not ""
	Secret    string
	Stopped   string // why the push was stopped; "" if it was not
	TimeoutMS int64
	InFlight  uint32
	Headers   []PushHeader // ascending by name
}

// PushHeader is a header that the broker sends with each request to a target.
type PushHeader struct{ Name, Value string }

const (
	queuePushSize  = 32 // without the texts
	pushHeaderSize = 4
)

func (*QueuePushSet) kind() uint16 { return entryQueuePushSet }

func (p *QueuePushSet) size() int {
	if p.Push == nil {
		return queuePushSize
	}
	return queuePushSize + pushHeaderSize*len(p.Push.Headers) + p.Push.TextBytes()
}

// TextBytes returns the total size in bytes of the URL, the secret, the reason for a stop, and the headers.
func (p *QueuePush) TextBytes() int {
	n := len(p.URL) + len(p.Secret) + len(p.Stopped)
	for _, h := range p.Headers {
		n += len(h.Name) + len(h.Value)
	}
	return n
}

func (p *QueuePushSet) append(b []byte) []byte {
	push := p.Push
	if push == nil {
		push = &QueuePush{}
	}
	b = le.AppendUint64(le.AppendUint64(b, uint64(p.Queue)), uint64(push.TimeoutMS))
	b = le.AppendUint32(le.AppendUint32(b, push.InFlight), uint32(len(push.Headers)))
	for _, text := range []string{push.URL, push.Secret, push.Stopped, ""} {
		b = le.AppendUint16(b, uint16(len(text)))
	}
	b = append(append(append(b, push.URL...), push.Secret...), push.Stopped...)
	for _, h := range push.Headers {
		b = le.AppendUint16(le.AppendUint16(b, uint16(len(h.Name))), uint16(len(h.Value)))
		b = append(append(b, h.Name...), h.Value...)
	}
	return b
}

func decodeQueuePushSet(b []byte) (*QueuePushSet, error) {
	if len(b) < queuePushSize {
		return nil, Corrupt("an entry for a push has the invalid size of %d bytes", len(b))
	}
	p := &QueuePush{TimeoutMS: int64(le.Uint64(b[8:])), InFlight: le.Uint32(b[16:])}
	set := &QueuePushSet{Queue: QueueID(le.Uint64(b)), Push: p}
	if err := reserved(b[30:32]); err != nil {
		return nil, err
	}
	texts := textReader{rest: b[queuePushSize:]}
	p.URL, p.Secret, p.Stopped = texts.next(le.Uint16(b[24:])), texts.next(le.Uint16(b[26:])), texts.next(le.Uint16(b[28:]))
	for n := le.Uint32(b[20:]); n > 0 && !texts.short; n-- {
		name, value := texts.number(), texts.number()
		h := PushHeader{Name: texts.next(name), Value: texts.next(value)}
		if k := len(p.Headers); k > 0 && p.Headers[k-1].Name >= h.Name {
			return nil, Corrupt("the header %q of a push comes after %q, out of order", h.Name, p.Headers[k-1].Name)
		}
		p.Headers = append(p.Headers, h)
	}
	switch {
	case texts.short || len(texts.rest) > 0:
		return nil, Corrupt("an entry for a push has %d bytes, which do not match the sizes of its texts (left over: %d bytes)", len(b), len(texts.rest))
	case p.URL == "" && (len(b) > queuePushSize || p.TimeoutMS != 0 || p.InFlight != 0):
		return nil, Corrupt("an entry for a push has no URL, but other fields are set")
	case p.URL == "":
		set.Push = nil
	case p.TimeoutMS <= 0 || p.InFlight == 0:
		return nil, Corrupt("an entry for a push has the invalid limit of %d requests or the invalid timeout of %d ms", p.InFlight, p.TimeoutMS)
	}
	return set, nil
}

// textReader takes texts from the front of rest. If rest is too short for a text, short becomes true, and
// this text and all later texts are empty.
type textReader struct {
	rest  []byte
	short bool
}

func (r *textReader) next(size uint16) string {
	if int(size) > len(r.rest) {
		r.rest, r.short = nil, true
		return ""
	}
	text := string(r.rest[:size])
	r.rest = r.rest[size:]
	return text
}

func (r *textReader) number() uint16 {
	b := r.next(2)
	if b == "" {
		return 0
	}
	return le.Uint16([]byte(b))
}
