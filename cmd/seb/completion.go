package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

// completionTimeout bounds how long a shell waits for a broker after the user has pressed Tab.
const completionTimeout = time.Second

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell to write for: bash, zsh or fish."`
}

// Help shows examples.
func (completionCmd) Help() string {
	return `Examples:

    source <(seb completion bash)                               # in ~/.bashrc
    source <(seb completion zsh)                                # in ~/.zshrc, after compinit
    seb completion fish > ~/.config/fish/completions/seb.fish

The script asks seb what can stand at the cursor: commands, flags and their values. For the names of topics, consumers
and queues, seb asks the broker.`
}

// completionScripts pass the words up to the cursor to `seb complete`. Each line that seb complete
// prints is a candidate, TAB, and the candidate's meaning.
var completionScripts = map[string]string{
	"bash": `_seb() {
	local line
	COMPREPLY=()
	while IFS= read -r line; do
		COMPREPLY+=("${line%%$'\t'*}")
	done < <(seb complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _seb seb
`,
	"zsh": `#compdef seb
_seb() {
	local -a found
	local line
	while IFS= read -r line; do
		found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
	done < <(seb complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
	if (( $#found )); then
		_describe -t values seb found
	else
		_files
	fi
}
if [ "$funcstack[1]" = "_seb" ]; then
	_seb
else
	compdef _seb seb
fi
`,
	"fish": `function __seb_complete
	set -l words (commandline -opc)
	set -l last (commandline -ct)
	set -l found (seb complete -- $words[2..-1] "$last" 2>/dev/null)
	if test (count $found) -gt 0
		printf '%s\n' $found
	else
		__fish_complete_path "$last"
	end
end
complete -c seb -e
complete -c seb -f -a '(__seb_complete)'
`,
}

// Run writes the script.
func (c *completionCmd) Run(std streams) error {
	_, err := io.WriteString(std.out, completionScripts[c.Shell])
	return err
}

// completeCmd is the hidden command that the scripts call.
type completeCmd struct {
	Words []string `arg:"" optional:"" help:"The words after seb, up to the one at the cursor, which may be empty."`
}

// Run writes a line for each candidate: the word, TAB, what it means.
func (c *completeCmd) Run(ctx context.Context, std streams, k *kong.Context) error {
	words := c.Words
	if len(words) == 0 {
		words = []string{""}
	}
	out := newPrinter(std.out)
	l := parseLine(k.Model.Node, words)
	for _, candidate := range l.candidates(ctx) {
		out.printf("%s\t%s\n", candidate.word, candidate.meaning)
	}
	return out.err
}

type candidate struct{ word, meaning string }

// commandLine is what the user has typed so far of a command line.
type commandLine struct {
	command  *kong.Node
	args     []string   // positional arguments before the cursor
	flag     *kong.Flag // the flag whose value stands at the cursor; nil if no value does
	server   string     // value of --server, "" if not given
	atCursor string
}

// parseLine parses words, the last of which is at the cursor. It takes an unknown word for an argument: the
// user may not have finished the line, so nothing is an error.
func parseLine(root *kong.Node, words []string) commandLine {
	l := commandLine{command: root}
	for _, word := range words[:len(words)-1] {
		name, value, given := strings.Cut(word, "=")
		switch {
		case word == "=": // bash splits words at =
		case l.flag != nil:
			l.take(word)
		case strings.HasPrefix(word, "-"):
			if l.flag = l.find(name); l.flag != nil && given {
				l.take(value)
			} else if l.flag != nil && l.flag.IsBool() {
				l.flag = nil
			}
		default:
			if child := childOf(l.command, word); child != nil {
				l.command = child
			} else {
				l.args = append(l.args, word)
			}
		}
	}
	l.atCursor = words[len(words)-1]
	if l.flag != nil && l.atCursor == "=" {
		l.atCursor = ""
	}
	return l
}

// take is called with the value of l.flag. It stores the value if the flag is --server.
func (l *commandLine) take(value string) {
	if l.flag.Name == "server" {
		l.server = value
	}
	l.flag = nil
}

// find returns the flag with a name such as --topic or -o; nil if the command has no such flag.
func (l *commandLine) find(name string) *kong.Flag {
	for _, flag := range l.flags() {
		if name == "--"+flag.Name || flag.Short != 0 && name == "-"+string(flag.Short) {
			return flag
		}
	}
	return nil
}

func (l *commandLine) flags() []*kong.Flag { return slices.Concat(l.command.AllFlags(true)...) }

func childOf(parent *kong.Node, name string) *kong.Node {
	for _, child := range parent.Children {
		if child.Name == name && !child.Hidden {
			return child
		}
	}
	return nil
}

