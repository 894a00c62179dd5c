package engine

import (
	"crypto/sha256"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/handover"
	"github.com/simple-event-broker/seb/internal/pack"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
)

type texts []string

func (vs texts) Record(i int, r *record.Record) { r.Value = []byte(vs[i]) }

func appendOf(topic format.TopicID, partitions []format.Partition, vs ...string) *Append {
	return &Append{ID: topic, Count: len(vs), Bytes: 1024, IfEnd: -1, Records: texts(vs), Partitions: partitions}
}

type anyone struct{}

func (anyone) May(Keyring, time.Time) error { return nil }
func (anyone) Who() (format.KeyID, bool, time.Time) {
	return 7, false, time.UnixMicro(1_700_000_000_000_000)
}

// rename is a change with a text.
type rename string

func (rename) Apply(*state.Draft) ([]format.Entry, error) { return nil, nil }
func (x rename) Encode(w *pack.Writer)                    { w.Text(string(x)) }

func decodeRename(r *pack.Reader) Change { return rename(r.Text()) }

func callersOf(r *Request) []Caller { return r.Callers }

// sampleBundle returns a sealed bundle that has everything that a bundle can have.
func sampleBundle() *bundle {
	small, large := &batchSet{filling: map[partitionKey]*batch{}}, &batchSet{filling: map[partitionKey]*batch{}}
	conditional := appendOf(1, nil, "c")
	conditional.IfEnd, conditional.Delay = 5, time.Minute
	withdrawn := &Request{Appends: []*Append{appendOf(1, nil, "never")}, withdrawn: true}
	delayed := appendOf(2, nil, "x")
	delayed.Due = time.UnixMicro(1_800_000_000_000_000)
	for _, r := range []*Request{
		{Appends: []*Append{appendOf(1, nil, "i"), appendOf(2, nil, "j"), appendOf(1, nil, "k")}, came: 10},
		{Appends: []*Append{appendOf(1, []format.Partition{0, 3, 0}, "a", "b", "a2")}, came: 11, Callers: []Caller{anyone{}, anyone{}}},
		withdrawn,
		{Appends: []*Append{conditional}, came: 12},
		{Appends: []*Append{appendOf(1, nil, "d"), appendOf(2, nil, "e", "f")}, Key: &Key{Hashes: []format.Digest{{1}, {2}}, Unscoped: []format.Digest{{3}, {4}}, Print: format.Digest{5}}, came: 13},
		{Change: rename("alone"), came: 15},
		{Change: rename("with an append"), Appends: []*Append{appendOf(1, nil, "h")}, came: 16},
		{Appends: []*Append{appendOf(1, nil, "g")}, Key: &Key{Hashes: []format.Digest{{6}}, Print: format.Digest{7}, Topic: 1}, came: 14},
	} {
		small.requests = append(small.requests, r)
		for _, a := range r.Appends {
			small.add(r, a)
		}
	}
	last := &Request{Appends: []*Append{delayed}}
	large.requests = []*Request{last}
	large.add(last, delayed)
	small.finish()
	large.finish()
	at := uint32(0)
	for _, t := range large.batches {
		t.row.Pos, at = at, at+t.row.Size
	}
	large.upload, large.uploaded = true, true
	large.objects = []*dataObject{{ref: format.DataRef{Seq: 3, ID: 4, Size: at + format.DataPayloadStart}, batches: large.batches}}
	x := &bundle{
		Mark:   handover.Mark{Session: handover.Session{1}, Number: 2, Draw: [16]byte{3}},
		before: handover.Mark{Session: handover.Session{1}, Number: 1, Draw: [16]byte{9}, Seal: format.Hash{8}},
		limits: bundleLimits{StateMemory: 1 << 20, IdempotencyKeys: 50},
		sets:   []*batchSet{small, large},
	}
	x.list()
	x.seal(callersOf)
	return x
}

func TestBundleIsDecodedAsItWas(t *testing.T) {
	x := sampleBundle()
	y, err := decodeBundle(x.bytes, decodeRename)
	if err != nil {
		t.Fatal(err)
	}
	again := &bundle{Mark: y.Mark, before: y.before, limits: y.limits, sets: y.sets}
	again.seal(callersOf)
	if sha256.Sum256(again.bytes) != sha256.Sum256(x.bytes) {
		t.Error("the decoded bundle has other bytes")
	}
	if y.Mark != x.Mark || y.before != x.before || y.limits != x.limits {
		t.Errorf("decoded as %+v", y)
	}
	want, got := x.requests, y.requests
	if len(want) != 8 || len(got) != 8 {
		t.Fatalf("%d requests of %d", len(got), len(want))
	}
	for i := range want {
		if got[i].came != want[i].came || len(got[i].Callers) != len(want[i].Callers) || !reflect.DeepEqual(got[i].Key, want[i].Key) || got[i].whole() != want[i].whole() || got[i].Change != want[i].Change {
			t.Errorf("request %d is %+v, want %+v", i, got[i], want[i])
		}
		for j, a := range want[i].Appends {
			b := got[i].Appends[j]
			if b.ID != a.ID || b.IfEnd != a.IfEnd || b.Delay != a.Delay || !b.Due.Equal(a.Due) || len(b.shares) != len(a.shares) {
				t.Errorf("append %d of request %d is %+v, want %+v", j, i, b, a)
			}
		}
	}
	for i, set := range x.sets {
		for j, b := range set.batches {
			c := y.sets[i].batches[j]
			if c.key != b.key || c.row != b.row || c.count != b.count || c.maxTime != b.maxTime || !set.upload && !slices.Equal(c.bytes, b.bytes) {
				t.Errorf("batch %d of set %d is %+v, want %+v", j, i, c.row, b.row)
			}
		}
	}
}

