// Command seb is the Simple Event Broker: the broker itself (serve), a client for a shell (topic, produce,
// consume, queue, work, key), and tools for operators: to check a store (doctor) or a log (fsck), or to show
// an object of the log (dump).
//
// This package has the command line: flags, input and output. What a broker does is in the root package, and
// the HTTP API in package httpapi.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/httpapi"
	"github.com/simple-event-broker/seb/objstore"
)

var description = `Seb is an event log whose only durable state is an object store: a bucket, or a directory. A record is
acknowledged once the store has it, and readers get it as often as they like.

    record      a value, and perhaps a key, headers and a time
    topic       records under a name; the first append creates it
    partition   an ordered part of a topic; a topic has one or more; records with one key go to one partition
    offset      the position of a record in its partition: 0, 1, 2 and so on
    consumer    a reader's position in a topic, stored under a name
    queue       a topic's records as work to be done: each is handed to one worker until it is done

First steps, all but the first in another terminal:

    seb serve                                  a broker on ./seb-data; it prints its URL
    echo 'hello' | seb produce greetings       a record per line; the topic is created
    seb topic show greetings                   its partitions, with their start and end offsets
    seb consume greetings --follow             all records, also new ones, until Ctrl-C

Then: seb COMMAND --help has examples. The broker speaks HTTP, so curl can do all of this; seb serve prints how.
Before other machines can reach the broker, create an API key with seb key. Before you trust a store, run seb doctor;
to check a log, seb fsck.

Environment: SEB_SERVER is the broker's URL, SEB_API_KEY or SEB_API_KEY_FILE the API key for it, SEB_STORE the store for
serve, doctor, fsck, gc, restore, upgrade and dump, and SEB_OUTPUT=json the form of results. Each flag of serve has a variable too. The
help of a flag names its variable; a flag on the command line wins. S3 credentials come from the usual AWS_ variables and files.
NO_COLOR is honoured. Sizes are bytes, or 64KiB, 4MiB, 1GB; durations are 250ms, 30s, 1h, 7d.

Exit codes:

` + exitHelp() + `
Documentation: https://github.com/simple-event-broker/seb, in docs/: README.md (what is where), quickstart.md (five
minutes), http.md (with curl), operations.md (running it), flags.md, trouble.md (what messages mean), guarantees.md
(what it promises). A running broker describes its API at /openapi.yaml.`

// cli is the command line, one field per subcommand.
type cli struct {
	Serve    serveCmd    `cmd:"" group:"server" help:"Run a broker."`
	Topic    topicCmd    `cmd:"" group:"data" help:"Create, list, show, change and delete topics."`
	Produce  produceCmd  `cmd:"" group:"data" help:"Append records to a topic, one for each line of the input."`
	Consume  consumeCmd  `cmd:"" group:"data" help:"Write a topic's records to the output, a line each."`
	Consumer consumerCmd `cmd:"" group:"data" help:"List, show, reset and delete consumers: named positions in a topic."`
	Queue    queueCmd    `cmd:"" group:"data" help:"Create, show, change and delete queues: a topic's records as work to be done."`
	Work     workCmd     `cmd:"" group:"data" help:"Run a command for each record of a queue."`
	Trigger  triggerCmd  `cmd:"" group:"data" help:"Create, test, show and delete triggers: records about what happened, and what did not."`
	Export   exportCmd   `cmd:"" group:"data" help:"Write all records of a topic to files, and later those that were added."`
	Import   importCmd   `cmd:"" group:"data" help:"Import topics of the original Seb; records keep their offsets."`
	Top      topCmd      `cmd:"" group:"operations" help:"Show live what a broker and its topics do."`
	Bill     billCmd     `cmd:"" group:"operations" help:"Show what the brokers' requests to their store cost."`
	Key      keyCmd      `cmd:"" group:"operations" help:"Create, list and revoke API keys."`
	URL      urlCmd      `cmd:"" group:"operations" name:"url" help:"Sign a URL that reads a topic without a key."`
	Doctor   doctorCmd   `cmd:"" group:"operations" help:"Test a store, and say whether it is usable."`
	Upgrade  upgradeCmd  `cmd:"" group:"operations" help:"Raise the level of a log's format; earlier versions of seb then refuse the log."`
	Fsck     fsckCmd     `cmd:"" group:"operations" help:"Check that a log is complete; only reads."`
	GC       gcCmd       `cmd:"" group:"operations" name:"gc" help:"Delete at once what the log no longer needs, or tell what that is."`
	Restore  restoreCmd  `cmd:"" group:"operations" help:"Copy a log, as it was at some moment, to another store."`
	Dump     dumpCmd     `cmd:"" group:"operations" help:"Show what an object of the log holds."`

	Completion completionCmd `cmd:"" group:"other" help:"Write a script that completes seb's words in a shell."`
	Version    versionCmd    `cmd:"" group:"other" help:"Show the version."`
	Complete   completeCmd   `cmd:"" hidden:"" help:"Tell a shell what can stand at the cursor."`

	ShowVersion kong.VersionFlag `name:"version" env:"-" hidden:"" help:"Show the version."`
}

