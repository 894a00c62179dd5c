package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// meant are the commands for words that users of other tools type, by the command that the words follow.
var meant = map[string]map[string]string{
	"seb": {
		"tail": "seb consume TOPIC --follow", "follow": "seb consume TOPIC --follow", "sub": "seb consume TOPIC --follow",
		"subscribe": "seb consume TOPIC --follow", "listen": "seb consume TOPIC --follow", "watch": "seb consume TOPIC --follow",
		"get": "seb consume TOPIC", "read": "seb consume TOPIC", "cat": "seb consume TOPIC", "fetch": "seb consume TOPIC",
		"pub": "seb produce TOPIC", "publish": "seb produce TOPIC", "send": "seb produce TOPIC", "append": "seb produce TOPIC",
		"write": "seb produce TOPIC", "put": "seb produce TOPIC", "post": "seb produce TOPIC",
		"ls": "seb topic list", "list": "seb topic list", "topics": "seb topic list", "create": "seb topic create TOPIC",
		"queues": "seb queue list TOPIC", "consumers": "seb consumer list TOPIC", "keys": "seb key list",
		"run": "seb serve", "start": "seb serve", "server": "seb serve", "broker": "seb serve",
	},
	"seb queue": {
		"stop": "seb queue pause", "start": "seb queue resume", "unpause": "seb queue resume", "parked": "seb queue dead", "dlq": "seb queue dead",
		"retry": "seb queue redrive", "replay": "seb queue redrive", "requeue": "seb queue redrive",
		"send": "seb produce TOPIC", "publish": "seb produce TOPIC", "add": "seb queue create TOPIC QUEUE",
	},
	"seb key": {"rm": "seb key revoke", "remove": "seb key revoke", "del": "seb key revoke", "delete": "seb key revoke"},
}

// foreign are flags of other tools, by the flag or argument that does the same here. A command may lack it: then a
// later row counts.
var foreign = []struct{ ours, theirs string }{
	{"http", "port p listen bind host address addr"},
	{"store", "data-dir data datadir dir path bucket storage"},
	{"server", "bootstrap-server bootstrap-servers broker-list broker brokers b url host port address addr"},
	{"topic", "topic topics t"},
	{"queue", "queue"},
	{"consumer", "consumer group group-id consumer-group"},
	{"partition", "p"},
	{"from=earliest", "from-beginning beginning"},
	{"from", "offset start since to"},
	{"max-attempts", "attempts retries max-retries tries"},
	{"limit", "max-messages count max n c"},
	{"max", "max-messages count limit n c"},
	{"api-key-file", "token password"},
	{"yes", "force"},
}

// synonyms are other words for subcommands, with any parent.
var synonyms = map[string]string{
	"ls": "list", "all": "list", "get": "show", "describe": "show", "info": "show", "inspect": "show", "stat": "show", "status": "show",
	"add": "create", "new": "create", "make": "create", "set": "update", "alter": "update", "edit": "update", "change": "update", "config": "update",
	"rm": "delete", "remove": "delete", "del": "delete", "drop": "delete",
}

// destructive are subcommands that are only suggested for a word that means the same. For a word that is merely
// spelled like one of them, seb would lead the user to something that can't be undone.
var destructive = []string{"delete", "trim", "purge", "revoke", "reset"}

// editsMax is how many typing errors a word may have to be taken for a command.
const editsMax = 2

var (
	unexpectedArgument = regexp.MustCompile(`^unexpected argument (\S+?)(, did you mean .*)?$`)
	unknownFlag        = regexp.MustCompile(`^unknown flag (--?([^\s,]+))`)
)

// suggest adds to an error of the parser which command the user probably meant, in place of what the parser
// itself suggests.
func suggest(command *kong.Context, err error) error {
	if unknown := unknownFlag.FindStringSubmatch(err.Error()); unknown != nil {
		return suggestFlag(command, err, unknown[1], unknown[2])
	}
	named := unexpectedArgument.FindStringSubmatch(err.Error())
	if named == nil || command == nil {
		return err
	}
	parent := command.Model.Node
	if selected := command.Selected(); selected != nil {
		parent = selected
	}
	text := errors.New("unexpected argument " + named[1])
	if found := meantBy(parent, named[1]); len(found) > 0 {
		return didYouMean(text, strings.Join(found, " or "), parent)
	}
	return text
}

func didYouMean(err error, meant string, at *kong.Node) error {
	return hinted(err, fmt.Sprintf("did you mean %s? See %s --help", meant, at.FullPath()))
}

// suggestFlag adds to the error for an unknown flag which flag or argument of the command does the same.
func suggestFlag(command *kong.Context, err error, typed, name string) error {
	if name == "key" {
		return hinted(err, "the API key's flag is --api-key; --key is the record's key, in seb produce")
	}
	if command == nil || command.Selected() == nil {
		return err
	}
	at := command.Selected()
	for _, row := range foreign {
		if !slices.Contains(strings.Fields(row.theirs), name) {
			continue
		}
		if found := flagOrArgument(at, row.ours); found != "" {
			return didYouMean(errors.New("unknown flag "+typed), "`"+found+"`", at)
		}
	}
	if found := flagsLike(at, name); len(found) > 0 {
		return didYouMean(errors.New("unknown flag "+typed), strings.Join(found, " or "), at)
	}
	return errors.New("unknown flag " + typed)
}

// flagsLike returns the flags of a command that begin with a name, or are spelled almost like it: with one wrong letter
// for every three letters, and at most editsMax. Without this limit, a short name would be like most flags.
func flagsLike(command *kong.Node, name string) (flags []string) {
	for _, flag := range slices.Concat(command.AllFlags(true)...) {
		begins := len(name) > 2 && strings.HasPrefix(flag.Name, name)
		if begins || edits(name, flag.Name) <= min(editsMax, len(name)/3) {
			flags = append(flags, "`"+flag.Summary()+"`")
		}
	}
	return flags
}

// flagOrArgument returns how to give a command the flag or argument of a row of foreign, "" if it has none of that name.
func flagOrArgument(command *kong.Node, ours string) string {
	name, _, withValue := strings.Cut(ours, "=")
	for _, flag := range slices.Concat(command.AllFlags(true)...) {
		switch {
		case flag.Name == name && withValue:
			return "--" + ours
		case flag.Name == name:
			return flag.Summary()
		}
	}
	words := command.FullPath()
	for _, argument := range command.Positional {
		if words += " " + strings.ToUpper(argument.Name); argument.Name == name {
			return words
		}
	}
	return ""
}

// meantBy returns the commands that a user may have meant by word, after parent.
func meantBy(parent *kong.Node, word string) (commands []string) {
	word = strings.ToLower(word)
	path := parent.FullPath()
	if known := meant[path][word]; known != "" {
		return []string{"`" + known + "`"}
	}
	if child := childOf(parent, synonyms[word]); child != nil {
		return []string{"`" + child.FullPath() + "`"}
	}
	nearest := min(editsMax, len(word)-1)
	for _, child := range parent.Children {
		away := edits(word, child.Name)
		if strings.HasPrefix(child.Name, word) {
			away = 0
		}
		if child.Hidden || away > nearest || slices.Contains(destructive, child.Name) {
			continue
		}
		if away < nearest {
			nearest, commands = away, nil
		}
		commands = append(commands, "`"+child.FullPath()+"`")
	}
	return commands
}
