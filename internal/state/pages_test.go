package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
)

const snapshotPagesGolden = "testdata/snapshot.6.pages.golden"

func numberedKey(n int) (d format.Digest) {
	binary.BigEndian.PutUint64(d[:], uint64(n))
	return d
}

// remember commits appends with the keys from a number to another.
func (x collectedLog) remember(from, to int) {
	x.t.Helper()
	var entries []format.Entry
	for n := from; n < to; n++ {
		entries = append(entries, &format.AppendKeyed{Key: numberedKey(n), Print: format.Digest{byte(n)}})
	}
	x.apply(entries...)
}

// nextPage returns the entry about a page with the oldest keys that are in no page, and the section of the page.
func (x collectedLog) nextPage(keys int) (*format.PageStored, []byte) {
	list := x.keyed.list[x.keyed.paged():][:keys]
	section := EncodeKeyed(list)
	_, p := format.EncodePage(format.ClusterID{}, format.DataRef{Seq: x.Seq(), ID: 7}, 0, section, uint32(keys))
	return &format.PageStored{Page: p, First: list[0].Key}, section
}

// paged returns a log with ten keys, six of them in two pages, and the sections of the pages.
func paged(t *testing.T) (x collectedLog, sections [][]byte) {
	x = newCollectedLog(t)
	x.remember(0, 3)
	x.remember(3, 10)
	for _, keys := range []int{2, 4} {
		p, section := x.nextPage(keys)
		x.apply(p)
		sections = append(sections, section)
	}
	return x, sections
}

func (x collectedLog) decoded(sections ...[]byte) *State {
	x.t.Helper()
	s := mustDecode(x.t, x.Seq(), x.View().Encode())
	if err := s.ReadPages(sections); err != nil {
		x.t.Fatal(err)
	}
	return s
}

func TestGoldenSnapshotWithPages(t *testing.T) {
	x, sections := paged(t)
	file := golden(t, snapshotPagesGolden)
	if got := x.View().Encode(); !bytes.Equal(got, file) {
		t.Fatalf("encoded\n%x\nwant\n%x", got, file)
	}
	requireSame(t, x.decoded(sections...), x.State)
	// A snapshot of level 6 from before pages has all keys, and no section about pages.
	before := newCollectedLog(t)
	before.remember(0, 3)
	body := before.View().Encode()
	s := mustDecode(t, before.Seq(), body)
	if s.Unread() || s.KeyedCount(s.Time()) != 3 || !bytes.Equal(s.View().Encode(), body) {
		t.Fatal("a snapshot without pages reads as another state")
	}
}

func TestPagesLeaveTheSnapshot(t *testing.T) {
	x := newCollectedLog(t)
	x.remember(0, 100)
	before := len(x.View().Encode())
	p, section := x.nextPage(90)
	x.apply(p)
	if got := len(x.View().Encode()); got > before-90*keyedSizeMin+80 {
		t.Fatalf("the snapshot has %d bytes instead of %d", got, before)
	}
	if objects, bytes := x.Stored(); objects != 1 || bytes != int64(p.Ref.Size) {
		t.Fatalf("%d objects with %d bytes", objects, bytes)
	}
	unread := mustDecode(t, x.Seq(), x.View().Encode())
	if got := unread.Memory(); got < x.Memory() || got > x.Memory()+100*keyedMemory {
		t.Errorf("before its pages are read, the state says that it takes %d bytes; then it takes %d", got, x.Memory())
	}
	s := x.decoded(section)
	requireSame(t, s, x.State)
	if _, ok := s.Keyed(numberedKey(0), s.Time()); !ok {
		t.Error("a key in a page is forgotten")
	}
	if err := (collectedLog{t, s}).try(&format.AppendKeyed{Key: numberedKey(5)}); !errors.Is(err, ErrNonsense) {
		t.Errorf("a key in a page is taken again: %v", err)
	}
}

