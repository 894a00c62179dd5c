// Command wordcount counts the words in a topic's records into another topic, each record
// exactly once, wherever it is killed.
//
// It reads as the consumer "wordcount" of the topic of lines. What it has counted stands
// in the topic of counts and nowhere else: a record for each change, with the word as the
// key and how often it was seen as the value. The new counts and how far it has read go
// into one commit, so neither is ever there without the other. When it starts it reads
// the counts back.
//
// It works on a directory, beside any brokers that do. Several of it do no harm: of two
// that have read the same lines one gets to commit, and the other starts again from where that
// one has got to.
//
//	seb serve --store seb-data &
//	seb produce lines < book.txt
//	go run -C examples ./wordcount ../seb-data &
//	seb consume counts --follow
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "wordcount:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("wordcount", flag.ContinueOnError)
	from := flags.String("from", "lines", "the topic to count the words of")
	to := flags.String("to", "counts", "the topic to write counts to")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("name one directory: wordcount [-from TOPIC] [-to TOPIC] DIRECTORY")
	}
	dir, err := openLog(flags.Arg(0))
	if err != nil {
		return err
	}
	broker, err := seb.Open(ctx, dir, seb.Options{})
	if err != nil {
		return err
	}
	err = (&counter{broker: broker, from: *from, to: *to, log: slog.New(slog.NewTextHandler(out, nil))}).run(ctx)
	return errors.Join(err, broker.Close())
}

// openLog opens a directory that a broker has set up. One that is merely there, or not
// even that, is a mistake: nobody would ever append lines to it.
func openLog(path string) (*objstore.Dir, error) {
	if _, err := os.Stat(filepath.Join(path, "seb.json")); err != nil {
		return nil, fmt.Errorf("there is no log in %s: name the directory that seb serve --store has, or start that first: %w", path, err)
	}
	return objstore.OpenDir(path)
}

// pause is how long the counter waits before it starts again.
const pause = time.Second

// run counts until ctx ends. After any failure it starts again from the log;
// but a broker that has stopped, since its log is damaged, stays so.
func (c *counter) run(ctx context.Context) error {
	for _, topic := range []string{c.from, c.to} {
		_, _, err := c.broker.CreateTopic(ctx, topic, seb.TopicOptions{})
		if err != nil && seb.CodeOf(err) != seb.CodeTopicExists { // with other partitions, which is fine
			return err
		}
	}
	for ctx.Err() == nil {
		err := c.count(ctx)
		if ctx.Err() != nil || seb.CodeOf(err) == seb.CodePositionConflict {
			continue // it is to end, or another one was faster
		}
		if stopped := (*seb.Error)(nil); errors.As(err, &stopped) && stopped.Code == seb.CodeBrokerStopped {
			return fmt.Errorf("%w; %s", err, stopped.Hint)
		}
		c.log.Warn("starting again", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}
