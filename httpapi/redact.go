package httpapi

import (
	"bytes"
	"encoding/hex"
	"regexp"
	"strings"
)

// Patterns of secrets as people paste them, perhaps damaged: in upper or lower case, with other
// separators, cut off, or with white space or a separator within, as in a folded line.
var (
	// keyPattern matches an API key of any version.
	keyPattern = regexp.MustCompile(`(?i)seb[v0-9]*` + separators + `(?:[0-9]+` + separators + `)?(` + hexRuns + `)`)
	// pushPattern matches the secret with which pushes are signed.
	pushPattern = regexp.MustCompile(`(?i)whsec([_\-]?)((?:` + separators + `)?[0-9a-z+/=_\-]*(?:(?:\s|[^\x00-\x7f]){1,3}[0-9a-z+/=_\-]{8,})*)`)
	// hexPattern and mixedPattern match what may be a secret without its prefix.
	hexPattern   = regexp.MustCompile(`(?i)` + hexRuns)
	mixedPattern = regexp.MustCompile(`[0-9A-Za-z+=]{40,}`)
)

const (
	separators = `[\s_\-.:+]{1,3}`
	// between matches what may stand between pieces of one secret, such as a slash in a URL, or an invisible
	// character in a web page.
	between = `(?:[\s_\-.:+/]|[^\x00-\x7f]){1,3}`
	hexRuns = `[0-9a-f]+(?:` + between + `[0-9a-f]{2,})*`

	// A secret that was cut off is replaced only if at least this many characters are left. Fewer
	// could be a name.
	keyDigitsMin   = 16 // hex digits after the prefix; a whole key has 64
	pushCharsMin   = 8  // characters after whsec_
	pushDamagedMin = 24 // characters after whsec, if no _ or - follows it
	// Hex digits without a prefix are replaced if there are at least bareDigitsMin. Other ids, such as a
	// UUID or a trace context, have fewer.
	bareDigitsMin = 56
	bareShown     = 8 // how many characters stay of a secret without a prefix
)

// WithoutSecrets returns a text for the log without API keys and the secrets of pushes, which
// people paste by mistake where a name or an id belongs. A text that begins like a secret becomes
// [secret]. Long random text may be a secret without its beginning: 56 or more hex digits, or 40 or more
// digits and letters in upper and lower case. Only the first 8 characters of such a text stay. Secrets are also
// found if they are percent-encoded, once or several times, or have white space that Go has quoted as \n.
func WithoutSecrets(text string) string {
	text = WithoutNamedSecrets(text)
	text = replaceDecoded(text, hexPattern, func(m []string) (int, string) { return bareShown, restIf(digits(m[0]) >= bareDigitsMin) })
	return replaceDecoded(text, mixedPattern, func(m []string) (int, string) { return bareShown, restIf(isMixed(m[0])) })
}

// WithoutNamedSecrets is like [WithoutSecrets], but replaces only secrets with their prefix, such as seb
// or whsec. Other long random text stays, such as hashes and paths.
func WithoutNamedSecrets(text string) string {
	text = replaceDecoded(text, keyPattern, func(m []string) (int, string) { return 0, secretIf(digits(m[1]) >= keyDigitsMin) })
	return replaceDecoded(text, pushPattern, func(m []string) (int, string) {
		least := pushDamagedMin
		if m[1] != "" {
			least = pushCharsMin
		}
		return 0, secretIf(len(m[2]) >= least)
	})
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

// digits counts the hex digits in a text.
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

// isMixed tells whether text has digits, lower-case and upper-case letters, as random text has.
func isMixed(text string) bool {
	return strings.ContainsAny(text, "0123456789") && strings.ToLower(text) != text && strings.ToUpper(text) != text
}

// replaceDecoded replaces the parts of text whose decoded form matches pattern, and returns the result.
// replace gets the groups of a match. The first keep bytes of the match stay, and replacement stands for
// the rest. If replacement is "", the whole match stays.
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

// decode removes percent-encoding from a text, even if it was encoded several times, and Go's
// quoting of white space. starts has the index in the text of each decoded byte, and the length of
// the text as the last element.
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
