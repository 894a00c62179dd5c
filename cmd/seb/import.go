package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb/client"
)

type importCmd struct {
	serverFlag
	outputFlag
	Source     string        `arg:"" placeholder:"DIR|URL" help:"Where the original kept its topics: a directory, or s3://BUCKET/PREFIX?endpoint=URL&region=NAME."`
	Topic      []string      `placeholder:"NAME" help:"Import this topic only; may be repeated (default: all)."`
	Renumber   bool          `help:"Give a topic whose first file is not at offset 0 new offsets, from 0 on."`
	DryRun     bool          `help:"Read and check every file, and append nothing."`
	BatchBytes size          `default:"4MiB" help:"Largest request to send, as far as records allow (default ${default})."`
	RetryFor   time.Duration `default:"2m" help:"How long to try again when the broker or its store does not answer, and to wait for a response; a response has at least 10s (default ${default})."`
}

// Help shows examples.
func (importCmd) Help() string {
	return `Appends the records of the original Seb's files, named TOPIC/OFFSET.record_batch, plain or gzip, to topics of
the same names, each at the offset that it had, with the time of its batch. The files are only read.

A topic in Seb must be new, or hold what an earlier import appended: then this import continues where the earlier import stopped.
No other program may append to it meanwhile. If an import fails or is interrupted, run the same command again.

Examples:

    seb import ./seb-old --dry-run
    seb import 's3://old-bucket/prefix?region=eu-central-1'
    seb import ./seb-old --topic orders --topic clicks --output json`
}

// Run imports one topic after the other, and prints a summary even if the import fails.
func (c *importCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	if c.BatchBytes < 1 {
		return usage(fmt.Errorf("invalid --batch-bytes %d: it must be at least 1", c.BatchBytes))
	}
	source, err := openImportSource(ctx, c.Source)
	if err != nil {
		return err
	}
	defer source.close()
	found, err := takeInventory(ctx, source, c.Topic)
	if err != nil {
		return fmt.Errorf("import %s: %w", c.Source, stopped(ctx, err))
	}
	im := &importer{cmd: c, broker: broker, source: source, progress: newProgress(std.err, found.files())}
	im.progress.unit, im.progress.counted = "files", true
	im.waits = newWaitNotes(std.err, im.progress, "import", c.RetryFor)
	summary := importSummary{Source: c.Source, DryRun: c.DryRun, Ignored: found.ignored, Topics: []*topicSummary{}}
	for _, topic := range found.names() {
		t := &topicImport{importer: im, topicSummary: topicSummary{Topic: topic}, offsets: found.topics[topic]}
		summary.Topics = append(summary.Topics, &t.topicSummary)
		if err = t.run(ctx); err != nil {
			err = fmt.Errorf("import %s: %w", topic, err)
			break
		}
	}
	im.progress.clear()
	return errors.Join(err, summary.write(c.json(), std))
}

// importer is one run of import.
type importer struct {
	cmd      *importCmd
	broker   *client.Client
	source   importSource
	progress *progress
	waits    *waitNotes
	files    int64 // files that are done, of all topics
	bytes    int64 // size of the values that were appended so far
}

// importSummary is what import did.
type importSummary struct {
	Source  string          `json:"source"`
	DryRun  bool            `json:"dry_run"`
	Topics  []*topicSummary `json:"topics"`
	Ignored int64           `json:"ignored_files"` // files of the source that hold no records
}

// topicSummary is what import did for a topic.
type topicSummary struct {
	Topic    string `json:"topic"`
	Files    int64  `json:"files"`         // files that were read
	Found    int64  `json:"found_records"` // records of the source that the topic had at the start
	Imported int64  `json:"records"`       // records that were appended; in a dry run, records that a real run would append
	Bytes    int64  `json:"bytes"`         // of the imported values
	End      int64  `json:"end_offset"`    // the offset after the imported records
	Later    int64  `json:"later_records"` // records of the topic that come after the last record of the source
	First    int64  `json:"source_offset"` // offset of the first record in the source
	Complete bool   `json:"complete"`      // all records of the source are in the topic
}

func (s *importSummary) write(json bool, std streams) error {
	if json {
		return printJSON(std.out, s)
	}
	did := "imported"
	if s.DryRun {
		did = "to import"
	}
	out := newPrinter(std.out)
	for _, t := range s.Topics {
		out.printf("%s: %s %s, %s, from %s", t.Topic, counted(t.Imported, "record", "records"), did, size(t.Bytes), counted(t.Files, "file", "files"))
		if t.Found > 0 {
			out.printf("; %d were there before", t.Found)
		}
		if t.Later > 0 {
			out.printf(", and %d later ones", t.Later)
		}
		if t.First > 0 && t.Complete {
			out.printf("; offset %d of the original is 0 here", t.First)
		}
		out.printf("; the next offset is %d\n", t.End+t.Later)
	}
	return out.err
}