func TestDamagedBundlesAreRefused(t *testing.T) {
	x := sampleBundle()
	for n := range x.bytes {
		if _, err := decodeBundle(x.bytes[:n], decodeRename); !errors.Is(err, pack.ErrMalformed) {
			t.Fatalf("%d of %d bytes: %v", n, len(x.bytes), err)
		}
	}
	if _, err := decodeBundle(append(slices.Clone(x.bytes), 0), decodeRename); !errors.Is(err, pack.ErrMalformed) {
		t.Errorf("a byte more: %v", err)
	}
	payload := int(x.inlineBytes())
	for i := len(x.bytes) - payload; i < len(x.bytes); i++ {
		b := slices.Clone(x.bytes)
		b[i] ^= 1
		if _, err := decodeBundle(b, decodeRename); !errors.Is(err, pack.ErrMalformed) {
			t.Fatalf("byte %d of the records is damaged: %v", i, err)
		}
	}
}

func TestImpossibleBundlesAreRefused(t *testing.T) {
	for name, change := range map[string]func(x *bundle){
		"no number": func(x *bundle) { x.Number = 0 },
		"a batch without records": func(x *bundle) {
			s := x.sets[1]
			s.batches = append(s.batches, &batch{})
			s.objects[0].batches = s.batches
		},
		"a batch too small": func(x *bundle) {
			s := x.sets[1]
			s.objects[0].ref.Size -= s.batches[0].row.Size - 5
			s.batches[0].row.Size = 5
		},
		"an object of another size": func(x *bundle) { x.sets[1].objects[0].ref.Size++ },
		"a batch in no object":      func(x *bundle) { x.sets[1].objects[0].batches = nil },
		"a request without appends": func(x *bundle) { x.sets[1].requests[0].Appends = nil },
		"an append without records": func(x *bundle) { x.sets[1].requests[0].Appends[0].shares = nil },
		"records counted twice":     func(x *bundle) { x.sets[1].requests = append(x.sets[1].requests, x.sets[1].requests[0]) },
		"another topic":             func(x *bundle) { x.sets[1].requests[0].Appends[0].ID = 9 },
		"a key without hashes":      func(x *bundle) { r := x.sets[0].requests[4]; r.Key.Hashes = r.Key.Hashes[:1] },
	} {
		x := sampleBundle()
		change(x)
		x.seal(callersOf)
		if _, err := decodeBundle(x.bytes, decodeRename); !errors.Is(err, pack.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// tellingBundle has a request that tells of requests to the store.
func tellingBundle(x tellSpent) *bundle {
	b := &bundle{Mark: handover.Mark{Session: handover.Session{1}, Number: 1}, sets: []*batchSet{{requests: []*Request{{Change: x}}}}}
	b.seal(callersOf)
	return b
}

func TestBundleTellsOfRequestsToTheStore(t *testing.T) {
	spent := &format.Spent{Causes: []format.CauseUse{{Cause: format.CauseAppend, StoreUse: format.StoreUse{Creates: 2, SentBytes: 900}}, {Cause: format.CauseRead, StoreUse: format.StoreUse{Gets: 7}}}}
	x, err := decodeBundle(tellingBundle(tellSpent{spent}).bytes, nil) // a broker that makes no changes for others takes it
	if err != nil {
		t.Fatal(err)
	}
	entries, err := x.requests[0].Change.Apply(nil)
	if err != nil || len(entries) != 1 || !reflect.DeepEqual(entries[0], spent) {
		t.Errorf("the bundle tells of %+v: %v", entries, err)
	}
	for name, bad := range map[string]*format.Spent{
		"nothing": {}, "a cause twice": {Causes: []format.CauseUse{spent.Causes[0], spent.Causes[0]}}, "less than nothing": {Causes: []format.CauseUse{{Cause: format.CauseRead, StoreUse: format.StoreUse{Gets: -1}}}},
	} {
		if _, err := decodeBundle(tellingBundle(tellSpent{bad}).bytes, decodeRename); !errors.Is(err, pack.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzBundle: no bytes of another broker cause a panic, and what is decoded is whole.
func FuzzBundle(f *testing.F) {
	f.Add(sampleBundle().bytes)
	f.Add(tellingBundle(tellSpent{&format.Spent{Causes: []format.CauseUse{{Cause: format.CauseRead, StoreUse: format.StoreUse{Gets: 7}}}}}).bytes)
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := decodeBundle(b, decodeRename)
		if err != nil {
			if !errors.Is(err, pack.ErrMalformed) && !errors.Is(err, pack.ErrUnknown) {
				t.Errorf("the error is %v", err)
			}
			return
		}
		for _, r := range x.requests {
			for _, a := range r.Appends {
				a.ranges()
			}
			if r.whole() && len(r.Appends) > 0 {
				r.batches()
			}
		}
		again := &bundle{Mark: x.Mark, before: x.before, limits: x.limits, sets: x.sets}
		again.seal(callersOf)
	})
}

// A request without callers needs no permission. So the broker that sent it does not refuse it, although another broker did.
func TestRequestWithoutCallersIsNotRefused(t *testing.T) {
	e := &Engine{batcher: &batcher{}}
	if err := e.callerRefusal(&Request{}); !errors.Is(err, errAgain) {
		t.Error(err)
	}
}
