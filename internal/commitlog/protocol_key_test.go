package commitlog

import (
	"bytes"
	"github.com/simple-event-broker/seb/internal/format"
	"reflect"
	"slices"
	"testing"
	"time"
)

// TestKeyKnowsTheProtocol fails if Protocol gets a field that AppendKey does not know.
func TestKeyKnowsTheProtocol(t *testing.T) {
	fields := func(of reflect.Type) (names []string) {
		for i := range of.NumField() {
			names = append(names, of.Field(i).Name)
		}
		return names
	}
	for of, known := range map[reflect.Type][]string{
		reflect.TypeFor[Protocol](): {"deleteDelay", "margin", "applied", "tip", "lease", "expired", "newer", "known", "gone", "incomplete", "ended", "end", "more",
			"settled", "claim", "sync", "streak", "upTo", "answers", "peak", "mark", "halt"},
		reflect.TypeOf(Protocol{}.newer):      {"seq", "at", "end", "ended"},
		reflect.TypeOf(Protocol{}.incomplete): {"seq", "page"},
		reflect.TypeFor[Answer]():             {"Seq", "Found", "Hash", "Prev", "At", "Known", "listed", "told"},
		reflect.TypeFor[Claim]():              {"Seq", "Hash", "Sent"},
		reflect.TypeFor[Stamp]():              {"Store", "Boot"},
	} {
		if got := fields(of); !slices.Equal(got, known) {
			t.Errorf("%v has the fields %v, keys know %v", of, got, known)
		}
	}
}

func TestKeyRoundTrip(t *testing.T) {
	at := func(hours int) Stamp {
		return Stamp{Store: testEpoch.Add(time.Duration(hours) * time.Hour), Boot: time.Duration(hours) * time.Hour}
	}
	p := NewProtocol(24*time.Hour, time.Hour)
	p.applied, p.tip, p.lease, p.expired, p.known, p.gone = 3, format.Hash{1, 2}, at(1), true, 9, 6
	p.newer.seq, p.newer.at, p.newer.end, p.newer.ended = 7, at(2), 8, true
	p.ended, p.end, p.more, p.claim, p.sync, p.streak, p.upTo = true, 6, true, Claim{Seq: 4, Hash: format.Hash{7}, Sent: true}, true, 3, 5
	p.answers = []Answer{{Seq: 5, At: at(3), Known: 4}, {Seq: 4, Found: true, Hash: format.Hash{4}, Prev: format.Hash{3}, At: at(2), told: true}}
	p.mark = at(3).Store
	now := at(4).Store
	key := p.AppendKey(nil, now, 100)
	q, rest := ProtocolFromKey(append(bytes.Clone(key), 'x'), 24*time.Hour, time.Hour)
	if string(rest) != "x" {
		t.Fatalf("%d bytes are left", len(rest))
	}
	if again := q.AppendKey(nil, now, 100); !bytes.Equal(again, key) {
		t.Fatalf("key is\n%x, was\n%x", again, key)
	}
	if q.Known() != 9 || q.Claim() != p.claim || !q.Held(4) || !q.Held(5) || !q.answer(4).told || q.answer(5).told || q.newer.end != 8 || q.gone != 6 || q.end != 6 || !q.more {
		t.Fatalf("read back is %+v, was %+v", q, p)
	}
}
