package driplang

import (
	"strings"
	"testing"
)

func TestRefused(t *testing.T) {
	for _, c := range [][2]string{
		{"NOT A", "is true before anything"},
		{"NOT A THEN B", "no event can begin NOT A"},
		{"A AND NOT B THEN C", "needs a WITHIN of its own"},
		{"A OR NOT B", "is true before anything"},
		{"NOT A WITHIN 1h", "no event can begin"},
		{"NOT (A WITHIN 1h)", "no event can begin"},
		{"A OR (NOT B WITHIN 1h)", "either all events are in a window"},
		{"(A OR NOT B) WITHIN 1h", "no event can begin"},
		{"NOT A WITHIN 1h THEN B", "no event can begin"},
		{"A AND (B WITHIN 1h)", "either all events are in a window"},
		{"A THEN (B THEN NOT C WITHIN 1h) WITHIN 1d", "a window must not be in another window"},
		{"A THEN (NOT B AND C WITHIN 1h) WITHIN 1d", "a window must not be in another window"},
		{"(NOT B WITHIN 2h) WITHIN 1h", "a window must not be in another window"},
		{"A THEN NOT B THEN C", "needs a WITHIN of its own"},
		{"A THEN (B OR NOT C) THEN D", "needs a WITHIN of its own"},
		{"A THEN ((C AND NOT B) THEN D) WITHIN 1h", "needs a WITHIN of its own"},
		{"A AS x THEN B AS x", "used for two events"},
		{"A AS a OR B THEN C [a.data.x == 1]", "a can be used only right of a THEN"},
		{"A [b.data.x == 1] THEN B AS b", "b can be used only right of a THEN"},
		{"A THEN NOT B AS b WITHIN 1h THEN C [b.key == key]", "b can be used only right of a THEN"},
		{"A [data.]", "the condition of A: at 1:6"},
		{"A [size(key)]", "true or false"},
		{"A [nothing(key)]", "undeclared reference"},
	} {
		e, err := Parse(c[0])
		if err == nil {
			_, err = Compile(e)
		}
		if err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: %v, want %q", c[0], err, c[1])
		}
	}
}

func TestAccepted(t *testing.T) {
	for _, text := range []string{
		"user_created THEN ((NOT use_feature_x) WITHIN 7 days)",
		"NOT (NOT A)",
		"(A AND NOT B) WITHIN 1h",
		"A THEN NOT B WITHIN 1h THEN C",
		"A THEN NOT (B WITHIN 1h) THEN C",
		"A AND NOT (B OR C)",
		"(A WITHIN 1h) OR (B WITHIN 2h)",
		"A AS a THEN B AS b [data.x == a.data.x] THEN C [b.data.y == a.data['y'] && log_time > a.log_time]",
		"3 TIMES F AS f THEN G [data.x == f.data.x]",
		"A [data.items.exists(i, i.price > 3)]",
	} {
		program(t, text)
	}
}
