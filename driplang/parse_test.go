package driplang

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestCanonicalForms compares the text and the JSON of expressions with testdata/canonical.txt, which has three lines for each:
// what is parsed, its text, and its JSON. The forms are stored in triggers, so they never change.
func TestCanonicalForms(t *testing.T) {
	golden, err := os.ReadFile("testdata/canonical.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(golden), "\n"), "\n")
	if len(lines)%3 != 0 || len(lines) == 0 {
		t.Fatalf("canonical.txt has %d lines", len(lines))
	}
	for i := 0; i < len(lines); i += 3 {
		e, err := Parse(lines[i])
		if err != nil {
			t.Errorf("%s: %v", lines[i], err)
			continue
		}
		if got := e.String(); got != lines[i+1] {
			t.Errorf("the text of %s is\n%s, want\n%s", lines[i], got, lines[i+1])
		}
		if got := toJSON(t, e); got != lines[i+2] {
			t.Errorf("the JSON of %s is\n%s, want\n%s", lines[i], got, lines[i+2])
		}
		sameForms(t, e)
	}
}

// TestComments checks that a comment at the end of a condition, which would hide its bracket, is in no canonical form.
func TestComments(t *testing.T) {
	for _, c := range [][2]string{
		{"A [key == '//' // slashes\n]", "A [key == '//']"},
		{"A [// first\n key == 'x' // second ]\n // third\n ] AND B", "A [// first\n key == 'x'] AND B"},
		{"A [key == 'x' // and\n && data.y]", "A [key == 'x' // and\n && data.y]"},
	} {
		e, err := Parse(c[0])
		if err != nil {
			t.Errorf("%q: %v", c[0], err)
			continue
		}
		if got := e.String(); got != c[1] {
			t.Errorf("%q became %q, want %q", c[0], got, c[1])
		}
		sameForms(t, e)
	}
}

func toJSON(t *testing.T, e *Expr) string {
	text, err := e.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sameForms checks that the text and the JSON of an expression are read as the same expression.
func sameForms(t *testing.T, e *Expr) {
	t.Helper()
	text, js := e.String(), toJSON(t, e)
	if !json.Valid([]byte(js)) {
		t.Fatalf("invalid JSON: %s", js)
	}
	fromText, err := Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	fromJSON, err := ParseJSON([]byte(js))
	if err != nil {
		t.Fatalf("%s: %v", js, err)
	}
	for _, again := range []*Expr{fromText, fromJSON} {
		if again.String() != text || toJSON(t, again) != js {
			t.Fatalf("%s and %s became %s and %s", text, js, again, toJSON(t, again))
		}
	}
}

func TestWrongText(t *testing.T) {
	for _, c := range [][2]string{
		{"", `line 1, column 1: expected an event, NOT, a number or "(", found the end`},
		{"A THEN", `line 1, column 7: expected an event, NOT, a number or "(", found the end`},
		{"A B", "line 1, column 3: expected THEN, OR, AND, WITHIN or the end, found B"},
		{"A and B", "line 1, column 3: expected THEN, OR, AND, WITHIN or the end, found and (keywords are in capitals: AND)"},
		{"not A", "line 1, column 5: expected THEN, OR, AND, WITHIN or the end, found A"},
		{"3 A", "line 1, column 3: expected TIMES, found A"},
		{"(A", `line 1, column 3: expected THEN, OR, AND, WITHIN or ")", found the end`},
		{"A\nOR\n  )", `line 3, column 3: expected an event, NOT, a number or "(", found ')'`},
		{"ä OR ö x", "line 1, column 8: expected THEN, OR, AND, WITHIN or the end, found x"},
		{`"A`, `line 1, column 1: the name in quotes has no end: expected another "`},
		{`"A\x"`, "line 1, column 1: a name in quotes is a string as in JSON"},
		{"A [x", "line 1, column 3: the condition has no end: expected ]"},
		{"A []", "line 1, column 3: expected a condition between [ and ]"},
		{`A ["x]`, "line 1, column 3: a string in the condition has no end"},
		{"A AS", "line 1, column 5: expected an alias after AS"},
		{"A AS data", "line 1, column 6: data can't be an alias: the word means something else"},
		{"A AS OR", "line 1, column 6: OR can't be an alias"},
		{"0 TIMES A", "line 1, column 1: TIMES takes a number from 1 to 1000"},
		{"1001 TIMES A", "line 1, column 1: TIMES takes a number from 1 to 1000"},
		{"99999999999999999999 TIMES A", "line 1, column 1: TIMES takes a number from 1 to 1000"},
		{"2 TIMES (A AND B)", "line 1, column 10: TIMES counts events"},
		{"2 TIMES (A AS x OR B)", "line 1, column 10: TIMES counts events"},
		{"2 TIMES (2 TIMES A)", "line 1, column 18: TIMES counts events"},
		{"A WITHIN 7", "line 1, column 11: expected a unit (s, m, h, d or w), found the end"},
		{"A WITHIN 7y", "line 1, column 11: expected a unit (s, m, h, d or w), found y"},
		{"A WITHIN x", "line 1, column 10: expected a number with a unit (s, m, h, d or w), found x"},
		{"A WITHIN 367d", "line 1, column 10: a window has from 1 s to 366 days"},
		{"A WITHIN 999999999999w", "line 1, column 10: a window has from 1 s to 366 days"},
		{"A WITHIN 0s", "line 1, column 10: a window has from 1 s to 366 days"},
		{"(NOT A WITHIN 7d) WITHIN 1d", "line 1, column 2: a window must not be in another window"},
		{strings.Repeat("(", 101) + "A" + strings.Repeat(")", 101), "line 1, column 101: more than 100 parentheses in each other"},
		{strings.Repeat("A OR ", 64) + "A", "more than 64 nodes"},
		{strings.Repeat("(A THEN B) OR ", 22) + "A", "the expression has 68 nodes (events and operators): at most 64 are allowed"},
		{"A AS a1 THEN A AS a2 THEN A AS a3 THEN A AS a4 THEN A AS a5 THEN A AS a6 THEN A AS a7 THEN A AS a8 THEN A AS a9", "has 9 aliases"},
		{strings.Repeat(" ", MaxText+1), "the expression has 16385 bytes: at most 16384 are allowed"},
		{"\xff", "the expression is not UTF-8"},
		{`A ["äöü" == key] x`, "line 1, column 18: expected THEN, OR, AND, WITHIN or the end, found x"},
		{"A [// nothing\n]", "line 1, column 3: expected a condition between [ and ]"},
		{"A [key)]", "line 1, column 7: the condition closes a ) that it has not opened: expected ]"},
		{`A ["` + strings.Repeat(`\"`, 5000) + `"]`, "bytes in its canonical text or JSON: at most 16384 are allowed"},
		{"A OR B [" + strings.Repeat("x", MaxText-15) + "]AND C", "the expression has 16440 bytes in its canonical text or JSON"},
		{`"` + strings.Repeat("x", 257) + `"`, "line 1, column 1: the name of an event has at most 256 bytes"},
	} {
		_, err := Parse(c[0])
		if err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%.40q: %v, want %q", c[0], err, c[1])
		}
		if wrong := (*Error)(nil); !errors.As(err, &wrong) {
			t.Errorf("%.40q: the error is of type %T", c[0], err)
		}
	}
}

func TestWrongJSON(t *testing.T) {
	for _, c := range [][2]string{
		{``, "line 1, column 1: expected an object with one of event, and, or, not and then, found the end"},
		{`[]`, "line 1, column 1: expected an object with one of event, and, or, not and then, found ["},
		{`{`, "line 1, column 2: expected }, found the end"},
		{`{}`, "line 1, column 1: the object has none of event, and, or, not and then"},
		{`{"event":"A","event":"B"}`, `line 1, column 14: "event" stands twice in one object`},
		{`{"event":"A","not":{"event":"B"}}`, `line 1, column 14: an object has one of event, and, or, not and then: "not" is a second one`},
		{`{"and":[{"event":"A"}]}`, `line 1, column 8: "and" needs at least two operands`},
		{`{"event":"A","x":1}`, `line 1, column 14: unknown field "x"`},
		{`{"event":1}`, "line 1, column 10: expected a string, found 1"},
		{`{"event":""}`, "line 1, column 10: the name of an event is empty"},
		{`{"event":"A"} x`, "line 1, column 15: expected the end after the expression"},
		{`{"event":"A",}`, "line 1, column 14: expected a name: invalid JSON"},
		{`{"not":{"event":"A"},"as":"x"}`, `line 1, column 27: "as" stands beside event only`},
		{`{"event":"A","as":"x-y"}`, "line 1, column 19: expected an alias after AS"},
		{`{"event":"A","times":0}`, "line 1, column 22: times is a number from 1 to 1000, not 0"},
		{`{"event":"A","times":1.5}`, "line 1, column 22: times is a number from 1 to 1000, not 1.5"},
		{`{"event":"A","times":"3"}`, "line 1, column 22: times is a number from 1 to 1000, not 3"},
		{`{"and":[{"event":"A"},{"event":"B"}],"times":2}`, "line 1, column 46: TIMES counts events"},
		{"{\"then\":[\n {\"event\":\"A\"},\n  {\"evnt\":\"A\"}]}", `line 3, column 4: unknown field "evnt"`},
		{`{"event":"A","where":"x]"}`, "line 1, column 22: where is not a condition"},
		{`{"event":"A","where":"x // y"}`, "line 1, column 22: where is not a condition"},
		{`{"event":"A","within":"5x"}`, "line 1, column 23: within: expected a unit (s, m, h, d or w), found x"},
		{`{"event":"A","within":"5d "}`, ""},
		{strings.Repeat(`{"not":`, 102) + `{"event":"A"}` + strings.Repeat("}", 102), "more than 100 objects in each other"},
	} {
		_, err := ParseJSON([]byte(c[0]))
		if c[1] == "" {
			if err != nil {
				t.Errorf("%s: %v", c[0], err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%.60s: %v, want %q", c[0], err, c[1])
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			if wrong := (*Error)(nil); !errors.As(err, &wrong) {
				t.Fatalf("the error is of type %T", err)
			}
			return
		}
		sameForms(t, e)
		if p, err := Compile(e); err == nil {
			_ = fmt.Sprint(p.Names(), p.english(Once), p.warnings(), p.kept(Every))
		}
	})
}

func FuzzParseJSON(f *testing.F) {
	f.Fuzz(func(t *testing.T, text []byte) {
		if e, err := ParseJSON(text); err == nil {
			sameForms(t, e)
		}
	})
}
