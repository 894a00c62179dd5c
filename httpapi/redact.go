package httpapi

import (
	"bytes"
	"encoding/hex"
	"regexp"
	"strings"
)

// Secrets as people paste them, perhaps damaged: in any case, with other separators, cut off,
// or with white space or a separator in between, as a line that was folded has it.
var (
	// keyPattern is an API key of any version.
	keyPattern = regexp.MustCompile(`(?i)seb[v0-9]*` + separators + `(?:[0-9]+` + separators + `)?(` + hexRuns + `)`)
	// pushPattern is the secret of a push.
	pushPattern = regexp.MustCompile(`(?i)whsec([_\-]?)((?:` + separators + `)?[0-9a-z+/=_\-]*(?:(?:\s|[^\x00-\x7f]){1,3}[0-9a-z+/=_\-]{8,})*)`)
	// hexPattern and mixedPattern are what may be one without its prefix.
	hexPattern   = regexp.MustCompile(`(?i)` + hexRuns)
	mixedPattern = regexp.MustCompile(`[0-9A-Za-z+=]{40,}`)
)

const (
	separators = `[\s_\-.:+]{1,3}`
	// between is what may stand within one: a URL has slashes, a page characters that are not shown.
	between = `(?:[\s_\-.:+/]|[^\x00-\x7f]){1,3}`
	hexRuns = `[0-9a-f]+(?:` + between + `[0-9a-f]{2,})*`

	// What is left of a secret that was cut off must have so many characters to count as one;
	// less is easy to guess, and may be a name.
	keyDigitsMin   = 16 // behind the prefix, of 64
	pushCharsMin   = 8  // behind whsec_
	pushDamagedMin = 24 // behind whsec, where another character follows it
	// bareDigitsMin is more than other ids have, such as a UUID or a trace context.
	bareDigitsMin = 56
	bareShown     = 8 // characters
)

// WithoutSecrets returns a text for the log as it is, but for API keys and the secrets of
// pushes, which people paste where a name or an id belongs. What begins as they do becomes
// [secret]; of what may be one without its beginning, 56 hex digits or 40 letters and digits
// in upper and lower case, the first 8 characters stay. Any of it may be percent-encoded, once or
// more often, and white space may stand as Go quotes it.
func WithoutSecrets(text string) string {
	text = replaceDecoded(text, keyPattern, func(m []string) (int, string) { return 0, secretIf(digits(m[1]) >= keyDigitsMin) })
	text = replaceDecoded(text, pushPattern, func(m []string) (int, string) {
		least := pushDamagedMin
		if m[1] != "" {
			least = pushCharsMin
		}
		return 0, secretIf(len(m[2]) >= least)
	})
	text = replaceDecoded(text, hexPattern, func(m []string) (int, string) { return bareShown, restIf(digits(m[0]) >= bareDigitsMin) })
	return replaceDecoded(text, mixedPattern, func(m []string) (int, string) { return bareShown, restIf(isMixed(m[0])) })
}

func secretIf(is bool) string {
	if is {
		return "[secret]"
	}
	return ""
}

func restIf(is bool) string {
	if is {
		return "[...]"
	}
	return ""
}

// digits counts the hex digits of runs and what separates them.
func digits(runs string) (n int) {
	for _, c := range []byte(runs) {
		if isHex(c) {
			n++
		}
	}
	return n
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// isMixed tells whether letters of both cases and digits occur, as in what is random.
func isMixed(text string) bool {
	return strings.ContainsAny(text, "0123456789") && strings.ToLower(text) != text && strings.ToUpper(text) != text
}

// replaceDecoded matches a pattern with the text as it is without its encoding. Of
// a match, keep characters and then the replacement stand in the result; "" leaves it as it is.
func replaceDecoded(text string, pattern *regexp.Regexp, replace func(match []string) (keep int, replacement string)) string {
	decoded, starts := decode(text)
	var out strings.Builder
	done := 0
	for _, at := range pattern.FindAllSubmatchIndex(decoded, -1) {
		match := make([]string, len(at)/2)
		for i := range match {
			if at[2*i] >= 0 {
				match[i] = string(decoded[at[2*i]:at[2*i+1]])
			}
		}
		keep, replacement := replace(match)
		if replacement == "" {
			continue
		}
		out.WriteString(text[done:starts[at[0]+keep]])
		out.WriteString(replacement)
		done = starts[at[1]]
	}
	out.WriteString(text[done:])
	return out.String()
}

// decode returns a text without its percent-encoding, however often it was encoded, and with
// quoted white space as it is; and where in the text each of the bytes begins, and the text's end.
func decode(text string) (decoded []byte, starts []int) {
	decoded, starts = make([]byte, 0, len(text)), make([]int, 0, len(text)+1)
	for i := 0; i < len(text); {
		c, n := text[i], 1
		if c == '\\' && i+1 < len(text) && strings.IndexByte("nrt", text[i+1]) >= 0 {
			c, n = ' ', 2
		}
		if c == '%' {
			rest := []byte(text[i+1:])
			skipped := 1
			for bytes.HasPrefix(rest, []byte("25")) {
				rest, skipped = rest[2:], skipped+2
			}
			var b [1]byte
			if len(rest) >= 2 {
				if _, err := hex.Decode(b[:], rest[:2]); err == nil {
					c, n = b[0], skipped+2
				}
			}
		}
		decoded, starts = append(decoded, c), append(starts, i)
		i += n
	}
	return decoded, append(starts, len(text))
}
