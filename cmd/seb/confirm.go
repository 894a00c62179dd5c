package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"strings"
)

// confirmFlag is for commands that destroy something for good.
type confirmFlag struct {
	Yes bool `short:"y" help:"Don't ask on a terminal whether to go on."`
}

// confirm asks the user on a terminal whether to go on, and returns an error unless the answer is yes. Without
// a terminal, as in a script, confirm returns nil.
func (f confirmFlag) confirm(ctx context.Context, std streams, question string) error {
	return f.confirmThat(ctx, std, func() (string, error) { return question, nil })
}

// confirmThat is confirm for a question that takes requests to the broker.
func (f confirmFlag) confirmThat(ctx context.Context, std streams, ask func() (question string, err error)) error {
	in, ok := std.in.(*os.File)
	if f.Yes || !ok || !isTerminal(in) || !isTerminal(std.err) {
		return nil
	}
	question, err := ask()
	if err != nil {
		return err
	}
	note(std.err, "%s [y/N] ", oneLine(question))
	answered := make(chan string, 1)
	go func() { // not waited for: a read from a terminal can't be interrupted
		line, err := bufio.NewReader(in).ReadString('\n')
		if err != nil {
			line = "" // the end of the input means no, as an empty line does
		}
		answered <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		note(std.err, "\n")
		return errInterrupted
	case answer := <-answered:
		if answer == "y" || answer == "yes" {
			return nil
		}
		return hinted(errors.New("nothing was changed: the answer was not yes"), "answer y, or add --yes to not be asked")
	}
}
