package trigger

import "testing"

func (r *rig) dump(t *testing.T) {
	for _, topic := range []string{"_seb.triggers", "events", "_seb.triggers.state", "fired"} {
		for _, rec := range r.read(topic) {
			t.Logf("%s %d %s %.300s", topic, rec.Offset, rec.LogTime.Format("15:04:05.000000"), rec.Value)
		}
	}
}
