package main

import (
	"strings"
	"testing"
)

func TestEvalTime(t *testing.T) {
	for _, s := range []string{"0", "0s", "0h"} {
		if at, err := evalTime(s); err != nil || at.Unix() != 0 {
			t.Errorf("%s: %v, %v", s, at, err)
		}
	}
	if at, err := evalTime("1h30m"); err != nil || at.Unix() != 5400 {
		t.Errorf("%v, %v", at, err)
	}
	for _, s := range []string{"", "x", "-1s", "400d"} {
		if _, err := evalTime(s); err == nil || !strings.Contains(err.Error(), "at most 366 days") {
			t.Errorf("%q: %v", s, err)
		}
	}
}
