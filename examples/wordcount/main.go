// Command wordcount counts the words in the records of a topic, and appends the counts to
// another topic. It counts each record exactly once, even if the program is killed.
//
// It reads the topic of lines as the consumer "wordcount". It stores the counts only in the
// topic of counts: a record for each change, with the word as the key and its count as the
// value. One commit has the new counts and the consumer's new positions, so the log never has
// one without the other. When wordcount starts, it reads the counts back.
//
// It runs a broker on a directory; other brokers may use the directory at the same time. Any
// number of wordcounts may run. If two of them have read the same lines, only the first commit
// succeeds. The other wordcount starts again from the positions of that commit.
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

// openLog opens a directory that a broker has set up. It refuses any other directory, which the
// caller must have named by mistake: no broker appends lines there.
func openLog(path string) (*objstore.Dir, error) {
	if _, err := os.Stat(filepath.Join(path, "seb.json")); err != nil {
		return nil, fmt.Errorf("there is no log in %s: name the directory that was given to seb serve --store, or start seb serve first: %w", path, err)
	}
	return objstore.OpenDir(path)
}

// pause is how long the counter waits before it starts again.
const pause = time.Second

// run counts until ctx ends. After a failure it reads the positions and the counts again, and goes on.
// It returns an error if the broker has stopped because its log is damaged.
func (c *counter) run(ctx context.Context) error {
	for _, topic := range []string{c.from, c.to} {
		_, _, err := c.broker.CreateTopic(ctx, topic, seb.TopicOptions{})
		if err != nil && seb.CodeOf(err) != seb.CodeTopicExists { // a topic with another number of partitions is fine
			return err
		}
	}
	for ctx.Err() == nil {
		err := c.count(ctx)
		if ctx.Err() != nil || seb.CodeOf(err) == seb.CodePositionConflict {
			continue // ctx has ended, or another counter was faster
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
