package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

type exportCmd struct {
	serverFlag
	outputFlag
	Topic string `arg:"" type:"topic" help:"Name of the topic."`
	To    string `required:"" placeholder:"DIR" help:"Directory for the files; it is created if it does not exist."`
}

// Help shows examples.
func (exportCmd) Help() string {
	return `Examples:

    seb export orders --to ./orders
    cat ./orders/*.ndjson | jq -r .value
    seb produce copies --format json --file ./orders/0.ndjson

Writes all records of a topic to files, one for each partition: PARTITION.ndjson has a record per line, as JSON, with its offset,
timestamp, log time, key, value and headers, in the form of seb consume --format json. Stops at the end of the topic as it was at the start.

Called again with the same directory, it goes on where the files end, and takes also what was added since then; so an interrupted
export loses nothing, and a regular call keeps the files up to date. Records that were deleted from the topic before they were
exported are not in the files; the command then says so. If the topic was deleted, and there is a new one of that name, it
refuses to go on in the same directory. Only one seb export at a time may write to a directory.

Exit codes: 0 all records are in the files; 4 there is no such topic, or the directory has another one; 6 the broker does not
answer: call it again.`
}

// exportNote is the file that says which topic a directory has.
const exportNote = "topic.json"

// exported is the content of exportNote.
type exported struct {
	Topic string `json:"topic"`
	ID    string `json:"topic_id"`
}

// exportedPartition says how far the file of a partition is.
type exportedPartition struct {
	Partition int32      `json:"partition"`
	File      string     `json:"file"`
	Records   int64      `json:"records"` // written by this call
	Next      seb.Offset `json:"next"`    // the offset with which the next call begins
	Deleted   int64      `json:"deleted"` // offsets that were deleted before they were exported
}

// Run writes the files.
func (c *exportCmd) Run(ctx context.Context, std streams) error {
	broker, err := c.client()
	if err != nil {
		return err
	}
	t, tag, err := broker.TaggedTopic(ctx, c.Topic)
	if err != nil {
		return fmt.Errorf("export %s: %w", c.Topic, err)
	}
	release, err := c.claim(tag)
	if err != nil {
		return err
	}
	defer release()
	e := exporter{c: c, broker: broker, tag: tag, progress: newProgress(std.err, 0)}
	var done []exportedPartition
	for _, p := range t.Partitions {
		x, err := e.partition(ctx, p)
		done = append(done, x)
		if err != nil {
			e.progress.clear()
			if ctx.Err() != nil {
				err = errInterrupted
			}
			return hinted(fmt.Errorf("export %s: partition %d, at offset %d: %w", c.Topic, p.Partition, x.Next, err), "the same command goes on from there")
		}
	}
	e.progress.clear()
	if c.json() {
		return printJSON(std.out, struct {
			exported
			Partitions []exportedPartition `json:"partitions"`
		}{exported{c.Topic, tag}, done})
	}
	p := newPrinter(std.out)
	for _, x := range done {
		p.printf("%s: %s, the next one has offset %d\n", x.File, counted(x.Records, "new record", "new records"), x.Next)
		if x.Deleted > 0 {
			p.printf("  %s deleted from the topic before they could be exported\n", counted(x.Deleted, "offset was", "offsets were"))
		}
	}
	return p.err
}

// claim creates the directory, or checks that it has this topic. Until release is called, no other process exports to it.
func (c *exportCmd) claim(tag string) (release func(), err error) {
	if err := os.MkdirAll(c.To, 0o755); err != nil {
		return nil, hinted(err, "with --to, name a directory that this user may create or write to")
	}
	entries, err := os.ReadDir(c.To)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(c.To, exportNote), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err = flock(f); err != nil {
		err = codedError{fmt.Errorf("another seb export writes to %s: %w", c.To, err), exitRefused}
	} else {
		err = c.check(f, tag, entries)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil // nothing is left to write
}

// check writes the note of a new directory, or reads that of one which the command has written before. entries are the files that the
// directory had.
func (c *exportCmd) check(note *os.File, tag string, entries []os.DirEntry) error {
	body, err := io.ReadAll(note)
	if err != nil {
		return err
	}
	if len(body) == 0 { // new, or the disk was full
		for _, e := range entries {
			if e.Name() != exportNote {
				return errors.Join(os.Remove(note.Name()), codedError{hinted(fmt.Errorf("--to %s holds other files, such as %s", c.To, e.Name()), "name an empty or a new directory"), exitRefused})
			}
		}
		body, err := json.Marshal(exported{c.Topic, tag})
		if err == nil {
			_, err = note.Write(append(body, '\n'))
		}
		return cmp.Or(err, note.Sync(), syncDirectory(c.To))
	}
	var has exported
	if err := json.Unmarshal(body, &has); err != nil {
		return codedError{hinted(fmt.Errorf("%s is damaged: %w", note.Name(), err), "name another directory"), exitRefused}
	}
	if has != (exported{c.Topic, tag}) {
		return codedError{hinted(fmt.Errorf("--to %s has records of the topic %s with the id %s; the topic %s has the id %s", c.To, has.Topic, has.ID, c.Topic, tag), "name another directory"), exitRefused}
	}
	return nil
}

// syncDirectory makes the names of new files durable.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, errors.ErrUnsupported) || runtime.GOOS == "windows" {
		err = nil // the system has no such thing
	}
	return errors.Join(err, d.Close())
}

