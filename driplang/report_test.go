package driplang

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	const once = " Each entity fires once."
	for _, c := range []struct{ text, repeat, english, warning, kept string }{
		{
			"user_created THEN NOT use_feature_x WITHIN 7d", "once",
			"Fires 7 days after user_created if no use_feature_x comes before." + once, "", string(KeptForever),
		},
		{
			"user_created AS u THEN (NOT use_feature_x [data.plan == u.data.plan] WITHIN 7d)", "every",
			"Fires 7 days after user_created if no use_feature_x with [data.plan == u.data.plan] comes before.", "", string(KeptWindow),
		},
		{"A", "every", "Fires when A comes.", "", string(KeptNothing)},
		{"A AND B", "once", "Fires when A comes and B comes." + once, "counts from the start of the trigger", string(KeptForever)},
		{"A THEN B", "every", "Fires when A comes, then B comes.", "", string(KeptForever)},
		{"A THEN B WITHIN 1h", "every", "Fires when A comes, then B comes within 1 hour.", "", string(KeptWindow)},
		{
			"3 TIMES F WITHIN 1h", "at most 1 per 1h",
			"Fires when F comes 3 times within 1 hour of the first of these events. Each entity fires at most 1 time in 1 hour.", "", string(KeptWindow),
		},
		{
			"A THEN (B AND NOT C) WITHIN 1d", "every", "Fires when A comes, then (B comes and C does not come) within 1 day. " +
				"What does not come is known for certain when that time is over.", "", string(KeptWindow),
		},
		{"A THEN NOT B", "every", "Fires when A comes, then B does not come.", "NOT B WITHIN 7d", string(KeptForever)},
		{"A THEN (C OR NOT B)", "every", "Fires when A comes, then C comes or B does not come.", "(C OR NOT B) WITHIN 7d", string(KeptForever)},
		{"A THEN B AND C WITHIN 1d", "every", "Fires when A comes, then B comes and (C comes within 1 day).", "", string(KeptForever)},
		{"A THEN B OR NOT C WITHIN 1d", "every", "Fires when A comes, then B comes or (C does not come within 1 day).", "", string(KeptForever)},
		{
			"A WITHIN 1h THEN B", "every", "Fires when A comes within 1 hour of the first of these events, then B comes.",
			"the window of A WITHIN 1h does nothing", string(KeptForever),
		},
		{"* THEN NOT * WITHIN 30d", "every", "Fires 30 days after any event if no event comes before.", "", string(KeptWindow)},
	} {
		e, err := Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		repeat, err := ParseRepeat(c.repeat)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Check(e, repeat)
		if err != nil {
			t.Fatal(c.text, err)
		}
		if r.English != c.english || string(r.Kept) != c.kept {
			t.Errorf("%s, %s:\n%s\nkept: %s", c.text, c.repeat, r.English, r.Kept)
		}
		if warnings := strings.Join(r.Warnings, " "); (warnings == "") != (c.warning == "") || !strings.Contains(warnings, c.warning) {
			t.Errorf("%s: warnings %q, want %q", c.text, warnings, c.warning)
		}
	}
}

func TestLastingFirstPartFiresOnceOnly(t *testing.T) {
	e, err := Parse("A AND B")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Check(e, Every); err == nil || !strings.Contains(err.Error(), "the repeat can only be once") {
		t.Error(err)
	}
}
