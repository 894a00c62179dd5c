package main

import (
	"context"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/simple-event-broker/seb/internal/test/loglines"
)

// TestScripts runs testdata/script/*.txtar. In addition to testscript's own commands
// they have:
//
//	serve NAME [flags]  starts a broker; $NAME and $SEB_SERVER are its URL
//	shutdown NAME       ends it by SIGTERM; it must leave in time and well
//	crash NAME          ends it by SIGKILL
//	setenv NAME FILE    sets NAME to what is in FILE
//	original [-gzip] [-cut] FILE VALUE...
//	                    writes a batch file of the original Seb, without its
//	                    last byte, perhaps
//
// What a broker wrote is in NAME.stdout and NAME.stderr once it has ended.
func TestScripts(t *testing.T) {
	scripts := []string{"first-steps", "follow", "import", "killed", "top", "two-brokers"} // with several processes at once
	if !testing.Short() {
		scripts = []string{"*"}
	}
	var files []string
	for _, name := range scripts {
		found, err := filepath.Glob(filepath.Join("testdata/script", name+".txtar"))
		if err != nil || len(found) == 0 {
			t.Fatalf("script %s: %d, %v", name, len(found), err)
		}
		files = append(files, found...)
	}
	testscript.Run(t, testscript.Params{
		Files: files,
		Setup: func(env *testscript.Env) error {
			env.Values[brokersKey{}] = map[string]*process{}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"serve":    func(ts *testscript.TestScript, neg bool, args []string) { scriptServe(t, ts, neg, args) },
			"shutdown": scriptStop,
			"crash":    scriptCrash,
			"original": scriptOriginal,
			"setenv":   scriptSetenv,
		},
	})
}

type brokersKey struct{}

func scriptBrokers(ts *testscript.TestScript) map[string]*process {
	return ts.Value(brokersKey{}).(map[string]*process)
}

func scriptServe(t *testing.T, ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: serve NAME [flags]")
	}
	env := append(os.Environ(), "HOME="+ts.Getenv("HOME"))
	p, err := startServe(context.Background(), ts.MkAbs("."), env, args[1:]...)
	ts.Check(err)
	ts.Defer(func() {
		p.kill()
		loglines.Check(t, p.stderr.String())
	})
	scriptBrokers(ts)[args[0]] = p
	ts.Setenv(args[0], p.url)
	ts.Setenv("SEB_SERVER", p.url)
}

func scriptStop(ts *testscript.TestScript, neg bool, args []string) {
	p := scriptBroker(ts, neg, args)
	code, err := p.stop()
	ts.Check(err)
	writeOutputs(ts, args[0], p)
	if code != exitOK {
		ts.Fatalf("serve ended with exit code %d:\n%s", code, p.stderr)
	}
}

func scriptCrash(ts *testscript.TestScript, neg bool, args []string) {
	p := scriptBroker(ts, neg, args)
	p.kill()
	writeOutputs(ts, args[0], p)
}

func scriptBroker(ts *testscript.TestScript, neg bool, args []string) *process {
	if neg || len(args) != 1 || scriptBrokers(ts)[args[0]] == nil {
		ts.Fatalf("usage: shutdown|crash NAME, with the name of a broker that was started")
	}
	return scriptBrokers(ts)[args[0]]
}

func scriptSetenv(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: setenv NAME FILE")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile(args[1])))
}

func scriptOriginal(ts *testscript.TestScript, neg bool, args []string) {
	pack, cut := false, false
	for ; len(args) > 0 && strings.HasPrefix(args[0], "-"); args = args[1:] {
		pack, cut = pack || args[0] == "-gzip", cut || args[0] == "-cut"
	}
	if neg || len(args) == 0 {
		ts.Fatalf("usage: original [-gzip] [-cut] FILE VALUE...")
	}
	file := originalAt(1709210096789012, args[1:]...)
	if pack {
		file = packed(file)
	}
	if cut {
		file = file[:len(file)-1]
	}
	ts.Check(os.MkdirAll(filepath.Dir(ts.MkAbs(args[0])), 0o700))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), file, 0o600))
}

func writeOutputs(ts *testscript.TestScript, name string, p *process) {
	ts.Check(os.WriteFile(ts.MkAbs(name+".stdout"), []byte(p.stdout.String()), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs(name+".stderr"), []byte(p.stderr.String()), 0o600))
}

// A script calls every command successfully and unsuccessfully.
func TestScriptsCallEveryCommandWellAndBadly(t *testing.T) {
	paths, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	called := map[string]bool{}
	for _, path := range paths {
		script, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(script)) {
			if strings.HasPrefix(line, "serve ") {
				line = "exec seb serve" // serve is a command of the scripts
			}
			called[strings.TrimSpace(line)+" "] = true
		}
	}
	parser := newParser(t.Context(), streams{nil, io.Discard, io.Discard}, func(int) {})
	for _, command := range parser.Model.Leaves(true) {
		for _, how := range []string{"exec ", "! exec "} {
			calls := func(line string) bool { return strings.HasPrefix(line, how+command.FullPath()+" ") }
			if !slices.ContainsFunc(slices.Collect(maps.Keys(called)), calls) {
				t.Errorf("no script has a line %q", how+command.FullPath())
			}
		}
	}
}
