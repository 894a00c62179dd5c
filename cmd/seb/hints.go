package main

import (
	"regexp"

	"github.com/simple-event-broker/seb"
)

// shellHints say what to do next to who types commands, where the broker's hint is for
// who types requests. Where there is none, the help of the command has to do.
var shellHints = map[seb.Code]string{
	seb.CodeTopicNotFound:       "`seb topic create TOPIC` creates it; `seb topic list` lists those there are",
	seb.CodeTopicExists:         "use it as it is, change it with `seb topic update`, or choose another name",
	seb.CodePartitionNotFound:   "`seb topic show TOPIC` tells those there are; `seb topic update TOPIC --partitions N` adds some",
	seb.CodeConsumerNotFound:    "`seb consume TOPIC --consumer NAME` creates it; `seb consumer list TOPIC` lists those there are",
	seb.CodeQueueNotFound:       "`seb queue create TOPIC QUEUE` creates it; `seb queue list TOPIC` lists those there are",
	seb.CodePushNotFound:        "`seb queue push set TOPIC QUEUE URL` says where to push to",
	seb.CodeUnauthorized:        "give an API key that is good, as SEB_KEY or with --key-file; whoever runs this Seb creates one with `seb key create`",
	seb.CodeKeyNotFound:         "`seb key list` lists those there are",
	seb.CodeQueueElsewhere:      "try again; if it goes on, ask the broker that `seb queue show TOPIC QUEUE` has as owner, with --server",
	seb.CodeOverMemoryBudget:    "try again, with less at a time",
	seb.CodeStoreUnavailable:    "try again; if it goes on, the broker's log says what its store answers",
	seb.Code("route_not_found"): otherServer, seb.Code("method_not_allowed"): otherServer,
}

const otherServer = "is --server (SEB_SERVER) the URL of a broker? If so, that is older than this command"

// ofRequests matches hints for who types requests: with none of this can one do anything
// in a shell.
var ofRequests = regexp.MustCompile(`\b(GET|HEAD|PUT|POST|PATCH|DELETE|Retry-After|Authorization|Accept|Allow|Content-Type)\b|/v1/`)

// shellHint returns what a broker's hint becomes for who types commands; "" if that is
// nothing.
func shellHint(code seb.Code, hint string) string {
	if ofRequests.MatchString(hint) {
		return shellHints[code]
	}
	return hint
}
