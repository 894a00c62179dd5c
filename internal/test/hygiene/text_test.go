package hygiene

import (
	"fmt"
	"regexp"
	"testing"
)

// trace is a text that no Go file may contain.
type trace struct {
	text *regexp.Regexp
	why  string
}

// The patterns are written so that they don't match their own source.
var traces = []trace{
	{regexp.MustCompile(`\bTO[D]O\b`), "finish it, or describe the limit where a user reads of it"},
	{regexp.MustCompile(`\bFIX[M]E\b`), "fix it, or describe the limit where a user reads of it"},
	{regexp.MustCompile(`(Errorf|New)\("failed t[o] `), "say what was being done; that it failed is clear"},
}

func checkTraces(tr *tree, traces []trace) []string {
	var findings []string
	for _, src := range tr.sources {
		for _, forbidden := range traces {
			if found := forbidden.text.Find(src.text); found != nil {
				findings = append(findings, fmt.Sprintf("%s holds %q: %s", src.path, found, forbidden.why))
			}
		}
	}
	return findings
}

func TestNothingIsLeftForLater(t *testing.T) {
	report(t, checkTraces(realTree(t), traces))
}

func TestTraceCheckFinds(t *testing.T) {
	tests := map[string]struct{ text, finding string }{
		"note":          {"package seb // TO" + "DO: later", "finish it"},
		"mark":          {"package seb // FIX" + "ME", "fix it"},
		"context":       {"package seb; var ctx = context.TO" + "DO()", "finish it"},
		"error":         {`package seb; var err = errors.New("failed t` + `o open")`, "what was being done"},
		"part of word":  {"package seb // MASTO" + "DON", ""},
		"nothing there": {"package seb", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			findings := checkTraces(fakeTree(t, "a.go", test.text), traces)
			if test.finding == "" {
				want(t, findings)
				return
			}
			want(t, findings, test.finding)
		})
	}
}
