package main

import (
	"regexp"
	"strings"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/trigger"
)

// shellHints are hints that name commands. They replace the broker's hints that name HTTP requests. If an
// error's code is not listed here, such a hint is left out, and pointToHelp may add another.
var shellHints = map[seb.Code]string{
	seb.CodeTopicNotFound:       "`seb topic create TOPIC` creates the topic; `seb topic list` lists all topics",
	seb.CodeTopicExists:         "use the topic as it is (--if-not-exists), change it with `seb topic update`, or choose another name",
	seb.CodePartitionNotFound:   "`seb topic show TOPIC` lists the partitions; `seb topic update TOPIC --partitions N` adds partitions",
	seb.CodeConsumerNotFound:    "`seb consume TOPIC --consumer NAME` creates the consumer; `seb consumer list TOPIC` lists all consumers",
	seb.CodeQueueExists:         "use the queue as it is (--if-not-exists), change it with `seb queue update`, or choose another name",
	seb.CodeQueueNotFound:       "`seb queue create TOPIC QUEUE` creates the queue; `seb queue list TOPIC` lists all queues",
	seb.CodePushNotFound:        "`seb queue push set TOPIC QUEUE URL` sets the URL",
	seb.CodeUnauthorized:        "give a valid API key, as SEB_API_KEY or with --api-key-file; the operator creates one with `seb key create`",
	trigger.CodeTriggerNotFound: "`seb trigger set NAME` creates the trigger; `seb trigger list` lists all triggers",
	trigger.CodeInvalidTrigger:  "`seb trigger check EXPRESSION` checks and explains an expression; docs/driplang.md describes the language",
	seb.CodeKeyNotFound:         "`seb key list` lists all keys",
	seb.CodeQueueElsewhere:      "try again; if the error persists, name the owner with --server: `seb queue show TOPIC QUEUE` shows its URL",
	seb.CodeOverMemoryBudget:    "try again, with smaller requests, or with fewer at a time",
	seb.CodeStoreUnavailable:    "try again; if the error persists, see the broker's log for the store's errors",
	seb.Code("route_not_found"): otherServer, seb.Code("method_not_allowed"): otherServer,
}

const otherServer = "check --server (SEB_SERVER): it must be the URL of a broker, such as http://127.0.0.1:51313, without /v1; if it is, the broker is older than this command, or runs without what it needs (--no-triggers)"

// ofRequests matches hints that name HTTP requests. Such hints are of no use in a shell.
var ofRequests = regexp.MustCompile(`\b(GET|HEAD|PUT|POST|PATCH|DELETE|Retry-After|Authorization|Accept|Allow|Content-Type)\b|/v1/`)

// placeInBody matches the place of a mistake in the body of a request.
var placeInBody = regexp.MustCompile(`, at byte \d+$`)

// shellHint returns the hint to show in a shell in place of a broker's hint; it may be "".
func shellHint(code seb.Code, hint string) string {
	if ofRequests.MatchString(hint) {
		return shellHints[code]
	}
	return ofSettings.Replace(hint)
}

// ofSettings puts flags in place of the settings that hints of package client name.
var ofSettings = strings.NewReplacer(
	"start a broker there with seb serve, or use another URL", "start one with `seb serve`, or give its URL with --server or SEB_SERVER",
	"the URL of the broker", "--server or SEB_SERVER",
	"name the authority that signed the certificate", "name the authority that signed its certificate with --ca or SEB_CA",
)