// groups are the headings of the commands in the help, and of the flags in the help of a command.
var groups = []kong.Group{
	{Key: "server", Title: "Server:"},
	{Key: "data", Title: "Data, through a broker:"},
	{Key: "operations", Title: "Operations:"},
	{Key: "other", Title: "Other:"},
	{Key: "broker", Title: "The broker, and the API key:"},
	{Key: "access", Title: "Access:"},
	{Key: "commits", Title: "Commits:"},
	{Key: "memory", Title: "Memory and cache:"},
	{Key: "limits", Title: "Limits:"},
	{Key: "push", Title: "Queues that are pushed:"},
	{Key: "bucket", Title: "Constants of a new log, fixed for ever:"},
	{Key: "log", Title: "Logs and profiles:"},
}

// streams are standard input, output and error. Tests replace them.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	second := &secondSignal{}
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), secondSignalKey{}, second))
	signals := make(chan os.Signal, 2) // room for a signal while another is handled
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup starts a process that ignores SIGHUP
		signal.Notify(signals, syscall.SIGHUP) // comes when the terminal is closed
	}
	go func() {
		cancel(interruption{<-signals}) // asks the command to end
		s := <-signals
		if do := second.do.Load(); do != nil {
			(*do)()
			s = <-signals
		}
		os.Exit(interruption{s}.exitCode())
	}()
	// In seb consume | head, head ends first. With SIGPIPE ignored, a write to the closed pipe returns an
	// error and does not kill seb, so seb can still exit with 0.
	signal.Ignore(syscall.SIGPIPE)
	os.Exit(run(ctx, os.Args[1:], streams{os.Stdin, shown(os.Stdout), shown(os.Stderr)}))
}

// secondSignal holds a function that main calls at the second signal; a third signal then ends the process.
// If no function is set, the second signal ends the process.
type secondSignal struct{ do atomic.Pointer[func()] }

type secondSignalKey struct{}

// onSecondSignal makes main call do at the second signal, until the caller calls undo.
func onSecondSignal(ctx context.Context, do func()) (undo func()) {
	second, ok := ctx.Value(secondSignalKey{}).(*secondSignal)
	if !ok {
		return func() {} // a test called run: no signals come
	}
	second.do.Store(&do)
	return func() { second.do.Store(nil) }
}

// run executes one command line and returns the exit code. It writes errors to std.err.
func run(ctx context.Context, args []string, std streams) (code int) {
	// For --help, Kong calls the exit function within Parse, and expects that the function does not return.
	// So the function panics with the exit code, and the deferred function below recovers it.
	type exit int
	defer func() {
		switch r := recover().(type) {
		case nil:
		case exit:
			code = int(r)
		default:
			panic(r)
		}
	}()
	std.out = outputStream{std.out}
	if len(args) > 0 && args[0] == "help" { // seb help COMMAND
		args = append(slices.Clone(args[1:]), "--help")
	}
	parser := newParser(ctx, std, func(code int) { panic(exit(code)) })
	command, err := parser.Parse(args)
	if errors.Is(err, syscall.EPIPE) {
		return exitOK // the help was not read to its end, as in seb --help | head
	}
	if err == nil {
		err = refuseEmpty(command)
	}
	if err != nil {
		var p *kong.ParseError
		if errors.As(err, &p) {
			command = p.Context // as much of the command line as Kong understood
		}
		report(std.err, pointToHelp(command, usage(suggest(command, nameVariables(command, err)))))
		return exitUsage
	}
	preferTypedKey(command)
	warnOfKeyFile(command, std.err)
	err = command.Run()
	if nobodyReads(err) && exitCode(ctx, err) == exitFailure && slices.Contains(readers, nameOf(command.Selected())) {
		return exitOK // the output was not read to its end, and nothing else failed
	}
	if err != nil && !errors.Is(err, errEnded) {
		report(std.err, pointToHelp(command, nameVariables(command, err)))
	}
	return exitCode(ctx, err)
}