func TestPageIsRefused(t *testing.T) {
	x, _ := paged(t)
	for name, change := range map[string]func(p *format.PageStored){
		"first key":      func(p *format.PageStored) { p.First[0]++ },
		"fewer keys":     func(p *format.PageStored) { p.Keys-- },
		"more keys":      func(p *format.PageStored) { p.Keys++ },
		"too many keys":  func(p *format.PageStored) { p.Keys = 1 << 31 },
		"checksum":       func(p *format.PageStored) { p.CRC++ },
		"size":           func(p *format.PageStored) { p.Size, p.Ref.Size = p.Size+1, p.Ref.Size+1 },
		"a later upload": func(p *format.PageStored) { p.Ref.Seq = x.Seq() + 1 },
	} {
		p, _ := x.nextPage(3)
		change(p)
		if err := x.try(p); !errors.Is(err, ErrNonsense) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p, _ := x.nextPage(3)
	if err := x.try(p, p); !errors.Is(err, ErrNonsense) {
		t.Errorf("two pages in a commit: %v", err)
	}
	// Two brokers store pages of the same keys.
	shorter, _ := x.nextPage(1)
	x.apply(p)
	for _, second := range []*format.PageStored{p, shorter} {
		if err := x.try(second); !errors.Is(err, ErrNonsense) {
			t.Errorf("a page of keys that are in another one: %v", err)
		}
	}
	x.apply(&format.DataFloor{Seq: x.Seq()})
	last, _ := x.nextPage(1)
	last.Ref.Seq = x.DataFloor() - 1
	if err := x.try(last); !errors.Is(err, ErrNonsense) {
		t.Errorf("a page below the data floor: %v", err)
	}
	last.Ref.Seq = x.DataFloor()
	x.wait(20) // the log forgets the first key with the next commit
	if err := x.try(last); !errors.Is(err, ErrNonsense) {
		t.Errorf("a page whose first key the log forgets with this commit: %v", err)
	}

	low := New()
	mustApply(t, low, &format.Commit{Seq: 1, Entries: []format.Entry{&format.AppendKeyed{Key: numberedKey(1)}}})
	y := collectedLog{t, low}
	p, _ = y.nextPage(1)
	if err := y.try(p); !errors.Is(err, ErrNonsense) || low.PlanPage(1, 1000) != nil {
		t.Errorf("a page below the level of segments: %v", err)
	}
}

// A page dies when the log forgets its last key, and is deleted like all that is dead.
func TestPageDiesWithItsLastKey(t *testing.T) {
	x, sections := paged(t)
	refs := x.Pages()
	x.wait(22) // the first three keys are forgotten: one page, and a quarter of the next one
	if _, known := x.Keyed(numberedKey(2), x.Time()); known || x.KeyedCount(x.Time()) != 7 {
		t.Fatal("the keys of the first commit are remembered")
	}
	if got := x.Pages(); !slices.Equal(got, refs[1:]) {
		t.Fatalf("pages %+v", got)
	}
	if dead := x.Dead(); len(dead) != 1 || dead[0].Tag != refs[0].Ref.ID || dead[0].Slot != x.Seq()-1 && dead[0].Slot != x.Seq() {
		t.Fatalf("dead are %+v", dead)
	}
	requireSame(t, x.decoded(sections[1]), x.State)
	slot := x.Seq()
	x.see(slot)
	x.apply()
	x.see(x.Seq())
	if len(x.Pages()) != 0 || len(x.Dead()) != 2 || x.KeyedCount(x.Time()) != 0 {
		t.Fatalf("%d pages, %d dead objects, %d keys", len(x.Pages()), len(x.Dead()), x.KeyedCount(x.Time()))
	}
	x.wait(24)
	plan := x.plan()
	if plan == nil || len(plan.Data) != 1 || plan.Data[0] != refs[0].Ref {
		t.Fatalf("the plan is %+v", plan)
	}
	if plan.Known[DataKey{refs[1].Ref.Seq, refs[1].Ref.ID}] != (refs[1].Ref.Seq < plan.Floor) {
		t.Error("the sweep does not know a page that died later")
	}
}

func TestPageIsKnownToTheSweep(t *testing.T) {
	x, _ := paged(t)
	ref := x.Pages()[1].Ref
	x.see(x.Seq())
	x.apply()
	x.see(x.Seq())
	x.apply(&format.DataFloor{Seq: x.Seq()})
	plan := x.PlanCollection(CollectOptions{Now: x.Time() + 30*anHour, Since: x.Time() + 30*anHour, Sight: func(format.Seq) int64 { return 0 }})
	if plan == nil || len(plan.Data) != 0 || !plan.Known[DataKey{ref.Seq, ref.ID}] {
		t.Fatalf("the plan is %+v", plan)
	}
}

func TestPlanPage(t *testing.T) {
	x := newCollectedLog(t)
	if x.PlanPage(1, 1000) != nil {
		t.Fatal("a page without keys")
	}
	x.remember(0, 10)
	if x.PlanPage(10*36+1, 1000) != nil || x.PlanPage(0, 0) != nil {
		t.Fatal("a page with too few keys")
	}
	if got := x.PlanPage(10*36, 5*36); len(got) != 5 || got[0].Key != numberedKey(0) {
		t.Fatalf("a page with the keys %v", got)
	}
	p, _ := x.nextPage(5)
	x.apply(p)
	if got := x.PlanPage(5*36, 1000); len(got) != 5 || got[0].Key != numberedKey(5) {
		t.Fatalf("a page with the keys %v", got)
	}
	if x.PlanPage(5*36+1, 1000) != nil {
		t.Fatal("the keys in a page count twice")
	}
}

func TestCopyHasNoPages(t *testing.T) {
	x, _ := paged(t)
	if err := x.Rebase(x.Seq() + 5); err != nil {
		t.Fatal(err)
	}
	if len(x.Pages()) != 0 || x.KeyedCount(x.Time()) != 10 || x.PlanPage(10*36, 1000) == nil {
		t.Fatal("the copy refers to pages of its source, or has lost keys")
	}
	requireSame(t, x.decoded(), x.State)
	if took := recount(x.State); x.Memory() != took {
		t.Fatalf("memory is %d, but a new count gives %d", x.Memory(), took)
	}
}

func TestWrongPagesAreNotRead(t *testing.T) {
	x, sections := paged(t)
	body := x.View().Encode()
	flipped := bytes.Clone(sections[1])
	flipped[9] ^= 1
	for name, wrong := range map[string][][]byte{
		"one is left out": sections[:1],
		"one too many":    append(slices.Clone(sections), nil),
		"swapped":         {sections[1], sections[0]},
		"cut off":         {sections[0], sections[1][:len(sections[1])-1]},
		"flipped":         {sections[0], flipped},
	} {
		if err := mustDecode(t, x.Seq(), body).ReadPages(wrong); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A page whose checksum is right, with keys that can't be there.
	key := func(n int, time int64) Keyed { return Keyed{Key: numberedKey(n), Time: time} }
	now := x.Time()
	for name, list := range map[string][]Keyed{
		"no keys":                      nil,
		"a key twice":                  {key(20, 1), key(20, 1)},
		"a key that is in no page":     {key(20, 1), key(9, 1)},
		"a key after the snapshot":     {key(20, now+1)},
		"a key after one in no page":   {key(20, now)},
		"forgotten keys only":          {key(20, now-KeyedFor.Microseconds())},
		"a forgotten key after others": {key(20, 1), key(21, now-KeyedFor.Microseconds())},
	} {
		section := EncodeKeyed(list)
		_, p := format.EncodePage(format.ClusterID{}, format.DataRef{ID: 1}, 0, section, max(1, uint32(len(list))))
		y := collectedLog{t, x.decoded(sections...)}
		y.keyed.pages = y.keyed.pages[:0]
		v := y.View()
		v.keyed, v.pages = x.View().keyed, []page{{Page: p}}
		s, err := Decode(x.Seq(), v.Encode())
		if err == nil {
			err = s.ReadPages([][]byte{section})
		}
		if !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInvalidPagesInASnapshot(t *testing.T) {
	x, _ := paged(t)
	for name, change := range map[string]func(v *View){
		"no keys":        func(v *View) { v.pages[0].Keys = 0 },
		"too many keys":  func(v *View) { v.pages[0].Keys = v.pages[0].Size },
		"position":       func(v *View) { v.pages[0].Pos++ },
		"size":           func(v *View) { v.pages[0].Size++ },
		"a later upload": func(v *View) { v.pages[0].Ref = format.DataRef{Seq: x.Seq() + 1, Size: v.pages[0].Ref.Size} },
		"the same twice": func(v *View) { v.pages[1] = v.pages[0] },
	} {
		v := x.View()
		v.pages = slices.Clone(v.pages)
		change(v)
		if _, err := Decode(x.Seq(), v.Encode()); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Decode(x.Seq(), append(newCollectedLog(t).View().Encode(), 0, 0, 0, 0)); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("an empty last section: %v", err)
	}
}

func TestStateWithoutItsPagesAppliesNothing(t *testing.T) {
	x, _ := paged(t)
	s := mustDecode(t, x.Seq(), x.View().Encode())
	defer func() {
		if recover() == nil {
			t.Error("a state without its pages has applied a commit")
		}
	}()
	_ = s.Apply(&format.Commit{Seq: s.Seq() + 1, Time: s.Time() + 1})
}

// FuzzReadPages reads pages whose checksums are right.
func FuzzReadPages(f *testing.F) {
	f.Add(int64(3), []byte{0}, []byte{0})
	one, two := []Keyed{{Key: numberedKey(1), Time: 1}}, []Keyed{{Key: numberedKey(2), Time: 2, Ranges: []format.KeyedRange{{Partition: 1, Count: 2, Base: 3}}}}
	f.Add(int64(3), EncodeKeyed(one), EncodeKeyed(two))
	f.Add(KeyedFor.Microseconds()+1, EncodeKeyed(one), EncodeKeyed(two))
	f.Fuzz(func(t *testing.T, now int64, first, second []byte) {
		v := raisedState(t).View()
		v.time = now
		for i, section := range [][]byte{first, second} {
			count, _ := binary.Uvarint(section)
			_, p := format.EncodePage(format.ClusterID{}, format.DataRef{ID: uint64(i)}, 0, section, uint32(count))
			v.pages = append(v.pages, page{Page: p})
		}
		s, err := Decode(v.seq, v.Encode())
		if err == nil {
			err = s.ReadPages([][]byte{first, second})
		}
		if err != nil {
			if !errors.Is(err, format.ErrCorrupt) {
				t.Fatalf("the error does not say damaged: %v", err)
			}
			return
		}
		if took := recount(s); s.Memory() != took {
			t.Fatalf("memory is %d, but a new count gives %d", s.Memory(), took)
		}
		again := mustDecode(t, s.Seq(), s.View().Encode())
		if err := again.ReadPages([][]byte{first, second}); err != nil {
			t.Fatal(err)
		}
		requireSame(t, again, s)
	})
}
