// Outbox moves rows from a table of PostgreSQL into topics of Seb, each row exactly
// once, whatever fails on the way: this program, the broker, a connection.
//
// Before Outbox sends rows, it stores in a second table which rows form a batch. It
// sends the batch until Seb acknowledges the batch, always with the same idempotency
// key, by which Seb recognises a repeated batch. Then it deletes the batch together
// with the rows of the batch. schema.sql has the tables.
//
// A process that runs the program is called a drainer. Only one drainer of an outbox
// works at a time: the drainer whose connection has a lock in the database.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	exitFailure = 1
	exitUsage   = 2
)

//go:embed schema.sql
var schema string

const help = `usage: outbox [flags]

Moves the rows of the table outbox into the topics that they name, each exactly once, and deletes them. Rows of
one topic are sent in the order of their ids. Any number may run at once: one works, the others stand by.

Without -database, the usual variables say where the database is: PGHOST, PGUSER, PGPASSWORD, PGDATABASE and
others. Connect to the server itself, or to a pooler that gives each client a session of its own. An API key for
the broker, with the scope write, is read from SEB_API_KEY or -key-file.

    outbox -schema | psql shop
    outbox -database postgres://shop@db.example/shop -server https://seb.example

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the program, and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	d, showSchema, err := parse(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		complain(errOut, fmt.Errorf("%w; see outbox -help", err))
		return exitUsage
	case showSchema:
		if _, err := io.WriteString(out, schema); err != nil {
			complain(errOut, fmt.Errorf("write the schema: %w", err))
			return exitFailure
		}
		return 0
	}
	if err := d.run(ctx); err != nil {
		complain(errOut, err)
		return exitFailure
	}
	return 0
}

// complain writes an error for people. If this fails, there is nothing left to do.
func complain(to io.Writer, err error) {
	_, _ = fmt.Fprintf(to, "outbox: %v\n", err)
}

// parse returns a drainer that is configured by flags and the environment.
func parse(args []string, errOut io.Writer) (d *drainer, showSchema bool, err error) {
	flags := flag.NewFlagSet("outbox", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed once, by run
	server := os.Getenv("SEB_SERVER")
	if server == "" {
		server = "http://127.0.0.1:51313"
	}
	d = &drainer{log: slog.New(slog.NewTextHandler(errOut, nil))}
	database := flags.String("database", os.Getenv("DATABASE_URL"), "connect to the database at `URL`")
	flags.StringVar(&server, "server", server, "append to the broker at `URL`")
	keyFile := flags.String("key-file", "", "read the API key from `FILE`")
	flags.BoolVar(&d.once, "once", false, "end when the outbox is empty, or with code 1 at the first failure; running it again is safe")
	flags.DurationVar(&d.poll, "poll", time.Second, "look for rows this often, even without a notification")
	flags.DurationVar(&d.pace, "pace", 250*time.Millisecond,
		"gather rows for this long if they come one by one; each batch uses one of the million idempotency keys that Seb remembers for a day")
	flags.IntVar(&d.most.rows, "rows", 1000, "the most `rows` to send at a time")
	flags.IntVar(&d.most.bytes, "bytes", 4<<20, "the most `bytes` of values, keys and headers to send at a time; a larger row is sent alone")
	flags.BoolVar(&showSchema, "schema", false, "print the SQL that makes the tables, and end")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(errOut)
			_, _ = io.WriteString(errOut, help) // if this fails, there is nothing left to do
			flags.PrintDefaults()
		}
		return nil, false, err
	}
	switch {
	case flags.NArg() > 0:
		return nil, false, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case d.most.rows < 1 || d.most.bytes < 1 || d.poll <= 0 || d.pace < 0:
		return nil, false, fmt.Errorf("-rows is %d, -bytes is %d, -poll is %v and -pace is %v: -pace must be at least 0, the others must be greater than 0", d.most.rows, d.most.bytes, d.poll, d.pace)
	}
	key, err := apiKey(*keyFile)
	if err != nil {
		return nil, false, err
	}
	if d.broker, err = newBroker(server, key); err != nil {
		return nil, false, err
	}
	if d.config, err = configure(*database); err != nil {
		return nil, false, fmt.Errorf("-database: %w", err)
	}
	return d, showSchema, nil
}

func apiKey(file string) (string, error) {
	if file == "" {
		return strings.TrimSpace(cmp.Or(os.Getenv("SEB_API_KEY"), os.Getenv("SEB_KEY"))), nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("-key-file: %w", err)
	}
	key := strings.TrimSpace(string(b))
	if key == "" {
		return "", fmt.Errorf("-key-file: %s is empty", file)
	}
	return key, nil
}