// nameOf returns a command's words, such as "topic list".
func nameOf(command *kong.Node) string { return strings.TrimPrefix(command.FullPath(), "seb ") }

// readers are the commands that change nothing. If the program that reads their output ends early, such as
// head, that is no failure: the user can run them again.
var readers = []string{
	"bill", "complete", "completion", "consume", "consumer lag", "consumer list", "consumer show", "doctor", "dump", "fsck", "key list",
	"queue dead", "queue list", "queue push show", "queue show", "top", "topic list", "topic show", "version",
}

// pointToHelp adds the hint "see ... --help" to a usage error that has no hint. A usage error is a mistake in
// the command line, found by seb or by the broker.
func pointToHelp(command *kong.Context, err error) error {
	_, hint := said(err)
	mistaken := errors.As(err, new(usageError)) || seb.CodeOf(err) == seb.CodeInvalidRequest
	if !mistaken || hint != "" {
		return err
	}
	if command == nil || command.Selected() == nil {
		return hinted(err, "see seb --help, or seb COMMAND --help")
	}
	return hinted(err, "see "+command.Selected().FullPath()+" --help")
}

// mayBeEmpty are the flags for which an empty text is a value, or means the same as no flag.
var mayBeEmpty = []string{"api-key", "reason"}

// refuseEmpty returns an error for a flag or name on the command line that is empty, such as that of a shell variable
// that is not set: --consumer "" would read as no consumer, and key create --topic "" would allow all topics. It also
// refuses a --limit below 1, since 0 would read as no limit. A flag of serve may be empty: it then counts as not given.
func refuseEmpty(command *kong.Context) error {
	for _, element := range command.Path {
		switch flag, name := element.Flag, element.Positional; {
		case flag != nil && flag.Name == "limit" && flag.Target.Kind() == reflect.Int64 && flag.Target.Int() < 1: // 0 would read as no limit
			return fmt.Errorf("invalid --limit %d: it must be at least 1; without --limit, there is no limit", flag.Target.Int())
		case flag != nil && isEmpty(flag.Target) && !slices.Contains(mayBeEmpty, flag.Name) && nameOf(command.Selected()) != "serve":
			return fmt.Errorf("--%s is empty: give a value, or leave the flag out", flag.Name)
		case name != nil && isEmpty(name.Target):
			return fmt.Errorf("<%s> is empty", name.Name)
		}
	}
	return nil
}

// isEmpty tells whether the value is an empty text, or an empty list.
func isEmpty(v reflect.Value) bool {
	return (v.Kind() == reflect.String || v.Kind() == reflect.Slice) && v.Len() == 0
}

// preferTypedKey lets --api-key-file on the command line win over SEB_API_KEY in the environment.
func preferTypedKey(command *kong.Context) {
	for _, flag := range command.Flags() {
		if flag.Name == "api-key" && typed(command, "api-key-file") && !typed(command, "api-key") {
			flag.Target.SetZero()
		}
	}
}

// warnOfKeyFile writes a warning if the command reads its API key from a file that every user of this machine may
// read or change.
func warnOfKeyFile(command *kong.Context, w io.Writer) {
	file := ""
	for _, flag := range command.Flags() {
		switch flag.Name {
		case "api-key":
			if flag.Target.String() != "" {
				return // the file is not read
			}
		case "api-key-file":
			file = flag.Target.String()
		}
	}
	if file == "" || runtime.GOOS == "windows" { // Windows has no such modes
		return
	}
	if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o006 != 0 { // an error is reported when the file is read
		note(w, "warning: the mode of the key file %s is %#o, so other users of this machine may use the API key: chmod it to 0600\n", oneLine(file), info.Mode().Perm())
	}
}

