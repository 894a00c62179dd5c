package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The commands in the pages of the root and below docs/ are run by TestDocs, page by
// page, each page in a shell and an empty directory of its own. So that this stays
// simple, the pages keep to a convention:
//
//   - A "console" block has commands, each after "$ ", going on after a backslash
//     and within single quotes, and below each what it prints. If it prints something that is not shown, it
//     shows nothing. In what is shown, "..." stands for anything within a line, as
//     a line of its own for any lines, and every time stands for any other.
//   - An "sh" block is a script.
//   - A command that ends in "&" is a server; the next one waits until it answers.
//   - <!-- run: COMMAND --> is run too, for what the page takes for granted.
//   - <!-- not run: WHY --> before a block keeps it from being run.
//   - <!-- file: NAME --> before a block makes it a file of the page's programs, which TestClientPrograms runs.
//   - Ports 51313 to 51315, and 7070 of an S3 server, are any free ones.
//   - Every block says what it is; "text" is for what is nothing else.
//
// Every command must succeed.
func TestDocs(t *testing.T) {
	pages := docPages(t)
	if testing.Short() {
		pages = []string{"README.md", "docs/queues.md"}
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		commands, err := docCommands(string(text))
		if err != nil {
			t.Errorf("%s: %v", page, err)
		}
		if len(commands) > 0 {
			t.Run(page, func(t *testing.T) {
				t.Parallel()
				runDoc(t, page, commands)
			})
		}
	}
}

// docPages returns the Markdown files of the root and below docs/.
func docPages(t *testing.T) []string {
	t.Helper()
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			pages = append(pages, strings.TrimPrefix(filepath.ToSlash(name), "../../"))
		}
	}
	if len(pages) < 5 {
		t.Fatalf("only %d pages found", len(pages))
	}
	return pages
}

// docCommand is a command of a page and what it prints, "" if that isn't shown.
type docCommand struct {
	line   int
	text   string
	output string
}

var (
	hiddenCommand = regexp.MustCompile(`^<!-- run: (.+) -->$`)
	notRun        = regexp.MustCompile(`^<!-- not run: .+ -->$`)
)

// docCommands returns the commands of a page that are run, in order.
func docCommands(page string) ([]docCommand, error) {
	var commands []docCommand
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		if hidden := hiddenCommand.FindStringSubmatch(lines[i]); hidden != nil {
			commands = append(commands, docCommand{line: i + 1, text: hidden[1]})
		}
		indent, language, fence := strings.Cut(lines[i], "```")
		if !fence || strings.TrimSpace(indent) != "" {
			continue
		}
		skip := i > 0 && notRun.MatchString(strings.TrimSpace(lines[i-1]))
		first := i + 1
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
			lines[i] = strings.TrimPrefix(lines[i], indent)
		}
		switch block := lines[first:i]; {
		case language == "":
			return nil, fmt.Errorf("line %d: the block doesn't say what it is", first)
		case skip:
		case language == "console":
			commands = append(commands, consoleCommands(first+1, block)...)
		case language == "sh":
			commands = append(commands, docCommand{line: first + 1, text: strings.Join(block, "\n")})
		}
	}
	return commands, nil
}

// consoleCommands takes apart a block that begins at line.
func consoleCommands(line int, block []string) []docCommand {
	var commands []docCommand
	for i := 0; i < len(block); i++ {
		command, ok := strings.CutPrefix(block[i], "$ ")
		if !ok {
			continue
		}
		c := docCommand{line: line + i}
		for goesOn(command) && i+1 < len(block) {
			i++
			command += "\n" + block[i]
		}
		c.text = command
		var output []string
		for i+1 < len(block) && !strings.HasPrefix(block[i+1], "$ ") {
			i++
			output = append(output, block[i])
		}
		c.output = strings.TrimSpace(strings.Join(output, "\n"))
		commands = append(commands, c)
	}
	return commands
}

// goesOn tells whether command continues on the next line.
func goesOn(command string) bool {
	return strings.HasSuffix(command, `\`) || strings.Count(command, "'")%2 == 1
}

var docTime = regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\\\.\d+)?Z`)

// docPattern returns the pattern that the real output must match, for the output that a page shows.
func docPattern(output string) *regexp.Regexp {
	p := regexp.QuoteMeta(output)
	p = regexp.MustCompile(`(?m)^\\\.\\\.\\\.$`).ReplaceAllLiteralString(p, `(?s:.*)`)
	p = strings.ReplaceAll(p, `\.\.\.`, `.*`)
	p = docTime.ReplaceAllLiteralString(p, docTime.String())
	return regexp.MustCompile("^" + strings.ReplaceAll(p, `(\\\.\d+)?Z`, `(\.\d+)?Z`) + "$")
}

func TestDocConvention(t *testing.T) {
	const page = "<!-- run: seb serve & -->\n```console\n$ one \\\n    two\n$ three '\n3'\n3\n...\nat 2026-01-31T12:00:00.250Z, ...\n\n$ four\n```\n" +
		"<!-- not run: it would take an hour -->\n```sh\nsleep 3600\n```\ntext\n```sh\na\nb\n```\n```json\n{}\n```\n"
	commands, err := docCommands(page)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{1 seb serve & } {3 one \` + "\n" + `    two } {5 three '` + "\n3' 3\n...\nat 2026-01-31T12:00:00.250Z, ...} {11 four } {19 a\nb }]"
	if got := fmt.Sprint(commands); got != want {
		t.Errorf("commands are %s, want %s", got, want)
	}
	if _, err := docCommands("```\nx\n```\n"); err == nil {
		t.Error("a block may say nothing of itself")
	}
	pattern := docPattern(commands[2].output)
	for output, matches := range map[string]bool{
		"3\nmany\nlines\nat 2027-12-01T01:02:03Z, or so": true,
		"3\nnone\nat 2027-12-01T01:02:03.5Z, ":           true,
		"3\nnone\nat noon, ":                             false,
		"4\nnone\nat 2027-12-01T01:02:03.5Z, ":           false,
		"3\nnone\nat 2027-12-01T01:02:03.5Z, x\ny":       false,
	} {
		if pattern.MatchString(output) != matches {
			t.Errorf("%q: match is %v", output, !matches)
		}
	}
}
