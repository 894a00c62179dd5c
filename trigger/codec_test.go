package trigger

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/driplang"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares bytes with those of a file, in hex.
func golden(t *testing.T, name string, b []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	got := []byte(fmt.Sprintf("% x\n", b))
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path) //nolint:gosec // a file of this package
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stored as\n%swant\n%s", name, got, want)
	}
}

func exampleManifest() *manifest {
	return &manifest{
		clock: deadlineAt(1_700_000_000_000_000),
		pages: map[int]storedPage{
			7:  {at: 3, clock: position{time: 1_699_999_999_000_000, topic: 5, partition: 1, offset: 99}},
			12: {at: -1, clock: position{}},
		},
		fired: map[firedVersion]lastFire{
			{"drip", 2}: placeOf(&firing{at: deadlineAt(1_699_999_000_000_000), entity: "u1"}),
			{"drip", 3}: placeOf(&firing{at: position{time: 1_699_999_500_000_000, topic: 5, offset: 4}, entity: "u2"}),
		},
		next: map[seb.TopicID]map[int32]seb.Offset{5: {0: 17, 1: 100}},
	}
}

// exampleEvaluator has two versions of a trigger and a page with entities.
func exampleEvaluator(t testing.TB) (*evaluator, int) {
	v := newEvaluator(func(firing) {})
	for i, text := range []string{"A AS a THEN NOT B [data.n == a.data.n] WITHIN 1d", "2 TIMES C THEN D"} {
		e, err := driplang.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c, err := compile(Definition{From: []string{"events"}, When: When{e}, To: "fired"})
		if err != nil {
			t.Fatal(err)
		}
		v.replace(v.version("drip", int64(i+1), c), false)
		for offset, name := range []string{"A", "C", "C"} {
			v.record("events", 5, &seb.Record{
				Value: fmt.Appendf(nil, `{"event":%q,"entity_id":"u1","data":{"n":%d}}`, name, offset), Offset: seb.Offset(10*i + offset),
				LogTime: timeOf(1_700_000_000_000_000 + int64(10*i+offset)),
			})
		}
	}
	v.pass(1_700_000_000_000_000 + 2*24*3600_000_000)
	return v, pageOf("u1")
}

func TestStoredForms(t *testing.T) {
	m := exampleManifest().encode()
	golden(t, "manifest", m)
	got, err := decodeManifest(m)
	if err != nil || !bytes.Equal(got.encode(), m) {
		t.Errorf("the manifest is read as %+v, %v", got, err)
	}
	v, index := exampleEvaluator(t)
	golden(t, "page", v.storePage(index))
	for cut := range m {
		if _, err := decodeManifest(m[:cut]); err == nil {
			t.Errorf("%d of %d bytes of a manifest are accepted", cut, len(m))
		}
	}
}

// FuzzDecodeManifest checks that damaged manifests cause errors, and that others have one form.
func FuzzDecodeManifest(f *testing.F) {
	f.Add(exampleManifest().encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeManifest(b)
		if err != nil {
			return
		}
		again, err := decodeManifest(m.encode())
		if err != nil || !bytes.Equal(again.encode(), m.encode()) {
			t.Errorf("%x is read as %+v, and stored again it is %+v, %v", b, m, again, err)
		}
	})
}

// FuzzLoadPage checks that damaged pages cause errors.
func FuzzLoadPage(f *testing.F) {
	v, index := exampleEvaluator(f)
	f.Add(v.storePage(index))
	versions := map[int64]*active{}
	for _, a := range v.triggers["drip"].versions {
		versions[a.number] = a
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		empty := newEvaluator(nil)
		empty.triggers = map[string]*trigger{"drip": v.triggers["drip"]}
		_ = empty.loadPage(b, position{}, func(_ string, number int64) *active { return versions[number] }) // must not panic
	})
}
