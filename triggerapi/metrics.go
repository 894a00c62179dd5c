package triggerapi

import (
	"maps"
	"slices"

	"github.com/simple-event-broker/seb/metric"
	"github.com/simple-event-broker/seb/trigger"
)

// Metrics returns a function that reads the metrics of triggers. Only the broker that runs the triggers has series by trigger: they
// count from when it began to run them.
func Metrics(t *trigger.Triggers) func() []metric.Family {
	return func() []metric.Family { return families(t.Status()) }
}

func families(s trigger.Status) []metric.Family {
	running := 0.0
	if s.Running {
		running = 1
	}
	counter := func(name, help string) metric.Family {
		return metric.Family{Name: name, Help: help, Kind: metric.Counter, Labels: []string{"trigger"}}
	}
	events := counter("seb_trigger_events_total", "Events that the trigger looked at.")
	fired := counter("seb_trigger_fired_total", "Firings.")
	lost := counter("seb_trigger_lost_total", "Runs that became true at the same moment as a later run of the entity, which fired in their place.")
	repeats := counter("seb_trigger_repeats_total", "Firings that the repeat of the trigger does not allow.")
	dropped := counter("seb_trigger_dropped_total", "Runs that did not begin, since the entity had too many.")
	wrong := counter("seb_trigger_condition_errors_total", "Conditions that could not be decided, and so did not hold.")
	gaps := counter("seb_trigger_gap_entities_total", "Entities whose runs ended, since records were deleted before the trigger saw them.")
	waiting := metric.Family{
		Name: "seb_trigger_waiting_entities", Help: "Entities that wait for an event or a deadline.", Kind: metric.Gauge, Labels: []string{"trigger"},
	}
	for _, name := range slices.Sorted(maps.Keys(s.Counts)) {
		c := s.Counts[name]
		events.Add(float64(c.Events), name)
		fired.Add(float64(c.Fired), name)
		lost.Add(float64(c.Lost), name)
		repeats.Add(float64(c.Repeats), name)
		dropped.Add(float64(c.Dropped), name)
		wrong.Add(float64(c.ConditionErrors), name)
		gaps.Add(float64(c.Gaps), name)
		waiting.Add(float64(s.Waiting[name]), name)
	}
	return []metric.Family{
		metric.One(metric.Gauge, "seb_triggers_running", "1 if this broker runs the triggers, else 0.", running),
		events, fired, lost, repeats, dropped, wrong, gaps, waiting,
	}
}
