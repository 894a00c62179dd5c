package auth

import "testing"

// A caller may paste the command of a hint into a shell, also if somebody else chose the topic's name.
func TestNewKeyQuotesOnlyPlainTopics(t *testing.T) {
	for topic, want := range map[string]string{
		"":                  "an admin creates one with `seb key create NAME --scope read`",
		"orders.eu_1-x":     "an admin creates one with `seb key create NAME --scope read --topic orders.eu_1-x`",
		"a; rm -rf /":       "an admin creates one with `seb key create NAME --scope read --topic TOPIC`",
		"a\nb":              "an admin creates one with `seb key create NAME --scope read --topic TOPIC`",
		"orders\n":          "an admin creates one with `seb key create NAME --scope read --topic TOPIC`",
		"\x1b[2Jbestellung": "an admin creates one with `seb key create NAME --scope read --topic TOPIC`",
	} {
		if got := NewKey("read", topic); got != want {
			t.Errorf("for %q: %s, not %s", topic, got, want)
		}
	}
}
