package httpapi

import (
	"regexp"
	"strconv"
	"strings"
)

// Patterns of secrets as people paste them, perhaps damaged: in upper or lower case, with other
// separators, cut off, or with white space or a separator within, as in a folded line.
var (
	// keyPattern matches an API key of any version.
	keyPattern = regexp.MustCompile(`(?i)s` + hidden + `e` + hidden + `b(?:` + hidden + `[v0-9])*` + separators + `(?:(?:[0-9]` + hidden + `)+` + separators + `)?(` + hexRuns + `)`)
	// pushPattern matches the secret with which pushes are signed. After a space, at least 8 characters belong
	// to the secret, since fewer could be a word. After any other white space or invisible character, one is
	// enough.
	pushPattern = regexp.MustCompile(`(?i)w` + hidden + `h` + hidden + `s` + hidden + `e` + hidden + `c` + hidden + `([_\-]?)` +
		`((?:` + separators + `)?` + pushChar + `*(?: +` + pushChar + `{8,}| *[^ -~]` + hidden + pushChar + `+)*)`)
	// hexPattern and mixedPattern match what may be a secret without its prefix.
	hexPattern   = regexp.MustCompile(`(?i)` + hexRuns)
	mixedPattern = regexp.MustCompile(`[0-9A-Za-z+=]{40,}`)
)

const (
	// hidden matches white space and what is not printable ASCII, such as an invisible character in a web page.
	// An escape such as \f is decoded to a line feed and its letter.
	hidden     = `(?:[^!-~]|\n[abf])*`
	separators = `(?:\n[abf]|[\s_\-.:+]|[^\x00-\x7f])+`
	// between matches what may stand between pieces of one secret, such as a slash in a URL.
	between = `(?:[\s_\-.:+/]|[^\x00-\x7f])+`
	// hexRuns does not match the first letter of a word, such as end.
	hexRuns  = `[0-9a-f]+(?:` + between + `(?:[0-9a-f]{2,}|[0-9a-f]\b))*`
	pushChar = `[0-9a-z+/=_\-]`

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
// found if they are percent-encoded, once or several times, or have white space, invisible characters, quotation
// marks or backslashes within, also as escapes of Go or JSON, such as \n, \u200b and \".
func WithoutSecrets(text string) string {
	text = WithoutNamedSecrets(text)
	text = replaceDecoded(text, hexPattern, func(m []string) (int, string) { return bareShown, restIf(digits(m[0]) >= bareDigitsMin) })
	return replaceDecoded(text, mixedPattern, func(m []string) (int, string) { return bareShown, restIf(isMixed(m[0])) })
}

// WithoutNamedSecrets is like [WithoutSecrets], but replaces only secrets that have a prefix, such as seb
// or whsec. Other long random text stays, such as hashes and paths.
func WithoutNamedSecrets(text string) string {
	text = replaceDecoded(text, keyPattern, func(m []string) (int, string) { return 0, secretIf(digits(m[1]) >= keyDigitsMin) })
	return replaceDecoded(text, pushPattern, func(m []string) (int, string) {
		least := pushDamagedMin
		if m[1] != "" {
			least = pushCharsMin
		}
		return 0, secretIf(pushChars(m[2]) >= least)
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

// pushChars counts the characters of a secret for signatures in a text.
func pushChars(runs string) (n int) {
	for _, c := range []byte(runs) {
		if isAlphanumeric(c) || strings.IndexByte("+/=_-", c) >= 0 {
			n++
		}
	}
	return n
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
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

// decode removes percent-encoding and the escapes of Go and JSON from a text, even if it was encoded several
// times. Control characters and backslashes become line feeds, and so do quotation marks before what may be the
// rest of a secret. starts has the index in the text of each decoded byte, and the length of the text as the
// last element.
func decode(text string) (decoded []byte, starts []int) {
	decoded, starts = make([]byte, 0, len(text)), make([]int, 0, len(text)+1)
	for i := 0; i < len(text); {
		c, n := text[i], 1
		switch c {
		case '%':
			c, n = unpercent(text[i:])
		case '\\':
			c, n = unquoted(text[i:])
		}
		switch rest := text[i+n:]; {
		case c < ' ' || c == '\\' || c == 0x7f, c == '"' && goesOn(rest):
			c = '\n'
		}
		decoded, starts = append(decoded, c), append(starts, i)
		i += n
	}
	return decoded, append(starts, len(text))
}

// goesOn tells whether a secret may go on after a quotation mark: whether rest, the text after the mark, begins with
// a byte that secrets or their encodings may have. Other bytes, such as spaces and commas, follow the end of a quotation.
func goesOn(rest string) bool {
	return rest != "" && (isAlphanumeric(rest[0]) || strings.IndexByte(`\%"+/=_-`, rest[0]) >= 0 || rest[0] >= 0x80)
}

// unpercent returns the byte that the percent-encoding at the start of text stands for, and the length of the
// encoding. If there is none, it returns the percent sign.
func unpercent(text string) (c byte, n int) {
	n = 1
	for strings.HasPrefix(text[n:], "25") {
		n += 2
	}
	if len(text) >= n+2 && isHex(text[n]) && isHex(text[n+1]) {
		return byte(number(text[n : n+2])), n + 2
	}
	return '%', 1
}

// unquoted returns the byte that the backslashes at the start of text and the escape after them stand for, and
// their length. It returns 0xff for all characters that are not ASCII, and a backslash for white space. In \a, \b
// and \f, the letter does not belong to the escape: after a backslash, it may be a digit of a key.
func unquoted(text string) (c byte, n int) {
	for n < len(text) && text[n] == '\\' {
		n++
	}
	if n == len(text) {
		return '\\', n
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[text[n]]
	switch {
	case text[n] == '"':
		return '"', n + 1
	case strings.IndexByte("nrtv", text[n]) >= 0:
		return '\\', n + 1
	case digits > 0 && len(text) > n+digits:
		code := text[n+1 : n+1+digits]
		if strings.ContainsFunc(code, func(r rune) bool { return r >= 0x80 || !isHex(byte(r)) }) {
			return '\\', n
		}
		return byte(min(number(code), 0xff)), n + 1 + digits
	default:
		return '\\', n
	}
}

// number returns the value of hex digits.
func number(digits string) uint64 {
	x, err := strconv.ParseUint(digits, 16, 64)
	if err != nil {
		panic("httpapi: " + err.Error()) // the caller has checked the digits
	}
	return x
}
