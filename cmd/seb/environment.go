package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

const settingPrefix = "SEB_"

// fromEnvironment are the flags that every command takes from the environment. They say where the broker or the
// store is, and in which form to write the result. All other flags say what to do: a variable that is left over
// from another command must not change that. Only serve takes all of its flags from the environment.
var fromEnvironment = []string{"server", "api-key", "api-key-file", "ca", "cert", "cert-key", "output", "store", "state-memory"}

// limitVariables removes the variables of all flags except the flags of serve and those in fromEnvironment.
func limitVariables(k *kong.Kong) error {
	for _, command := range k.Model.Leaves(false) {
		for _, flag := range slices.Concat(command.AllFlags(false)...) {
			if command.Name != "serve" && !slices.Contains(fromEnvironment, flag.Name) {
				flag.Envs, flag.Tag.Envs = nil, nil
			}
		}
	}
	return nil
}

// variableError is an error about a value from the environment, with a text that names the variable.
type variableError struct {
	error
	text string
}

func (e variableError) Error() string { return e.text }
func (e variableError) Unwrap() error { return e.error }

// envar matches how the parser names a variable, with its value, which the error quotes already.
var envar = regexp.MustCompile(`\(from envar (\w+)=.*\)`)

// nameVariables returns err, the error of the command. If err is about the usage, and names a flag whose value comes
// from the environment, the text names the variable, too.
func nameVariables(command *kong.Context, err error) error {
	text := err.Error()
	if envar.MatchString(text) {
		return variableError{err, envar.ReplaceAllString(text, "(from the environment variable $1)")}
	}
	var notes []string
	if parse := (*kong.ParseError)(nil); command != nil && (errors.As(err, new(usageError)) || errors.As(err, &parse)) {
		for _, flag := range command.Flags() {
			named := regexp.MustCompile(`--` + regexp.QuoteMeta(flag.Name) + `\b[^-]`).MatchString(text + " ")
			if variable := variableOf(flag); named && variable != "" && !typed(command, flag.Name) {
				notes = append(notes, fmt.Sprintf("--%s comes from the environment variable %s", flag.Name, variable))
			}
		}
	}
	if notes == nil {
		return err
	}
	return variableError{err, text + " (" + strings.Join(notes, ", ") + ")"}
}

// variableOf returns the variable that sets the flag, "" if none does.
func variableOf(flag *kong.Flag) string {
	for _, name := range flag.Tag.Envs {
		if _, set := os.LookupEnv(name); set {
			return name
		}
	}
	return ""
}

// typed tells whether the flag is on the command line.
func typed(command *kong.Context, name string) bool {
	return slices.ContainsFunc(command.Path, func(p *kong.Path) bool { return p.Flag != nil && p.Flag.Name == name })
}

// others matches variables, with their values, that have Seb's prefix but are not settings: those that seb work sets
// for its commands, those of Seb's tests, and those that Kubernetes sets in each pod for a service whose name begins
// with seb. Of these, SEB_PORT is a URL; if it is a number, a user means the port of the broker.
var others = regexp.MustCompile(`(?s)^SEB_(MESSAGE_.*|TEST_.*|([^=]*_)?((SERVICE_HOST|SERVICE_PORT(_[^=]*)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)=.*|PORT=[a-z]+://.*))$`)

// warnOfUnknownVariables logs a warning for each variable with Seb's prefix that no command knows, since it may
// be a mistyped setting. Its value may be a secret.
func warnOfUnknownVariables(log *slog.Logger, app *kong.Node) {
	var known []string
	for _, command := range app.Leaves(false) {
		for _, flag := range slices.Concat(command.AllFlags(false)...) {
			known = append(known, flag.Envs...)
		}
	}
	given := os.Environ()
	slices.Sort(given)
	for _, variable := range given {
		name, _, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, settingPrefix) || others.MatchString(variable) || slices.Contains(known, name) {
			continue
		}
		log.Warn("unknown environment variable: it has no effect", "variable", name, "closest", closestTo(name, known))
	}
}

// closestTo returns the setting that other tools call name, or else the known setting with the most similar name.
func closestTo(name string, known []string) string {
	flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, settingPrefix), "_", "-"))
	for _, row := range foreign {
		ours := settingPrefix + strings.ToUpper(strings.ReplaceAll(row.ours, "-", "_"))
		if slices.Contains(strings.Fields(row.theirs), flag) && slices.Contains(known, ours) {
			return ours
		}
	}
	return slices.MinFunc(known, func(a, b string) int { return edits(name, a) - edits(name, b) })
}

// edits returns how many characters to insert, remove or replace to get from a to b.
func edits(a, b string) int {
	row := make([]int, len(b)+1) // row[j] is the number of edits from the part of a so far to b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
