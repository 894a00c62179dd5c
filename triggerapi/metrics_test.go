package triggerapi

import (
	"slices"
	"testing"

	"github.com/simple-event-broker/seb/metric"
	"github.com/simple-event-broker/seb/trigger"
)

func TestMetricsHaveTheCountsOfEachTrigger(t *testing.T) {
	of := func(s trigger.Status) map[string][]metric.Series {
		all := map[string][]metric.Series{}
		for _, f := range families(s) {
			all[f.Name] = f.Series
		}
		return all
	}
	idle := of(trigger.Status{})
	if got := idle["seb_triggers_running"]; len(got) != 1 || got[0].Value != 0 {
		t.Errorf("a broker that runs no triggers has %v", got)
	}
	if got := idle["seb_trigger_fired_total"]; len(got) != 0 {
		t.Errorf("a broker that runs no triggers has firings: %v", got)
	}
	all := of(trigger.Status{
		Running: true, Waiting: map[string]int{"a": 7},
		Counts: map[string]trigger.Counts{"b": {Events: 9}, "a": {Events: 1, Fired: 2, Lost: 3, Repeats: 4, Dropped: 5, ConditionErrors: 6, Gaps: 8}},
	})
	for name, want := range map[string]float64{
		"seb_trigger_events_total": 1, "seb_trigger_fired_total": 2, "seb_trigger_lost_total": 3, "seb_trigger_repeats_total": 4,
		"seb_trigger_dropped_total": 5, "seb_trigger_condition_errors_total": 6, "seb_trigger_waiting_entities": 7,
		"seb_trigger_gap_entities_total": 8,
	} {
		got := all[name]
		if len(got) != 2 || got[0].Value != want || !slices.Equal(got[0].Labels, []string{"a"}) || !slices.Equal(got[1].Labels, []string{"b"}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := all["seb_triggers_running"]; len(got) != 1 || got[0].Value != 1 {
		t.Errorf("a broker that runs triggers has %v", got)
	}
}
