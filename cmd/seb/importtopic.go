package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/original"
)

// errNotOurs means that something other than an import appended to the topic. In that case it does not help
// to run the import again.
var errNotOurs = errors.New("the topic holds records that no import appended")

// topicImport is the import of one topic. Offsets are those of the topic in Seb, unless a comment names the
// source: in the source, the offset of the same record is larger by base.
type topicImport struct {
	*importer
	topicSummary
	offsets []int64 // offsets in the source at which the files begin
	base    int64   // the offset in the source that is 0 in Seb
	end     int64   // the next offset in Seb, as far as this import knows
	pending importBatch
}

// run imports the records of the source that the topic in Seb lacks.
func (t *topicImport) run(ctx context.Context) error {
	t.First = t.offsets[0]
	if t.First != 0 && !t.cmd.Renumber {
		return hinted(fmt.Errorf("the first file is %s: offsets can't be kept if the records before offset %d are missing", original.Name(t.Topic, t.First), t.First),
			"restore the files before it, or give the records new offsets from 0 with --renumber")
	}
	t.base = t.First
	end, err := t.readEnd(ctx)
	if err != nil {
		return err
	}
	t.end, t.Found, t.End = end, end, end
	t.pending.reset()
	err = t.readAll(ctx)
	t.End = t.end
	if err == nil {
		t.Complete = true
		return nil
	}
	return t.stopped(ctx, err)
}

// stopped adds to err how to continue.
func (t *topicImport) stopped(ctx context.Context, err error) error {
	err = stopped(ctx, err)
	if t.cmd.DryRun || errors.Is(err, errNotOurs) {
		return err
	}
	goOn := fmt.Sprintf("all records before offset %d are in the topic; run the same import again to continue there", t.end)
	if _, hint := said(err); hint != "" {
		goOn = hint + "; " + goOn
	}
	return hinted(err, goOn)
}

