package main

import "testing"

func TestVersionIsThatOfTheModuleOrOfGit(t *testing.T) {
	for _, c := range []struct{ stamped, git, want string }{
		{"v1.2.3", "v1.2.2-5-gabcdef0", "v1.2.3"},
		{"v0.0.0-20260131120000-abcdef012345+dirty", "", "v0.0.0-20260131120000-abcdef012345+dirty"},
		{"(devel)", "v1.2.2-5-gabcdef0", "v1.2.2-5-gabcdef0"},
		{"", "abcdef0-dirty", "abcdef0-dirty"},
		{"(devel)", "", "unknown"},
		{"", "", "unknown"},
	} {
		if got := versionOf(c.stamped, c.git); got != c.want {
			t.Errorf("stamped %q, git %q: %q, want %q", c.stamped, c.git, got, c.want)
		}
	}
}
