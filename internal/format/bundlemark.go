package format

// The entry that stands for a bundle: requests that another broker, or the writer itself, has sealed as a whole. The
// entries that follow it, up to the next mark, belong to the bundle:
//
//	34 mark: session id (16 bytes), form (uint16), 0 (uint16), requests (uint32), number (uint64), draw (16 bytes),
//	         seal (32 bytes), changes (uint32), merged (uint32), verdicts (uint32), 0 (uint32),
//	         per change: entries (uint32),
//	         per merged batch: index (uint32), 0 (uint32), offset (int64),
//	         per verdict: request (uint32), code (uint16), size of the text (uint16), two numbers (int64), 0 (uint32), text
//
// The form is 2. The text is code, part, detail and hint of a refusal, each after its size (uint16).
const (
	markBundle = 2 // the form

	bundleMarkFixedSize = 96
	mergedSize          = 16
	verdictFixedSize    = 28
	verdictTextMax      = 2048
)

// BundleMark is the mark of a bundle. Session, Number, Draw and Seal identify the bundle.
type BundleMark struct {
	Session SessionID
	Number  uint64   // of the bundle in its session; the first bundle has 1
	Draw    [16]byte // random bytes, drawn when the bundle was sealed
	Seal    Hash     // the SHA-256 of the sealed bundle

	// Requests is how many requests the bundle has.
	Requests uint32
	// Changes has one number for each request with a change, in order: how many of the entries the change made.
	Changes []uint32
	// Merged are the batches of the bundle that share a batch with records of other bundles, by ascending index.
	Merged []MergedBatch
	// Verdicts are about the requests that are not simply committed, by ascending request.
	Verdicts []Verdict
}

// MergedBatch says where the records of a bundle's batch are, if its row stands elsewhere.
type MergedBatch struct {
	Index uint32 // of the batch in the bundle
	Base  Offset // of its first record
}

// VerdictCode says what became of a request that is not simply committed. It is not 0. Newer versions of Seb may have further
// codes, for requests of their own.
type VerdictCode uint16

// The verdicts.
const (
	// VerdictAgain: not committed, and this bundle never will commit it.
	VerdictAgain VerdictCode = iota + 1
	// VerdictReplayed: the log had the request's idempotency key before this commit.
	VerdictReplayed
	// VerdictRefused: the request is refused.
	VerdictRefused
)

// Verdict says what became of a request of a bundle.
type Verdict struct {
	Request uint32 // index in the bundle
	Code    VerdictCode
	Refusal MarkedRefusal // if Code is VerdictRefused
}

// MarkedRefusal says why a request of a bundle is refused.
type MarkedRefusal struct {
	Code, Part, Detail, Hint string
	Numbers                  [2]int64 // for example the end of a partition; their meaning depends on Code
}

func (*BundleMark) kind() uint16 { return entryMark }

func (m *BundleMark) size() int {
	n := bundleMarkFixedSize + 4*len(m.Changes) + mergedSize*len(m.Merged)
	for _, v := range m.Verdicts {
		n += verdictFixedSize + v.Refusal.textSize()
	}
	return n
}

func (m *BundleMark) append(b []byte) []byte {
	b = append(b, m.Session[:]...)
	b = le.AppendUint16(le.AppendUint16(b, markBundle), 0)
	b = le.AppendUint64(le.AppendUint32(b, m.Requests), m.Number)
	b = append(append(b, m.Draw[:]...), m.Seal[:]...)
	for _, n := range []int{len(m.Changes), len(m.Merged), len(m.Verdicts), 0} {
		b = le.AppendUint32(b, uint32(n))
	}
	for _, n := range m.Changes {
		b = le.AppendUint32(b, n)
	}
	for _, x := range m.Merged {
		b = le.AppendUint64(b, uint64(x.Index))
		b = le.AppendUint64(b, uint64(x.Base))
	}
	for _, v := range m.Verdicts {
		b = le.AppendUint32(b, v.Request)
		b = le.AppendUint16(le.AppendUint16(b, uint16(v.Code)), uint16(v.Refusal.textSize()))
		b = le.AppendUint64(le.AppendUint64(b, uint64(v.Refusal.Numbers[0])), uint64(v.Refusal.Numbers[1]))
		b = v.Refusal.appendText(le.AppendUint32(b, 0))
	}
	return b
}