// exporter writes the files of one topic.
type exporter struct {
	c        *exportCmd
	broker   *client.Client
	tag      string
	progress *progress
	records  int64
	bytes    int64
	body     []byte // buffer of the last answer
}

// partition writes the file of a partition up to the partition's end.
func (e *exporter) partition(ctx context.Context, p seb.Partition) (x exportedPartition, err error) {
	x = exportedPartition{Partition: p.Partition, File: filepath.Join(e.c.To, fmt.Sprintf("%d.ndjson", p.Partition))}
	f, err := os.OpenFile(x.File, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return x, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if x.Next, err = continueFile(f); err != nil {
		return x, fmt.Errorf("%s: %w", x.File, err)
	}
	if p, err = e.reach(ctx, p, x.Next); err != nil {
		return x, err
	}
	if x.Next > p.End {
		return x, codedError{hinted(fmt.Errorf("%s goes on to offset %d, and the partition ends at %d: the log was replaced by an older one", x.File, x.Next-1, p.End), "name another directory"), exitRefused}
	}
	out := bufio.NewWriterSize(f, 256<<10)
	var pause backoff
	var failingSince time.Time
	for x.Next < p.End {
		if x.Next < p.Start {
			x.Deleted, x.Next = x.Deleted+int64(p.Start-x.Next), p.Start
			continue
		}
		got, err := e.broker.FetchEncoded(ctx, e.c.Topic, p.Partition, seb.At(x.Next), seb.FetchOptions{TopicTag: e.tag, Limit: fetchRecords, MaxBytes: fetchBytes}, client.Lines, e.body)
		switch {
		case err == nil:
			failingSince = time.Time{}
		case seb.CodeOf(err) == seb.CodeOffsetOutOfRange: // deleted meanwhile
			t, again := e.broker.Topic(ctx, e.c.Topic)
			if again != nil {
				return x, again
			}
			if start := t.Partitions[p.Partition].Start; start > x.Next {
				p.Start = start
				continue
			}
			return x, err
		default:
			if failingSince.IsZero() {
				failingSince = time.Now()
			}
			if ctx.Err() != nil || !retryable(err) || time.Since(failingSince) > readRetryMax || !pause.wait(ctx, err) {
				return x, err
			}
			continue
		}
		pause, e.body = backoff{}, got.Body
		if got.Next <= x.Next {
			return x, fmt.Errorf("%s sent no record at offset %d, though the partition ends at %d", e.c.Server, x.Next, p.End)
		}
		if err := e.write(out, got, &x); err != nil {
			return x, err
		}
	}
	return x, cmp.Or(out.Flush(), f.Sync(), syncDirectory(e.c.To))
}

// reach returns the partition once it reaches an offset, or after some seconds: what a broker says about it may be a second old.
func (e *exporter) reach(ctx context.Context, p seb.Partition, next seb.Offset) (seb.Partition, error) {
	for tries := 0; next > p.End && tries < 5; tries++ {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return p, ctx.Err()
		}
		t, err := e.broker.Topic(ctx, e.c.Topic)
		if err != nil {
			return p, err
		}
		p = t.Partitions[p.Partition]
	}
	return p, nil
}

// write writes the records of an answer.
func (e *exporter) write(out *bufio.Writer, got client.Encoded, x *exportedPartition) error {
	for _, line := range got.Each() {
		if err := writeLine(out, line); err != nil {
			return err
		}
		x.Records, e.records, e.bytes = x.Records+1, e.records+1, e.bytes+int64(len(line))
	}
	if err := out.Flush(); err != nil { // so that an interrupted export has only the last line cut off, if any
		return err
	}
	x.Next = got.Next
	e.progress.update(time.Now(), e.records, e.bytes)
	return nil
}

// continueFile returns the offset after the last whole line of a file, and cuts off what follows that line.
func continueFile(f *os.File) (next seb.Offset, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	var tail []byte // of the file, from its last but one LF on
	for at := size; at > 0; {
		n := min(at, 64<<10)
		at -= n
		part := make([]byte, n, int(n)+len(tail))
		if _, err := f.ReadAt(part, at); err != nil {
			return 0, err
		}
		tail = append(part, tail...)
		if bytes.Count(tail, []byte{'\n'}) > 1 {
			break
		}
	}
	end := bytes.LastIndexByte(tail, '\n')
	if cut := int64(len(tail) - end - 1); cut > 0 {
		if err := f.Truncate(size - cut); err != nil {
			return 0, err
		}
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil || end < 0 {
		return 0, err
	}
	line := tail[bytes.LastIndexByte(tail[:end], '\n')+1 : end]
	var last struct {
		Offset *seb.Offset `json:"offset"`
	}
	if err := json.Unmarshal(line, &last); err != nil || last.Offset == nil {
		return 0, errors.New("its last line is not a record with an offset: name another directory")
	}
	return *last.Offset + 1, nil
}
