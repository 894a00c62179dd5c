package main

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/test/s3test"
)

var life = flag.Bool("life", false, "run the commands of docs/operations.md that let a log live: minutes")

// A log is merged, expires, is deleted from the bucket, and is restored, by the commands that docs/operations.md shows.
func TestLifeOfALog(t *testing.T) {
	if !*life {
		t.Skip("it takes minutes: make life")
	}
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, found := strings.Cut(string(text), "make life runs it -->\n```sh\n")
	script, _, ended := strings.Cut(script, "```")
	if !found || !ended {
		t.Fatal("docs/operations.md has no such commands")
	}
	t.Run("directory", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		live(t, dir, script)
		if commits, err := os.ReadDir(filepath.Join(dir, "life", "log")); err != nil || len(commits) > 130 {
			t.Errorf("the log has %d commits; the first ones should be deleted (%v)", len(commits), err)
		}
	})
	t.Run("versitygw", func(t *testing.T) {
		t.Parallel()
		store, script := s3test.VersityGW(t), script
		for name, part := range map[string]string{"./life-before": "before", "./life ": "life"} {
			script = strings.Replace(script, "="+name, "='"+strings.Replace(store, "?", "/"+part+"?", 1)+"' ", 1)
		}
		live(t, t.TempDir(), script)
	})
}

// live runs the commands, and checks what they print.
func live(t *testing.T, dir, script string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"+script)
	shell.Dir, shell.WaitDelay = dir, 10*time.Second
	address := "127.0.0.1:" + freePort(t)
	shell.Env = append(append(os.Environ(), s3test.Env()...), "PATH="+docPath(t, []string{"bash"}), "SEB_HTTP="+address, "SEB_SERVER=http://"+address)
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	for _, want := range []string{
		`(?m)^0 +60 +60 `, // the first events have expired
		`(?m)^copied to .*: [1-9][0-9]* segments?, `,
		`(?m)^deleted: [1-9][0-9]*: log/00000000000000000001 to `,
		`(?m)^90$`,
	} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("nothing matches %s", want)
		}
	}
	if n := strings.Count(string(out), "verdict: whole"); n != 2 {
		t.Errorf("%d logs are whole", n)
	}
}