func (r *MarkedRefusal) texts() []*string { return []*string{&r.Code, &r.Part, &r.Detail, &r.Hint} }

// Shorten cuts the texts so that they fit into a mark.
func (r *MarkedRefusal) Shorten() {
	for _, s := range r.texts() {
		*s = (*s)[:min(len(*s), verdictTextMax/4-2)]
	}
}

func (r *MarkedRefusal) textSize() (n int) {
	if *r == (MarkedRefusal{Numbers: r.Numbers}) {
		return 0
	}
	for _, s := range r.texts() {
		n += 2 + len(*s)
	}
	return n
}

func (r *MarkedRefusal) appendText(b []byte) []byte {
	if r.textSize() == 0 {
		return b
	}
	for _, s := range r.texts() {
		b = append(le.AppendUint16(b, uint16(len(*s))), *s...)
	}
	return b
}

// decodeText reads the texts of a refusal, which take all of b.
func (r *MarkedRefusal) decodeText(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	for _, s := range r.texts() {
		if len(b) < 2 || len(b)-2 < int(le.Uint16(b)) {
			return false
		}
		n := 2 + int(le.Uint16(b))
		*s, b = string(b[2:n]), b[n:]
	}
	return len(b) == 0 && r.textSize() > 0 && r.textSize() <= verdictTextMax
}

// decodeBundleMark decodes a mark of form 2.
func decodeBundleMark(b []byte) (*BundleMark, error) {
	bad := func(what string) (*BundleMark, error) {
		return nil, Corrupt("the mark of a bundle with %d bytes %s", len(b), what)
	}
	if len(b) < bundleMarkFixedSize {
		return bad("is too short")
	}
	m := &BundleMark{
		Session: SessionID(b[:16]), Requests: le.Uint32(b[20:]), Number: le.Uint64(b[24:]),
		Draw: [16]byte(b[32:48]), Seal: Hash(b[48:80]),
	}
	changes, merged, verdicts := int64(le.Uint32(b[80:])), int64(le.Uint32(b[84:])), int64(le.Uint32(b[88:]))
	rest := b[bundleMarkFixedSize:]
	switch {
	case m.Session == SessionID{} || m.Number == 0 || le.Uint16(b[18:]) != 0 || le.Uint32(b[92:]) != 0:
		return bad("has invalid fields")
	case changes > int64(m.Requests) || verdicts > int64(m.Requests):
		return bad("has more changes or verdicts than requests")
	case 4*changes+mergedSize*merged+verdictFixedSize*verdicts > int64(len(rest)):
		return bad("is too short for its changes, merged batches and verdicts")
	}
	for range changes {
		m.Changes, rest = append(m.Changes, le.Uint32(rest)), rest[4:]
	}
	for i := range merged {
		x := MergedBatch{Index: le.Uint32(rest), Base: Offset(le.Uint64(rest[8:]))}
		if le.Uint32(rest[4:]) != 0 || x.Base < 0 || i > 0 && x.Index <= m.Merged[i-1].Index {
			return bad("has an invalid merged batch")
		}
		m.Merged, rest = append(m.Merged, x), rest[mergedSize:]
	}
	for i := range verdicts {
		if len(rest) < verdictFixedSize {
			return bad("is too short for its verdicts")
		}
		v := Verdict{Request: le.Uint32(rest), Code: VerdictCode(le.Uint16(rest[4:]))}
		v.Refusal.Numbers = [2]int64{int64(le.Uint64(rest[8:])), int64(le.Uint64(rest[16:]))}
		size, reserved := int(le.Uint16(rest[6:])), le.Uint32(rest[24:])
		rest = rest[verdictFixedSize:]
		if v.Code == 0 || reserved != 0 || v.Request >= m.Requests || i > 0 && v.Request <= m.Verdicts[i-1].Request ||
			size > len(rest) || !v.Refusal.decodeText(rest[:size]) {
			return bad("has an invalid verdict")
		}
		m.Verdicts, rest = append(m.Verdicts, v), rest[size:]
	}
	if len(rest) > 0 {
		return bad("has bytes after its last field")
	}
	return m, nil
}
