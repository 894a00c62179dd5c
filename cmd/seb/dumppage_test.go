package main

import (
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// pageOf returns a page with two keys, the commit that makes the log refer to it, and a checkpoint after that commit.
func pageOf() (page, commit, checkpoint []byte) {
	s := state.New()
	apply := func(entries ...format.Entry) *format.Commit {
		c := &format.Commit{Seq: s.Seq() + 1, Time: s.NextTime(1_700_000_000_000_000), Entries: entries}
		if err := s.Apply(c); err != nil {
			panic(err)
		}
		return c
	}
	apply(&format.LevelRaised{Level: format.LevelSegments, DeleteDelay: time.Hour}, &format.TopicCreated{ID: 1, Partitions: 2, Name: "t"}, &format.Batch{Topic: 1, Partition: 1, Count: 3, Size: 61})
	apply(&format.AppendKeyed{Topic: 1, Key: format.Digest{0xab}, Print: format.Digest{0xef}, Ranges: []format.KeyedRange{{Partition: 1, Count: 2, Base: 1}}}, &format.AppendKeyed{Key: format.Digest{0xcd}},
		&format.AppendKeyed{Key: format.Digest{0x12}})
	list := s.PlanPage(1, 50)
	page, p := format.EncodePage(format.ClusterID{}, format.DataRef{Seq: 2, ID: 0xabc}, 0, state.EncodeKeyed(list), uint32(len(list)))
	c := apply(&format.PageStored{Page: p, First: list[0].Key})
	cp := &format.Checkpoint{Seq: s.Seq(), Body: s.View().Encode()}
	return page, format.EncodeCommit(c), append(format.EncodeCheckpoint(cp), cp.Body...)
}

const pageName = "data/00000000000000000002-0000000000000abc"

func TestDumpShowsPages(t *testing.T) {
	page, commit, checkpoint := pageOf()
	zeros := strings.Repeat("00", 15)
	for name, test := range map[string]struct {
		body []byte
		want []string
	}{
		pageName: {page, []string{
			"begun after  slot 2\n", "of kind 3: 2 idempotency keys, ", "key          ab" + zeros + " at 2023-11-14T22:13:20.000001Z, request ef" + zeros,
			"partition 1: offsets 1 to 2\n", "key          cd" + zeros,
		}},
		"log/00000000000000000003":        {commit, []string{"the oldest 2 idempotency keys that are in no page, from ab" + zeros + " on, are in " + pageName + ": "}},
		"checkpoint/00000000000000000003": {checkpoint, []string{"1 appends are remembered by their idempotency keys\n", "page         2 appends before those, of which the oldest may be forgotten: " + pageName + ", "}},
	} {
		var out strings.Builder
		d := &dumper{printer: printer{w: &out}}
		if err := d.dump(test.body, name); err != nil || d.Bad > 0 {
			t.Errorf("%s: %d faults, %v\n%s", name, d.Bad, err, &out)
		}
		for _, want := range test.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: it does not show %q:\n%s", name, want, &out)
			}
		}
		if p, err := format.DecodePrologue(test.body); err != nil || judgeHead(p, test.body, int64(len(test.body))) != nil {
			t.Errorf("%s: the head is refused: %v", name, judgeHead(p, test.body, int64(len(test.body))))
		}
	}
}
