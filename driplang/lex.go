package driplang

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// lexer reads the text of an expression. It is a value: a copy keeps a place to go back to.
type lexer struct {
	text string
	rest string // what is not read yet
	pos  position
}

func newLexer(text string) lexer {
	return lexer{text: text, rest: text, pos: position{line: 1, column: 1}}
}

func (l *lexer) ended() bool { return l.rest == "" }

// next returns the next byte, or 0 at the end.
func (l *lexer) next() byte {
	if l.ended() {
		return 0
	}
	return l.rest[0]
}

// take reads n bytes.
func (l *lexer) take(n int) string {
	taken := l.rest[:n]
	l.rest = l.rest[n:]
	if lines := strings.Count(taken, "\n"); lines > 0 {
		l.pos.line += lines
		l.pos.column = 1 + characters(taken[strings.LastIndexByte(taken, '\n')+1:])
	} else {
		l.pos.column += characters(taken)
	}
	return taken
}

// characters counts the characters that begin in s: conditions are read byte by byte.
func characters(s string) (n int) {
	for i := range len(s) {
		if utf8.RuneStart(s[i]) {
			n++
		}
	}
	return n
}

// takeWhile reads the characters for which ok is true.
func (l *lexer) takeWhile(ok func(rune) bool) string {
	n := strings.IndexFunc(l.rest, func(r rune) bool { return !ok(r) })
	if n < 0 {
		n = len(l.rest)
	}
	return l.take(n)
}

func (l *lexer) space() {
	l.takeWhile(func(r rune) bool { return r == ' ' || r == '\t' || r == '\n' || r == '\r' })
}

// number reads an integer without a sign. It is false if there is no digit. Numbers too large for the language are returned as
// some number that is too large.
func (l *lexer) number() (_ int, ok bool) {
	digits := l.takeWhile(func(r rune) bool { return r < utf8.RuneSelf && isDigit(byte(r)) })
	n := 0
	for _, d := range digits {
		n = min(n*10+int(d-'0'), 1<<40)
	}
	return n, digits != ""
}

func (l *lexer) letters() string { return l.takeWhile(unicode.IsLetter) }

// name reads a name that needs no quotes, or nothing.
func (l *lexer) name() string {
	if r, _ := utf8.DecodeRuneInString(l.rest); !unicode.IsLetter(r) {
		return ""
	}
	return l.takeWhile(isNamePart)
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

func isNamePart(r rune) bool {
	return unicode.IsLetter(r) || r < utf8.RuneSelf && isDigit(byte(r)) || strings.ContainsRune("_.-/:", r)
}

// isPlain reports whether a name needs no quotes.
func isPlain(name string) bool {
	l := newLexer(name)
	return !slices.Contains(keywords, name) && l.name() != "" && l.ended()
}

// quoted reads a name in double quotes, with the escapes of JSON.
func (l *lexer) quoted() (string, error) {
	at := l.pos
	end := 1
	for end < len(l.rest) && l.rest[end] != '"' {
		if l.rest[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(l.rest) {
		return "", at.errorf(`the name in quotes has no end: expected another "`)
	}
	var name string
	if err := json.Unmarshal([]byte(l.take(end+1)), &name); err != nil {
		return "", at.errorf("a name in quotes is a string as in JSON: %v", err)
	}
	return name, nil
}

// condition reads a condition from its opening bracket to the closing one, and returns what is between them. Brackets in
// strings and comments of the condition do not count. A comment at its end is left out, since it would hide the closing bracket.
func (l *lexer) condition() (string, error) {
	at := l.pos
	l.take(1)
	from := len(l.text) - len(l.rest)
	end := from // of what is no comment
	for depth := 0; !l.ended(); {
		switch c := l.next(); {
		case c == '[' || c == '(' || c == '{':
			depth++
		case c == ']' && depth == 0:
			cond := strings.TrimSpace(l.text[from:end])
			l.take(1)
			if cond == "" {
				return "", at.errorf("expected a condition between [ and ]")
			}
			return cond, nil
		case c == ')' && depth == 0, c == '}' && depth == 0:
			return "", l.pos.errorf("the condition closes a %c that it has not opened: expected ]", c)
		case c == ']' || c == ')' || c == '}':
			depth--
		case c == '"' || c == '\'':
			if !l.celString() {
				return "", at.errorf("a string in the condition has no end")
			}
			end = len(l.text) - len(l.rest)
			continue
		case strings.HasPrefix(l.rest, "//"):
			l.takeWhile(func(r rune) bool { return r != '\n' })
			continue
		}
		space := strings.Contains(" \t\r\n", l.rest[:1])
		if l.take(1); !space {
			end = len(l.text) - len(l.rest)
		}
	}
	return "", at.errorf("the condition has no end: expected ]")
}

// celString reads a string of CEL. It is false if the string has no end.
func (l *lexer) celString() bool {
	before := l.text[:len(l.text)-len(l.rest)]
	raw := strings.HasSuffix(before, "r") || strings.HasSuffix(before, "R")
	quote := l.rest[:1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(l.rest, triple) {
		quote = triple
	}
	l.take(len(quote))
	for !l.ended() {
		switch {
		case strings.HasPrefix(l.rest, quote):
			l.take(len(quote))
			return true
		case l.next() == '\\' && !raw && len(l.rest) > 1:
			l.take(2)
		case l.next() == '\n' && len(quote) == 1:
			return false
		default:
			l.take(1)
		}
	}
	return false
}

// found names what the lexer is at, for errors.
func (l *lexer) found() string {
	switch c := l.next(); {
	case l.ended():
		return "the end"
	case isDigit(c):
		at := *l
		return at.takeWhile(isNamePart)
	}
	at := *l
	if name := at.name(); name != "" {
		if upper := strings.ToUpper(name); upper != name && slices.Contains(keywords, upper) {
			return name + " (keywords are in capitals: " + upper + ")"
		}
		return name
	}
	r, _ := utf8.DecodeRuneInString(l.rest)
	return fmt.Sprintf("%q", r)
}
