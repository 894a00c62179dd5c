package driplang

import (
	"encoding/json"
	"testing"
)

func TestX(t *testing.T) {
	for _, s := range []string{
		"A", "A AND B OR C THEN D", "NOT A WITHIN 7d", "NOT (A WITHIN 7 days)", "3 TIMES (A OR B) WITHIN 1h 30m", "user_created AS u THEN ((NOT use_feature_x [data.plan == u.data.plan[\"]\"]]) WITHIN 7 days)",
		`"THEN" THEN "a b" THEN com.x.y/z:1`, "(A THEN B WITHIN 2h) WITHIN 1h", "A AND (B AND C)", "A THEN (B THEN C) THEN (D OR E) AND F", "NOT (NOT A)", "* THEN NOT * WITHIN 30d", "(A WITHIN 1h) WITHIN 30m",
		"A THEN", "A WITHIN 7", "A B", "A and B", "3 A", "(A", "A [x", "A [\"x]", "A AS data", "1001 TIMES A", "2 TIMES (A AND B)", "A WITHIN 367d", "A WITHIN 0s", "A WITHIN 7y", "(NOT A WITHIN 7d) WITHIN 1d", "", "A\nOR\n  )",
	} {
		e, err := Parse(s)
		if err != nil {
			t.Logf("%s\n   %v", s, err)
			continue
		}
		j, _ := json.Marshal(e)
		f, err := ParseJSON(j)
		if err != nil || f.String() != e.String() {
			t.Errorf("%s: %v %v", j, err, f)
		}
		g, err := Parse(e.String())
		if err != nil || g.String() != e.String() {
			t.Errorf("%s: %v %v", e, err, g)
		}
		t.Logf("%s\n   %s\n   %s", s, e, j)
	}
	for _, s := range []string{`{"event":"A","event":"B"}`, `{"and":[{"event":"A"}]}`, `{"event":"A","x":1}`, `{"event":1}`, `{`, `{"event":"A"} x`, `{"not":{"event":"A"},"as":"x"}`, `{"event":"A","times":0}`, "{\"then\":[\n {\"event\":\"A\"},\n  {\"evnt\":\"A\"}]}", `{"event":"A","where":"x]"}`, `{"event":"A","within":"5x"}`, `[]`, `{"event":"A",}`} {
		_, err := ParseJSON([]byte(s))
		t.Logf("%s\n   %v", s, err)
	}
}
