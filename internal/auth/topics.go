package auth

import (
	"slices"
	"strings"
)

// Reserved tells whether a topic is only for admins, and for the program itself: the names of such topics begin with "_seb.".
func Reserved(topic string) bool { return strings.HasPrefix(topic, "_seb.") }

// Covers tells whether one of the patterns is the topic, or a prefix of it followed by "*".
func Covers(patterns []string, topic string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, many := strings.CutSuffix(pattern, "*")
		return pattern == topic || many && strings.HasPrefix(topic, prefix)
	})
}
