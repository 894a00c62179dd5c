package httpapi

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// docs/http.md says of every error status whether a client should retry.
func TestRetryTableHasEveryStatus(t *testing.T) {
	page, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "\n## Which status to retry\n")
	if table, _, _ = strings.Cut(table, "\n\nEvery"); !found || !strings.Contains(table, "| --- |") {
		t.Fatal("there is no table")
	}
	var rows []string // the first two cells
	for row := range strings.Lines(table) {
		if cells := strings.Split(row, " | "); len(cells) == 3 {
			rows = append(rows, cells[0]+" | "+cells[1])
		}
	}
	retry := map[int]bool{http.StatusRequestTimeout: true, http.StatusTooManyRequests: true, http.StatusServiceUnavailable: true}
	for code, status := range statuses {
		said := ""
		for _, row := range rows {
			if cell, _, _ := strings.Cut(row, " | "); strings.Contains(cell, fmt.Sprint(status)) {
				said = row
			}
		}
		answer := "| no"
		if retry[status] {
			answer = "| yes"
		}
		if !strings.Contains(said, answer) {
			t.Errorf("of %d (%s) the table says %q, want %q", status, code, said, answer)
		}
	}
}
