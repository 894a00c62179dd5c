package triggerapi

import (
	"strings"
	"testing"
)

func TestParseTime(t *testing.T) {
	for _, s := range []string{"0", "0s", "0h"} {
		if at, err := ParseTime(s); err != nil || at.Unix() != 0 {
			t.Errorf("%s: %v, %v", s, at, err)
		}
	}
	if at, err := ParseTime("1h30m"); err != nil || at.Unix() != 5400 {
		t.Errorf("%v, %v", at, err)
	}
	for _, s := range []string{"", "x", "-1s", "400d"} {
		if _, err := ParseTime(s); err == nil || !strings.Contains(err.Error(), "at most 366 days") {
			t.Errorf("%q: %v", s, err)
		}
	}
}
