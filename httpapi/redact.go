package httpapi

import (
	"fmt"
	"regexp"
	"strings"
)

// secretPattern is what API keys and the secrets of pushes look like, whole or cut off, in
// any case, and with any of their characters percent-encoded, once or more often.
var secretPattern = regexp.MustCompile(
	escapable("s", "S") + escapable("e", "E") + escapable("b", "B") + escapable("_") + escapable("0-9") + "+" + escapable("_") +
		escapable("0-9", "a-f", "A-F") + "{16,}" +
		"|" + escapable("w", "W") + escapable("h", "H") + escapable("s", "S") + escapable("e", "E") + escapable("c", "C") + escapable("_") +
		escapable("0-9", "a-z", "A-Z", "+", "/", "=", "_", "-") + "{8,}")

// escapable returns a pattern of one character of some ranges, as it is or percent-encoded.
func escapable(ranges ...string) string {
	var codes []string
	for _, r := range ranges {
		for c := r[0]; c <= r[len(r)-1]; c++ {
			codes = append(codes, fmt.Sprintf("%02x", c))
		}
	}
	class := strings.NewReplacer("+", `\+`, "/", `\/`).Replace(strings.Join(ranges, ""))
	return "(?:[" + class + "]|%(?:25)*(?i:" + strings.Join(codes, "|") + "))"
}

// WithoutSecrets returns a text for the log as it is, but for API keys and the secrets of
// pushes, which people paste where a name or an id belongs.
func WithoutSecrets(text string) string {
	return secretPattern.ReplaceAllLiteralString(text, "[secret]")
}
