package main

import (
	"strings"
	"testing"
	"time"
)

func TestProgressShowsOnlyWhatTakesLong(t *testing.T) {
	var out strings.Builder
	start := time.Unix(1_700_000_000, 0)
	p := &progress{w: &out, unit: "records", total: 40 << 20, start: start, updated: start}
	p.update(start.Add(time.Second), 100, 1<<20)
	p.clear()
	if out.Len() > 0 {
		t.Errorf("after a second it shows %q", &out)
	}
	p.update(start.Add(4*time.Second), 1000, 8<<20)
	if want := "\r\x1b[K[####----------------] 1000 records, 8 MiB, 2 MiB/s, 20%, 16s left"; !strings.HasSuffix(strings.ReplaceAll(out.String(), ownMark, ""), want) {
		t.Errorf("it shows %q, not %q", &out, want)
	}
	shown := out.Len()
	p.update(start.Add(4*time.Second+progressEvery/2), 1001, 8<<20)
	if out.Len() != shown {
		t.Error("it shows more than can be read")
	}
	p.update(start.Add(10*time.Second), 5000, 40<<20)
	if strings.HasSuffix(out.String(), "left") {
		t.Errorf("nothing is left, and it shows %q", &out)
	}
}

func TestProgressCounts(t *testing.T) {
	var out strings.Builder
	start := time.Unix(1_700_000_000, 0)
	p := &progress{w: &out, unit: "objects", total: 4000, counted: true, start: start, updated: start}
	p.update(start.Add(4*time.Second), 1000, 8<<20)
	if want := "[#####---------------] 1000 objects, 8 MiB, 2 MiB/s, 25%, 12s left"; !strings.HasSuffix(strings.ReplaceAll(out.String(), ownMark, ""), want) {
		t.Errorf("it shows %q, not %q", &out, want)
	}
}

func TestProgressIsForTerminals(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, 0)
	p.update(p.start.Add(time.Hour), 1, 1)
	p.clear()
	if out.Len() > 0 {
		t.Errorf("a file gets %q", &out)
	}
}

func TestBarIsFullAtTheEnd(t *testing.T) {
	for done, want := range map[int64]string{
		0: "[--------------------]", 49: "[#########-----------]", 50: "[##########----------]", 100: "[####################]",
	} {
		if got := bar(done, 100); got != want {
			t.Errorf("%d of 100: %s", done, got)
		}
	}
}
