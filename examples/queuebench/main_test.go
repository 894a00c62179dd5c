package main

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb/examples/internal/servers"
)

// The program measures all sides. A measurement fails unless the workers finish each message once.
func TestQueuesAreMeasured(t *testing.T) {
	if _, err := servers.FindPostgres(); errors.Is(err, servers.ErrNoPostgres) && os.Getenv("SEB_TEST_REQUIRE") != "1" {
		t.Skip(err)
	}
	var out bytes.Buffer
	args := []string{"-messages", "300", "-workers", "8"}
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"300 messages of 200 bytes, 8 workers", "PostgreSQL 1", "synchronous_commit=on, fsync=on", "over a Unix socket"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
	for _, name := range sideNames {
		rows := regexp.MustCompile(`(?m)^ *`+name+` +\d`).FindAllString(out.String(), -1)
		if len(rows) != 2 {
			t.Errorf("it has %d rows of %s:\n%s", len(rows), name, &out)
		}
	}
}

func TestMistakesAreReported(t *testing.T) {
	for want, args := range map[string][]string{
		`there is no side "kafka"; the sides are postgres-locked, postgres-leased, seb, seb-immediate`: {"-sides", "kafka"},
		`"ten" is not a number`: {"-batches", "1,ten"},
		"at least 1":            {"-messages", "0"},
	} {
		if err := run(t.Context(), args, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
