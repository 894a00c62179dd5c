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
	},
	"seb key": {"rm": "seb key revoke", "remove": "seb key revoke", "del": "seb key revoke", "delete": "seb key revoke"},
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
	unknownKey         = regexp.MustCompile(`^unknown flag --key\b`)
)

// suggest adds to an error of the parser which command the user probably meant, in place of what the parser
// itself suggests.
func suggest(command *kong.Context, err error) error {
	if unknownKey.MatchString(err.Error()) {
		return hinted(err, "the API key's flag is --api-key; --key is the record's key, in seb produce")
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
	help := parent.FullPath() + " --help"
	if found := meantBy(parent, named[1]); len(found) > 0 {
		return hinted(text, fmt.Sprintf("did you mean %s? See %s", strings.Join(found, " or "), help))
	}
	return text
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