// readAll appends the records of the source that the topic in Seb lacks, file after file.
func (t *topicImport) readAll(ctx context.Context) error {
	skipped := t.resumeAt()
	if t.cmd.DryRun {
		skipped = 0 // a dry run checks every file
	}
	t.files += int64(skipped)
	last := int64(0) // the offset in Seb after the source's last record
	for file, err := range readFiles(ctx, t.source, t.Topic, t.offsets[skipped:]) {
		if err != nil {
			return err
		}
		if err := t.checkStored(ctx, file); err != nil {
			return err
		}
		if err := t.copyFile(ctx, file); err != nil {
			return err
		}
		t.Files++
		t.files++
		last = file.end() - t.base
		t.progress.update(time.Now(), t.files, t.bytes)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := t.flush(ctx); err != nil {
		return err
	}
	if t.end > last {
		t.Later, t.Found, t.end = t.end-last, last, last
	}
	return nil
}

// resumeAt returns the index of the first file that import has to read: the file with the last record that
// the topic in Seb has already.
func (t *topicImport) resumeAt() int {
	after := sort.Search(len(t.offsets), func(i int) bool { return t.offsets[i]-t.base >= t.end })
	return max(0, after-1)
}

// checkStored compares the last record that both the source and the topic in Seb had at the start. If f holds
// that record and the two versions of it differ, checkStored returns an error. For all other files it does
// nothing.
func (t *topicImport) checkStored(ctx context.Context, f *importFile) error {
	first, end := f.first-t.base, f.end()-t.base
	last := min(t.Found, end) - 1
	if last < first || f.next >= 0 && t.Found > end {
		return nil
	}
	same, err := t.stored(ctx, last, seb.Record{Value: f.batch.Record(int(last - first)), Timestamp: importTime(f.batch.Time)})
	if err != nil {
		return err
	}
	if !same {
		return t.notOurs(fmt.Sprintf("its record at offset %d differs from that of %s", last, f.name),
			"import into a bucket that has no topic of this name, or delete that topic if nobody needs it")
	}
	return nil
}

// copyFile adds those records of f to the pending batch that neither the topic nor the batch has. If the batch
// has no room for a record, copyFile first appends the batch.
func (t *topicImport) copyFile(ctx context.Context, f *importFile) error {
	first, at := f.first-t.base, importTime(f.batch.Time)
	for i := range f.batch.Count() {
		if first+int64(i) < t.end+int64(t.pending.count()) {
			continue // the topic or the pending batch has this record
		}
		value := f.batch.Record(i)
		if t.pending.full(len(value), int(t.cmd.BatchBytes)) {
			if err := t.flush(ctx); err != nil {
				return err
			}
		}
		t.pending.add(seb.Record{Value: value, Timestamp: at})
	}
	return nil
}

// flush appends the pending batch.
func (t *topicImport) flush(ctx context.Context) error {
	if t.pending.count() == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !t.cmd.DryRun {
		if err := t.append(ctx); err != nil {
			return err
		}
	}
	t.end += int64(t.pending.count())
	t.Imported += int64(t.pending.count())
	t.Bytes += int64(t.pending.bytes)
	t.bytes += int64(t.pending.bytes)
	t.pending.reset()
	return nil
}

// append appends the pending batch at the topic's end. The request names the offset that its first record
// must get. So a retry after an unknown outcome can't append the batch twice. The end of ctx stops the
// retries, but does not interrupt a request under way.
func (t *topicImport) append(ctx context.Context) error {
	began := time.Now()
	retrying, cancel := context.WithTimeout(ctx, t.cmd.RetryFor)
	defer cancel()
	var pause backoff
	unknown := false // whether any of the requests may have been carried out
	created := false
	for {
		err := t.post(context.WithoutCancel(ctx), began)
		if err == nil {
			return nil
		}
		if seb.CodeOf(err) == seb.CodeOffsetConflict {
			return t.settle(context.WithoutCancel(ctx), err)
		}
		if seb.CodeOf(err) == seb.CodeTopicNotFound && t.end == 0 && !created {
			// This broker does not create topics at their first append (--no-auto-create), so import creates
			// the topic. An append was tried first, since creating a topic needs a key with the scope admin,
			// and an append does not.
			created = true
			if err = t.create(ctx); err == nil {
				continue
			}
		}
		retry := retryable(err)
		unknown = unknown || seb.OutcomeOf(err) == seb.Unknown
		if retry {
			t.waits.tell(err)
		}
		if retry && pause.wait(retrying, err) {
			continue
		}
		if unknown && ctx.Err() == nil {
			err = codedError{err, exitUnknown}
		}
		return err
	}
}

// The caller calls settle when the broker has refused the batch because the topic no longer ends at t.end;
// conflict is the broker's error. settle returns nil if the records from t.end on are those of the batch,
// which an earlier request of this import appended.
func (t *topicImport) settle(ctx context.Context, conflict error) error {
	end, err := t.readEnd(ctx)
	if err != nil {
		return err
	}
	last := end - t.end - 1 // index in the batch of the topic's last record
	if last < 0 || last >= int64(t.pending.count()) {
		return t.disturbed(conflict)
	}
	same, err := t.stored(ctx, end-1, t.pending.records[last])
	switch {
	case err != nil:
		return err
	case !same:
		return t.disturbed(conflict)
	case last+1 < int64(t.pending.count()):
		return errors.New("a delayed request of an earlier import has appended a part of the batch")
	}
	return nil
}

// disturbed returns the error for the case that another program's records have offsets that the import needs.
func (t *topicImport) disturbed(how error) error {
	return t.notOurs(fmt.Sprintf("another program appended to it: %v", how),
		"offsets can't be kept: stop that program, delete the topic, and import again")
}

func (t *topicImport) notOurs(why, hint string) error {
	return codedError{hinted(fmt.Errorf("%w: %s", errNotOurs, why), hint), exitRefused}
}

// readEnd returns where the topic in Seb ends: 0 if it does not exist.
func (t *topicImport) readEnd(ctx context.Context) (end int64, _ error) {
	var info seb.Topic
	err := t.inTime(ctx, time.Now(), func(ctx context.Context) (err error) {
		info, err = t.broker.Topic(ctx, t.Topic)
		return err
	})
	if seb.CodeOf(err) == seb.CodeTopicNotFound {
		return 0, nil
	}
	if err == nil && len(info.Partitions) == 0 {
		err = fmt.Errorf("%s describes the topic without a partition: is it a broker?", t.cmd.Server)
	}
	if err != nil {
		return 0, fmt.Errorf("read the topic's end: %w", err)
	}
	return int64(info.Partitions[0].End), nil
}

func (t *topicImport) create(ctx context.Context) error {
	err := t.inTime(ctx, time.Now(), func(ctx context.Context) error {
		_, _, err := t.broker.CreateTopic(ctx, t.Topic, seb.TopicOptions{Partitions: 1})
		return err
	})
	if err != nil {
		return fmt.Errorf("create the topic: %w", err)
	}
	return nil
}

// stored tells whether the record of the topic at an offset has the value and time of r.
func (t *topicImport) stored(ctx context.Context, offset int64, r seb.Record) (bool, error) {
	var f seb.Fetched
	err := t.inTime(ctx, time.Now(), func(ctx context.Context) (err error) {
		f, err = t.broker.Fetch(ctx, t.Topic, 0, seb.At(seb.Offset(offset)), seb.FetchOptions{Limit: 1})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("read the topic's last record: %w", err)
	}
	return len(f.Records) == 1 && bytes.Equal(f.Records[0].Value, r.Value) && f.Records[0].Timestamp.Equal(r.Timestamp), nil
}

// post sends the pending batch, on the condition that the topic still ends at t.end. The first request for the batch
// began at began.
func (t *topicImport) post(ctx context.Context, began time.Time) error {
	var answer seb.Appended
	err := t.inTime(ctx, began, func(ctx context.Context) (err error) {
		answer, err = t.broker.Append(ctx, t.Topic, t.pending.records, seb.ToPartition(0), seb.IfOffset(seb.Offset(t.end)))
		return err
	})
	if err != nil {
		return fmt.Errorf("append %d records at offset %d: %w", t.pending.count(), t.end, err)
	}
	want := seb.Range{Offset: seb.Offset(t.end), Count: t.pending.count()}
	if len(answer.Ranges) != 1 || answer.Ranges[0] != want {
		return t.disturbed(fmt.Errorf("records for offset %d got other offsets: %+v", t.end, answer.Ranges))
	}
	return nil
}

// inTime calls send as the function inTime does, with --retry-for.
func (t *topicImport) inTime(ctx context.Context, began time.Time, send func(ctx context.Context) error) error {
	return inTime(ctx, t.cmd.Server, began, t.cmd.RetryFor, send)
}