// candidates returns the words that can stand at the cursor and begin with the text there.
func (l *commandLine) candidates(ctx context.Context) []candidate {
	var all []candidate
	add := func(word, meaning string) {
		if word != "" && strings.HasPrefix(word, l.atCursor) {
			meaning, _, _ = strings.Cut(meaning, "\n")
			all = append(all, candidate{word, meaning})
		}
	}
	name, _, given := strings.Cut(l.atCursor, "=")
	switch flag := l.find(name); {
	case l.flag != nil:
		for _, value := range l.flag.EnumSlice() {
			add(value, "")
		}
		if l.flag.Name == "consumer" {
			l.consumers(ctx, add)
		}
	case given && flag != nil:
		for _, value := range flag.EnumSlice() {
			add(name+"="+value, "")
		}
	case strings.HasPrefix(l.atCursor, "-"):
		for _, flag := range l.flags() {
			add("--"+flag.Name, flag.Help)
			if flag.Tag.Negatable != "" {
				add("--no-"+flag.Name, flag.Help)
			}
		}
	default:
		for _, child := range l.command.Children {
			if !child.Hidden {
				add(child.Name, child.Help)
			}
		}
		if len(l.args) < len(l.command.Positional) {
			l.values(ctx, l.command.Positional[len(l.args)], add)
		}
	}
	return all
}

// values adds the values that an argument can have: those of its enum, or the names of existing topics,
// consumers or queues.
func (l *commandLine) values(ctx context.Context, argument *kong.Positional, add func(word, meaning string)) {
	for _, value := range argument.EnumSlice() {
		add(value, "")
	}
	switch {
	case argument.Name == "consumer":
		l.consumers(ctx, add)
	case argument.Name == "queue" && l.command.Name != "create":
		l.queues(ctx, add)
	case argument.Name == "trigger" && l.command.Name != "set":
		list(ctx, l, func(ctx context.Context, broker *client.Client) iter.Seq2[client.Trigger, error] {
			return func(yield func(client.Trigger, error) bool) {
				all, err := broker.Triggers(ctx)
				for _, t := range all.Triggers {
					if !yield(t, nil) {
						return
					}
				}
				if err != nil {
					yield(client.Trigger{}, err)
				}
			}
		}, func(t client.Trigger) { add(t.Name, t.Definition.When) })
	case argument.Name == "topic" && l.command.FullPath() != "seb topic create":
		list(ctx, l, func(ctx context.Context, broker *client.Client) iter.Seq2[seb.Topic, error] {
			return broker.Topics(ctx, seb.ListOptions{})
		}, func(t seb.Topic) { add(t.Name, fmt.Sprintf("%d partitions", len(t.Partitions))) })
	}
}

// consumers adds the names of the consumers of the topic that is on the command line.
func (l *commandLine) consumers(ctx context.Context, add func(word, meaning string)) {
	if len(l.args) == 0 {
		return
	}
	list(ctx, l, func(ctx context.Context, broker *client.Client) iter.Seq2[seb.ConsumerInfo, error] {
		return broker.Consumers(ctx, l.args[0], seb.ListOptions{})
	}, func(c seb.ConsumerInfo) {
		lag, _ := behind(c)
		add(c.Name, fmt.Sprintf("lag %d", lag))
	})
}

// queues adds the names of the queues of the topic that is on the command line.
func (l *commandLine) queues(ctx context.Context, add func(word, meaning string)) {
	if len(l.args) == 0 {
		return
	}
	list(ctx, l, func(ctx context.Context, broker *client.Client) iter.Seq2[seb.QueueInfo, error] {
		return broker.Queues(ctx, l.args[0], seb.ListOptions{})
	}, func(q seb.QueueInfo) { add(q.Name, fmt.Sprintf("%d ready", q.Ready)) })
}

// list calls add for each item that the broker lists within completionTimeout. It ends at the first error: a
// shell that completes words can't show errors.
func list[T any](ctx context.Context, l *commandLine, items func(context.Context, *client.Client) iter.Seq2[T, error], add func(T)) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	server := l.server
	if server == "" {
		server = os.Getenv("SEB_SERVER")
	}
	if server == "" {
		if flag := l.find("--server"); flag != nil {
			server = flag.Default
		}
	}
	key := cmp.Or(os.Getenv("SEB_API_KEY"), os.Getenv("SEB_KEY"))
	file := cmp.Or(os.Getenv("SEB_API_KEY_FILE"), os.Getenv("SEB_KEY_FILE"))
	broker, err := (serverFlag{Server: server, APIKey: key, APIKeyFile: file}).client()
	if err != nil {
		return
	}
	for item, err := range items(ctx, broker) {
		if err != nil {
			return
		}
		add(item)
	}
}