// newParser returns the parser of command lines. For --help and --version the parser prints the text, then
// calls leave with the exit code.
func newParser(ctx context.Context, std streams, leave func(code int)) *kong.Kong {
	parser, err := kong.New(&cli{},
		kong.Name("seb"),
		kong.Description(description),
		kong.DefaultEnvars("SEB"),
		kong.PostBuild(limitVariables),
		kong.NamedMapper("existingfile", kong.MapperFunc(fileName)),
		kong.NamedMapper("topic", kong.MapperFunc(topicName)),
		kong.TypeMapper(reflect.TypeFor[netip.Prefix](), kong.MapperFunc(networkValue)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(durationValue)),
		kong.TypeMapper(reflect.TypeFor[*time.Time](), kong.MapperFunc(timeValue)),
		kong.TypeMapper(reflect.TypeFor[slog.Level](), kong.MapperFunc(levelValue)),
		kong.Vars{"version": versionLine(), "server": defaultServer},
		kong.ExplicitGroups(groups),
		kong.WithHyphenPrefixedParameters(true), // such as --from -10
		kong.Writers(std.out, std.err),
		kong.Exit(leave),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(std),
	)
	if err != nil {
		panic(err) // a tag in the cli struct is invalid
	}
	return parser
}

// durationValue reads a duration from the command line.
func durationValue(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := httpapi.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("invalid duration %q: write 250ms, 30s, 1h or 7d", text)
	}
	target.SetInt(int64(d))
	return nil
}

// timeValue reads a time from the command line.
func timeValue(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("time", &text); err != nil {
		return err
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return fmt.Errorf("invalid time %q: write a date, a time and a zone, such as 2026-01-31T12:00:00Z", text)
	}
	target.Set(reflect.ValueOf(&t))
	return nil
}

// levelValue reads a level of the log from the command line.
func levelValue(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("level", &text); err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return fmt.Errorf("invalid level %q: write debug, info, warn or error", text)
	}
	target.Set(reflect.ValueOf(level))
	return nil
}

// usageError is a mistake in how the command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usage turns err into a usageError. If err has no hint, pointToHelp adds one.
func usage(err error) error { return usageError{err} }

// hintError is an error with advice for the person who sees it.
type hintError struct {
	error
	hint string
}

func (e hintError) Unwrap() error { return e.error }

func hinted(err error, hint string) error { return hintError{err, hint} }

// said returns the text of err that the command prints, and the hint to print below it, which may be "".
func said(err error) (message, hint string) {
	message = err.Error()
	if e, ok := errors.AsType[*seb.Error](err); ok {
		// The message leaves out the outcome, since the exit code tells whether the outcome is unknown. (After a
		// signal, the exit code tells only which signal it was.)
		short := *e
		short.Outcome, short.Hint = "", ""
		if !strings.HasPrefix(short.Detail, "line ") { // seb produce gives the place in a line of its input
			short.Detail = placeInBody.ReplaceAllString(short.Detail, "") // nobody sees the body that seb sent
		}
		text := short.Error()
		if e.Code == client.CodeUnreachable || e.Code == client.CodeUnexpectedResponse {
			text = strings.TrimPrefix(text, string(e.Code)+": ") // the detail says it all
		}
		message = strings.Replace(message, e.Error(), text, 1)
		if hint = shellHint(e.Code, e.Hint); hint == "" && e.Outcome == seb.Unknown {
			hint = "the change may have been carried out: check before you try again"
		}
	}
	if failure := objstore.FailureOf(err); failure != nil && failure.Hint != "" {
		hint = failure.Hint
		message = strings.Replace(message, "; "+hint, "", 1)
	}
	if h, ok := errors.AsType[hintError](err); ok {
		hint = h.hint
	}
	return message, hint
}

// report writes err on one line, and the hint of err, if any, on the next.
func report(w io.Writer, err error) {
	message, hint := said(err)
	// A user may have pasted an API key or another secret into a flag, and the message may quote it. Only
	// secrets with a known prefix are cut out: to cut all long words, as the log of serve does, would also
	// cut hashes and paths.
	message = strings.ReplaceAll(httpapi.WithoutNamedSecrets(message), "\n", "; ")
	note(w, "%s %s\n", painterFor(w).paint(red, "seb:"), message)
	if hint != "" {
		note(w, "     %s\n", httpapi.WithoutNamedSecrets(hint))
	}
}
