package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// completed returns the candidates after words, of which the last is at the cursor.
func completed(t *testing.T, words ...string) []string {
	t.Helper()
	r := runSeb(t, nil, append([]string{"complete", "--"}, words...)...)
	r.want(t, exitOK)
	var found []string
	for line := range strings.Lines(r.out) {
		word, _, _ := strings.Cut(line, "\t")
		found = append(found, word)
	}
	return found
}

func TestCompletionKnowsWhatCanStandThere(t *testing.T) {
	t.Setenv("SEB_SERVER", "http://127.0.0.1:1")
	for _, test := range []struct {
		words string // the last one is at the cursor; "." stands for an empty word
		want  string
	}{
		{"pro", "produce"},
		{"topic .", "create list show update trim delete"},
		{"consumer .", "list lag show reset delete"},
		{"queue .", "create update list show receive ack nack pause resume dead redrive push purge delete"},
		{"queue create --or", "--order"},
		{"queue push .", "set show resume delete"},
		{"queue push set --s", "--server --secret-file"},
		{"work --dr", "--drain"},
		{"consume --consumer .", ""},
		{"topic create --", "--help --server --api-key --api-key-file --ca --cert --cert-key --output --retention --retention-bytes --retention-past-queues --no-retention-past-queues --partitions --if-not-exists"},
		{"topic trim --b", "--before"},
		{"gc --", "--help --store --output --dry-run --keep-deleted --end-hold --memory --state-memory"},
		{"consume --fo", "--format --follow"},
		{"consume orders --format .", "line json binary raw"},
		{"consume orders --format=b", "--format=binary"},
		{"consume orders --format = r", "raw"},
		{"consume --follow --format j", "json"},
		{"consume -f --output", ""},
		{"topic list -o j", "json"},
		{"serve --batch i", "immediate"},
		{"serve --no", "--no-peers --no-auto-create --no-maintenance --no-triggers --no-push"},
		{"serve --bu", "--budget"},
		{"serve --max-l", "--max-linger"},
		{"serve --budget .", ""},
		{"serve --store .", ""},
		{"completion .", "bash zsh fish"},
		{"completion bash .", ""},
		{"nonsense .", strings.Join(completed(t, ""), " ")},
		{"comple", "completion"},
	} {
		words := strings.Fields(test.words)
		if last := len(words) - 1; words[last] == "." {
			words[last] = ""
		}
		if got := completed(t, words...); !slices.Equal(got, strings.Fields(test.want)) {
			t.Errorf("seb %s: %q, not %q", test.words, got, test.want)
		}
	}
}

func TestCompletionAsksTheBrokerForTopics(t *testing.T) {
	b := serve(t, nil, "--store", "memory:")
	for _, topic := range []string{"orders", "other", "clicks"} {
		runSeb(t, nil, "topic", "create", topic, "--server", b.url).want(t, exitOK)
	}
	for _, words := range [][]string{
		{"consume", "--server", b.url, "o"}, {"topic", "show", "--server=" + b.url, "o"}, {"topic", "delete", "--server", "=", b.url, "o"},
		{"topic", "update", "--server", b.url, "o"}, {"topic", "trim", "--server", b.url, "--partition", "0", "o"},
	} {
		if got := completed(t, words...); !slices.Equal(got, []string{"orders", "other"}) {
			t.Errorf("%q: %q", words, got)
		}
	}
	t.Setenv("SEB_SERVER", b.url)
	if got := completed(t, "produce", "c"); !slices.Equal(got, []string{"clicks"}) {
		t.Errorf("produce: %q", got)
	}
	if got := completed(t, "topic", "create", "o"); len(got) > 0 {
		t.Errorf("a topic to be created can't be one there is: %q", got)
	}
	for _, name := range []string{"billing", "search"} {
		runSeb(t, nil, "consumer", "reset", "clicks", name, "--from", "latest").want(t, exitOK)
	}
	for _, words := range [][]string{
		{"consumer", "show", "clicks", ""}, {"consumer", "delete", "--output", "json", "clicks", ""}, {"consume", "clicks", "--consumer", ""},
	} {
		if got := completed(t, words...); !slices.Equal(got, []string{"billing", "search"}) {
			t.Errorf("%q: %q", words, got)
		}
	}
	for _, name := range []string{"mail", "thumbs"} {
		runSeb(t, nil, "queue", "create", "clicks", name).want(t, exitOK)
	}
	for _, words := range [][]string{{"queue", "show", "clicks", ""}, {"queue", "redrive", "--offset", "1", "clicks", ""}, {"queue", "receive", "clicks", ""}, {"work", "clicks", ""}} {
		if got := completed(t, words...); !slices.Equal(got, []string{"mail", "thumbs"}) {
			t.Errorf("%q: %q", words, got)
		}
	}
	if got := completed(t, "queue", "create", "c"); !slices.Equal(got, []string{"clicks"}) {
		t.Errorf("a queue is created on a topic there is: %q", got)
	}
	if got := completed(t, "queue", "create", "clicks", ""); len(got) > 0 {
		t.Errorf("a queue to be created can't be one there is: %q", got)
	}
	if got := completed(t, "consumer", "show", "orders", ""); len(got) > 0 {
		t.Errorf("consumers of another topic: %q", got)
	}
	if got := completed(t, "produce", "clicks", ""); len(got) > 0 {
		t.Errorf("there is one topic only: %q", got)
	}
}

// Each completion script is run by its shell.
func TestCompletionInShells(t *testing.T) {
	if testing.Short() {
		t.Skip("shells take most of it")
	}
	for shell, script := range map[string]string{
		"bash": `source <(seb completion bash)
			COMP_WORDS=(seb topic create --par); COMP_CWORD=3; _seb; echo "${COMPREPLY[@]}"
			COMP_WORDS=(seb consume orders --format ""); COMP_CWORD=4; _seb; echo "${COMPREPLY[@]}"
			COMP_WORDS=(seb consume orders --format = j); COMP_CWORD=5; _seb; echo "${COMPREPLY[@]}"
			complete -p seb >/dev/null && echo bound`,
		"zsh": `compdef() { echo bound >&2; }
			_describe() { print -r -- "${(@)${(P)4}%%:*}"; }
			source <(seb completion zsh) 2>bound
			words=(seb topic create --par); CURRENT=4; _seb
			words=(seb consume orders --format ""); CURRENT=5; _seb
			words=(seb consume orders --format=j); CURRENT=4; _seb
			cat bound`,
		"fish": `seb completion fish | source
			complete -C 'seb topic create --par' | string replace -r '\t.*' ''
			string join ' ' (complete -C 'seb consume orders --format ' | string replace -r '\t.*' '' | sort -r)
			complete -C 'seb consume orders --format=j' | string replace -r '\t.*' ''
			echo bound`,
	} {
		t.Run(shell, func(t *testing.T) {
			program, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("there is no %s here", shell)
			}
			cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "-c", script)
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "HOME="+cmd.Dir, "XDG_CONFIG_HOME="+filepath.Join(cmd.Dir, "config"))
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, &stderr)
			}
			got := strings.Split(strings.TrimSpace(string(out)), "\n")
			if len(got) != 4 || got[0] != "--partitions" || !sameWords(got[1], "line json binary raw") ||
				!strings.HasSuffix(got[2], "json") || got[3] != "bound" {
				t.Errorf("%q\n%s", got, &stderr)
			}
		})
	}
}

func sameWords(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}
