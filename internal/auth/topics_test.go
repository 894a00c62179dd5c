package auth

import "testing"

func TestCovers(t *testing.T) {
	for topic, want := range map[string]bool{"a": true, "ab": false, "b.": true, "b.c": true, "b": false, "": false} {
		if got := Covers([]string{"a", "b.*"}, topic); got != want {
			t.Errorf("%q: %v", topic, got)
		}
	}
	if Covers(nil, "a") || !Covers([]string{"*"}, "_seb.a") {
		t.Error("no patterns, or all topics")
	}
}

func TestReserved(t *testing.T) {
	for topic, want := range map[string]bool{"_seb.a": true, "_seb.": true, "_seb": false, "a_seb.": false, "_SEB.a": false, "": false} {
		if got := Reserved(topic); got != want {
			t.Errorf("%q: %v", topic, got)
		}
	}
}
