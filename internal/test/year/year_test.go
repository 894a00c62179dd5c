package year_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
)

var (
	yearShapes  = flag.String("year.shapes", "", "the shapes that TestYear runs, separated by commas, or all; none if empty")
	yearSpan    = flag.Duration("year.span", 0, "how long the shapes run, in virtual time; 0 means as long as each of them says")
	yearVersion = flag.String("year.version", "", "the version that the results name")
	yearWrite   = flag.Bool("year.write", false, "write the tables and the drawing of docs/costs.md from the results")
)

const results = "testdata"

// TestYear runs shapes, and writes the result of each to a file. The file of an unfinished run has the rows so far.
func TestYear(t *testing.T) {
	if *yearShapes == "" {
		t.Skip("-year.shapes is not set")
	}
	chosen := strings.Split(*yearShapes, ",")
	if *yearShapes == "all" {
		chosen = nil
		for _, x := range shapes {
			chosen = append(chosen, x.Name)
		}
	}
	for _, name := range chosen {
		i := slices.IndexFunc(shapes, func(x shape) bool { return x.Name == name })
		if i < 0 {
			t.Fatalf("no shape has the name %q", name)
		}
		x := shapes[i]
		if *yearSpan > 0 {
			x.Span = *yearSpan
		}
		begun := time.Now()
		res := &result{Shape: x, Version: *yearVersion, Machine: fmt.Sprintf("%d cores, GOMAXPROCS %d, %s", runtime.NumCPU(), runtime.GOMAXPROCS(0), runtime.Version())}
		run(t, x, func(r row) {
			res.Rows = append(res.Rows, r)
			res.write(t)
		})
		res.Real = time.Since(begun)
		res.write(t)
		t.Logf("%s: %v of virtual time in %v", x.Name, x.Span, res.Real.Round(time.Second))
		for _, err := range res.flat() {
			t.Log(err)
		}
	}
}

// write writes a result to its file.
func (x *result) write(t *testing.T) {
	t.Helper()
	text, err := json.MarshalIndent(x, "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(results, x.Shape.Name+".json"), append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// short returns a shape of some hours, with a short delete delay and bounds of compaction that are as small.
func short(t *testing.T) shape {
	if testing.Short() {
		t.Skip("it takes long with the race detector")
	}
	was := engine.Compaction
	t.Cleanup(func() { engine.Compaction = was })
	engine.Compaction.Group, engine.Compaction.TailAge = 4, 10*time.Second // so that all levels get segments
	return steady.with("short", "", func(x *shape) {
		x.Record, x.Span, x.Samples, x.Delay, x.Margin, x.Checkpoint = 100, 12_000*time.Second, 20, 10*time.Minute, 2*time.Minute, 100
	})
}

// What a broker has in its bucket, its state and its checkpoints stops growing once the delete delay and, for a topic with
// retention, the retention have passed.
func TestShortYearIsFlat(t *testing.T) {
	short := short(t)
	for _, x := range []shape{
		short.with("one-topic", "", func(*shape) {}),
		short.with("retention", "", func(x *shape) { x.Topics, x.Retention = 20, 30*time.Minute }),
		short.with("burst", "", func(x *shape) { x.Active, x.Retention, x.Span = 10*time.Minute, 4*day, 20*day }),
		short.with("wide", "", func(x *shape) {
			x.Partitions, x.Touch, x.Span, x.Retention = 16, 16, 6000*time.Second, 15*time.Minute
		}),
	} {
		t.Run(x.Name, func(t *testing.T) {
			res := &result{Shape: x}
			run(t, x, func(r row) { res.Rows = append(res.Rows, r) })
			for _, err := range res.flat() {
				t.Error(err)
			}
			last := res.Rows[len(res.Rows)-1]
			if last.Causes["delete"].Deletes == 0 || last.Segments == 0 || last.Restarts[0].Requests == 0 {
				t.Errorf("the last row has no deletes, no segments or no restart: %+v", last)
			}
		})
	}
}

// If the store does not let the broker delete, the bucket grows for ever, and so does the list of what is dead.
func TestYearWithoutDeletesIsNotFlat(t *testing.T) {
	x := short(t).with("refused", "", func(x *shape) { x.Retention, x.refuses = 10*time.Minute, true })
	res := &result{Shape: x}
	run(t, x, func(r row) { res.Rows = append(res.Rows, r) })
	if errs := res.flat(); len(errs) == 0 || !strings.Contains(errs[0].Error(), "objects") {
		t.Errorf("the store refuses to delete, and what grows is %v", errs)
	}
}

// A run is flat if no figure grows by more than a tenth over its last third.
func TestFlat(t *testing.T) {
	rows := func(state ...int64) *result {
		x := &result{}
		for _, n := range state {
			x.Rows = append(x.Rows, row{State: n})
		}
		return x
	}
	if errs := rows(10, 50, 100, 90, 110, 100).flat(); len(errs) != 0 {
		t.Error(errs)
	}
	if errs := rows(10, 50, 100, 90, 111, 100).flat(); len(errs) != 1 {
		t.Error(errs)
	}
}
