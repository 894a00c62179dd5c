package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
)

// Topic t (id 1) exists since slot 1 and has a record of slot 2. Its second partition came in slot 4. Slot 6 has the append x
// in topic out (id 2), at 1 s of the log's time. Slot 8 has a further record of t.
func TestDecisionsThatDoNotAddUpAreFound(t *testing.T) {
	after := func(us int64) func(o *op) { return func(o *op) { o.decision.after = time.UnixMicro(us) } }
	ends := func(id string, offsets ...seb.Offset) func(o *op) {
		return func(o *op) {
			o.decision.cut.Topics[0].ID, o.decision.cut.Topics[0].Ends = id, seb.Offsets{}
			for p, offset := range offsets {
				o.decision.cut.Topics[0].Ends[int32(p)] = offset
			}
		}
	}
	refused := func(code seb.Code) func(o *op) {
		return func(o *op) { o.failure, o.outcome, o.values = code, seb.NotCommitted, nil }
	}
	for name, c := range map[string]struct {
		change []func(o *op)
		wrong  bool
	}{
		"both conditions held":               {nil, false},
		"without the time":                   {[]func(*op){after(0)}, false},
		"the time of the commit":             {[]func(*op){after(1_000_000)}, true},
		"an end too few":                     {[]func(*op){ends("x.1", 1)}, true},
		"an end too many":                    {[]func(*op){ends("x.1", 1, 0, 0)}, true},
		"ends from before":                   {[]func(*op){ends("x.1", 0, 0)}, true},
		"ends from later":                    {[]func(*op){ends("x.1", 2, 0)}, true},
		"another topic":                      {[]func(*op){ends("x.2", 0)}, true},
		"no topic":                           {[]func(*op){ends("x.9", 0)}, true},
		"the refusal of ends that changed":   {[]func(*op){refused(seb.CodeEndsConflict)}, false},
		"the refusal of ends that stayed":    {[]func(*op){ends("x.1", 2, 0), refused(seb.CodeEndsConflict)}, true},
		"too early":                          {[]func(*op){refused(seb.CodeTooEarly)}, false},
		"too early for a time that has been": {[]func(*op){after(1), refused(seb.CodeTooEarly)}, true},
	} {
		at := func(seq format.Seq) recordInfo { return recordInfo{at: moment{seq: seq}, time: 1_000_000} }
		all := truth{
			1: {name: "t", partitions: []partition{{ids: []string{"a", "b"}, info: []recordInfo{at(2), at(8)}, addedIn: 1}, {addedIn: 4}}},
			2: {name: "out", partitions: []partition{{ids: []string{"x"}, info: []recordInfo{at(6)}, addedIn: 1}}},
		}
		o := &op{kind: appends, topic: "out", values: []string{"x"}, decision: &decision{
			cut:   seb.Cut{LogTime: time.UnixMicro(500_000), Topics: []seb.TopicCut{{Topic: "t", ID: "x.1", Ends: seb.Offsets{0: 1, 1: 0}}}},
			after: time.UnixMicro(999_999),
		}}
		for _, change := range c.change {
			change(o)
		}
		x := &checker{
			history: newHistory(func() time.Duration { return 0 }), final: &log{all: all},
			at: map[string][]position{"x": {{place{"out", 0}, 0}}}, lives: map[string]format.TopicID{"x": 2},
		}
		x.checkDecisions([]*op{o})
		if found := x.history.violations; len(found) > 0 != c.wrong || c.wrong && !strings.Contains(found[0], "Condition") {
			t.Errorf("%s: found %v", name, found)
		}
	}
}
