package auth

import "regexp"

var plainTopic = regexp.MustCompile(`^[a-zA-Z0-9._-]*$`)

// NewKey tells a caller whose key permits too little which key to ask for: one with the given scopes, for the given
// topic alone unless that is "". A topic that is no valid name is not quoted, since people paste the command.
func NewKey(scopes, topic string) string {
	command := "seb key create NAME --scope " + scopes
	switch {
	case !plainTopic.MatchString(topic):
		command += " --topic TOPIC"
	case topic != "":
		command += " --topic " + topic
	}
	return "an admin creates one with `" + command + "`"
}
