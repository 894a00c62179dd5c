package year_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	page         = "../../../docs/costs.md"
	drawing      = "../../../docs/costs.svg"
	figuresBegin = "<!-- The figures below are written by `make year`. -->\n"
	figuresEnd   = "<!-- The figures end here. -->\n"
)

// The prices of the tables: Amazon S3, Standard, us-east-1, 2026-11. Deletes are free.
const (
	createDollars = 5.0 / 1e6 // PUT and LIST
	getDollars    = 0.4 / 1e6
	storeDollars  = 0.023 / 1e9 // for a byte and a month
	month         = 30 * day
)

// The tables and the drawing of docs/costs.md show the results.
func TestPage(t *testing.T) {
	all := readResults(t)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(text), figuresBegin)
	_, after, ended := strings.Cut(rest, figuresEnd)
	if !begun || !ended {
		t.Fatalf("%s has no place for figures", page)
	}
	for path, want := range map[string]string{page: before + figuresBegin + tables(all) + figuresEnd + after, drawing: draw(all)} {
		if *yearWrite {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, []byte(want)) {
			t.Errorf("%s differs from the results in internal/test/year/testdata: run go test ./internal/test/year -run TestPage -year.write", path)
		}
	}
}

// readResults returns the results of all shapes that were run, in the order of the shapes.
func readResults(t *testing.T) (all []*result) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(results, "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no results: %v", err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		x := &result{}
		if err == nil {
			err = json.Unmarshal(text, x)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, x)
	}
	place := func(x *result) int {
		return slices.IndexFunc(shapes, func(y shape) bool { return y.Name == x.Shape.Name })
	}
	slices.SortFunc(all, func(x, y *result) int { return cmp.Compare(place(x), place(y)) })
	return all
}

// span returns how long row i took.
func (x *result) span(i int) time.Duration {
	if i == 0 {
		return x.Rows[0].At
	}
	return x.Rows[i].At - x.Rows[i-1].At
}

// perMonth returns what requests of row i cost in a month at its rate.
func (x *result) perMonth(i int, use seb.StoreUse) float64 {
	return (float64(use.Creates+use.Lists)*createDollars + float64(use.Gets)*getDollars) * float64(month) / float64(x.span(i))
}

// requestDollars returns what all requests of row i cost in a month at its rate.
func (x *result) requestDollars(i int) (sum float64) {
	for _, cause := range causes(&x.Rows[i]) {
		sum += x.perMonth(i, x.Rows[i].Causes[cause])
	}
	return sum
}

// bytes returns how many bytes the bucket had.
func (r *row) bytes() (n int64) {
	for _, held := range r.Held {
		n += held.Bytes
	}
	return n
}

// causes returns the causes that had requests, by name.
func causes(r *row) (names []string) {
	for cause, use := range r.Causes {
		if use != (seb.StoreUse{}) {
			names = append(names, cause)
		}
	}
	slices.Sort(names)
	return names
}

// tables returns the tables of the page.
func tables(all []*result) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("")
	line("| shape | span | commits | objects | bucket, MB | state, KB | checkpoint, KB | restart: requests, seconds at 30 and 100 ms | dollars a month: requests, storage |")
	line("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, x := range all {
		last := len(x.Rows) - 1
		r, commits := &x.Rows[last], 0
		for i := range x.Rows {
			commits += x.Rows[i].Commits
		}
		line("| [%s](#%s) | %s | %s | %s | %s | %s | %s | %s | %.2f, %.2f |", x.Shape.Name, x.Shape.Name, length(r.At), grouped(int64(commits)), grouped(r.objects()), mega(r.bytes()),
			kilo(r.State), kilo(r.Checkpoint), r.restarts(), x.requestDollars(last), float64(r.bytes())*storeDollars)
	}
	for _, x := range all {
		line("\n### %s\n", x.Shape.Name)
		line("%s.\n%s\n", strings.ToUpper(x.Shape.About[:1])+x.Shape.About[1:], x.ran())
		line("| until | commits | objects: commits, data, segments, checkpoints | bucket, MB | in segments: live, dead, MB | batches in the tail | state, KB | checkpoint, KB | restart | dollars a month: requests, storage |")
		line("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
		for i := range x.Rows {
			r := &x.Rows[i]
			line("| %s | %s | %s, %s, %s, %s | %s | %s, %s | %s | %s | %s | %s | %.2f, %.2f |", length(r.At), grouped(int64(r.Commits)),
				grouped(r.Held[commits].Objects), grouped(r.Held[data].Objects), grouped(r.Held[segments].Objects), grouped(r.Held[checkpoints].Objects), mega(r.bytes()),
				mega(r.LiveBytes), mega(r.DeadBytes), grouped(r.TailBatches), kilo(r.State), kilo(r.Checkpoint), r.restarts(), x.requestDollars(i), float64(r.bytes())*storeDollars)
		}
		line("\nRequests of the last row:\n")
		line("| cause | PUT | GET | LIST | DELETE | MB sent | MB received | dollars a month |")
		line("| --- | --- | --- | --- | --- | --- | --- | --- |")
		last := len(x.Rows) - 1
		for _, cause := range causes(&x.Rows[last]) {
			use := x.Rows[last].Causes[cause]
			line("| %s | %s | %s | %s | %s | %s | %s | %.2f |", cause, grouped(use.Creates), grouped(use.Gets), grouped(use.Lists), grouped(use.Deletes), mega(use.SentBytes), mega(use.ReceivedBytes), x.perMonth(last, use))
		}
	}
	line("")
	return b.String()
}

// ran tells how a result came about.
func (x *result) ran() string {
	if x.Real == 0 {
		return fmt.Sprintf("The run was ended before its end. Version %s, %s.", x.Version, x.Machine)
	}
	return fmt.Sprintf("The run took %v. Version %s, %s.", x.Real.Round(time.Second), x.Version, x.Machine)
}

func (r *row) restarts() string {
	text := fmt.Sprintf("%d", r.Restarts[0].Requests)
	for _, x := range r.Restarts {
		text += fmt.Sprintf(", %.1f", x.Lasts.Seconds())
	}
	return text
}

func length(d time.Duration) string {
	switch {
	case d >= 10*day:
		return fmt.Sprintf("%.0f d", d.Hours()/24)
	case d >= day:
		return fmt.Sprintf("%.1f d", d.Hours()/24)
	case d >= time.Hour:
		return fmt.Sprintf("%.1f h", d.Hours())
	default:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
}

// grouped writes a number with commas.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// mega and kilo write bytes as MB and KB (powers of ten), with a digit behind the point if they are few.
func mega(n int64) string { return scaled(n, 1e6) }
func kilo(n int64) string { return scaled(n, 1e3) }

func scaled(n int64, unit float64) string {
	if x := float64(n) / unit; x < 10 {
		return fmt.Sprintf("%.1f", x)
	}
	return grouped(int64(float64(n)/unit + 0.5))
}
