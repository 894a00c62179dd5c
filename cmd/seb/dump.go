package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/original"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

type dumpCmd struct {
	storeFlag
	outputFlag
	Object  string `arg:"" help:"Name of a file, or, if there is no such file, a key in --store."`
	Records bool   `help:"Show the records of every batch too."`
}

// Help shows examples.
func (dumpCmd) Help() string {
	return `Examples:

    seb dump seb-data/log/00000000000000000001
    seb dump --store s3://bucket/prefix checkpoint/00000000000000001000
    seb dump --store s3://bucket/prefix seb.json
    seb dump --output json ./seb-data/seb.json
    seb dump --records ./data/00000000000000000007-1f2e3d4c5b6a7988

Shows prologue, head, rows and batches, and verifies every checksum on the way. To see the batches in a data
object, dump that object; its records count from 0, since only the commit knows their offsets. The exit code is
3 if anything is damaged.`
}

// Run prints the object.
func (c *dumpCmd) Run(ctx context.Context, std streams) (err error) {
	b, err := c.read(ctx)
	if err != nil {
		return err
	}
	d := &dumper{printer: *newPrinter(std.out), records: c.Records, Object: c.Object, Lines: []dumpLine{}}
	if d.collect = c.json(); d.collect {
		d.w = io.Discard
	}
	defer func() {
		if d.collect {
			if unwritten := printJSON(std.out, d); err == nil {
				err = unwritten
			}
		}
	}()
	name := filepath.ToSlash(c.Object)
	if !isObject(b) && !isKey(name) {
		return notAnObject(c.Object, b)
	}
	if err := d.dump(b, name); errors.Is(err, format.ErrVersion) {
		return fmt.Errorf("dump %s: %w", c.Object, err)
	} else if err != nil {
		return codedError{fmt.Errorf("dump %s: %w", c.Object, err), exitDamage}
	}
	if d.Bad > 0 {
		return codedError{fmt.Errorf("%s: %w in %s, marked BAD above", c.Object, format.ErrCorrupt, counted(int64(d.Bad), "place", "places")), exitDamage}
	}
	return d.err
}

// isObject tells whether b begins like an object of Seb, or of the original Seb.
func isObject(b []byte) bool { return format.IsObject(b) || original.IsBatch(b) }

// isKey tells whether the path of a file ends like the key of an object: then there must be an object.
func isKey(name string) bool {
	dir, base := path.Split(name)
	switch path.Base(dir) + "/" {
	case format.LogPrefix, format.CheckpointPrefix, format.DataPrefix:
		return true
	}
	return base == format.ClusterKey
}

// notAnObject returns the error for a file that begins with first, and that Seb did not write.
func notAnObject(name string, first []byte) error {
	return codedError{hinted(fmt.Errorf("%s is not an object of Seb: it begins with %q", name, first[:min(len(first), 16)]), dumpHint), exitRefused}
}

const dumpHint = "name a file, or with --store the key of an object, such as seb.json or log/00000000000000000001, with all 20 digits"

// read returns the bytes of the file, or of the store's object.
func (c *dumpCmd) read(ctx context.Context) ([]byte, error) {
	b, err := readRegular(c.Object, format.ObjectBytesMax, c.judge)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	if isDirectory(c.Store) {
		if _, err := os.Stat(c.Store); err != nil {
			return nil, codedError{hinted(fmt.Errorf("neither a file %s nor a store %s exists", c.Object, c.Store), dumpHint), exitRefused}
		}
	}
	store, err := c.openExisting(ctx)
	if err != nil {
		return nil, err
	}
	o, err := objstore.GetWholeIf(ctx, store, c.Object, format.ObjectBytesMax, c.judge)
	if errors.Is(err, objstore.ErrNotRegular) || errors.Is(err, objstore.ErrTooLarge) {
		return nil, codedError{fmt.Errorf("--store %s: %w", c.Store, err), exitDamage}
	}
	if err != nil {
		err = fmt.Errorf("--store %s: %w", c.Store, err)
		if errors.Is(err, objstore.ErrNotFound) {
			err = hinted(err, dumpHint)
		}
		return nil, err
	}
	return o.Body, nil
}

// judge gets the first MiB of a file or object that is larger than 1 MiB. If dump can't show the object,
// judge returns an error, and the rest is not read into memory.
func (c *dumpCmd) judge(first []byte, size int64) error {
	if original.IsBatch(first) {
		return nil
	}
	if !format.IsObject(first) && !isKey(filepath.ToSlash(c.Object)) {
		return notAnObject(c.Object, first)
	}
	p, err := format.DecodePrologue(first)
	if err == nil {
		err = judgeHead(p, first, size)
	}
	if err == nil || errors.Is(err, format.ErrVersion) {
		return err
	}
	return codedError{err, exitDamage}
}

// judgeHead checks the head, if first has all of it.
func judgeHead(p format.Prologue, first []byte, size int64) (err error) {
	switch p.Kind {
	case format.KindCheckpoint:
		if size > format.CheckpointBytesMax {
			return format.Corrupt("a checkpoint has %d bytes, at most %d are allowed", size, int64(format.CheckpointBytesMax))
		}
		return format.CheckCheckpointStart(first, size)
	case format.KindData:
		_, err = format.DecodeDataHead(first)
	case format.KindIntroduction:
		_, err = format.DecodeIntroduction(first)
	case format.KindSegment:
		if p.End() <= int64(len(first)) {
			if _, err = format.DecodeSegmentHead(first); format.IsPage(first) {
				_, _, err = format.DecodePageHead(first)
			}
		}
	case format.KindCommit:
		if p.End() > format.HeadBytesMax || p.End() > size {
			return format.Corrupt("the head should end at byte %d of %d, and may have at most %d bytes", p.End(), size, int64(format.HeadBytesMax))
		}
		if p.End() > int64(len(first)) {
			return nil
		}
		c, err := format.DecodeCommit(first)
		if err == nil && size > c.Size()+int64(len(first)) { // dump shows objects whose size is only a little wrong
			err = format.Corrupt("the object has %d bytes instead of %d", size, c.Size())
		}
		return err
	}
	return err
}

// dumper writes what an object holds, and counts what is wrong with it.
type dumper struct {
	printer `json:"-"`
	records bool
	collect bool // lines go into Lines, and are not printed

	Object string     `json:"object"`
	Bad    int        `json:"bad"`
	Lines  []dumpLine `json:"lines"`
}

// dumpLine is one line of the output. A line without a label continues the line before.
type dumpLine struct {
	Label string `json:"label,omitempty"`
	Text  string `json:"text"`
}

func (d *dumper) line(label, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if d.collect {
		d.Lines = append(d.Lines, dumpLine{label, text})
	}
	d.printf("%-12s %s\n", label, text)
}

// dump shows the object b. name is the file or key that the user gave. If name has the form of a key of the
// log, such as log/00000000000000000001, it must be the key that b itself names.
func (d *dumper) dump(b []byte, name string) error {
	if path.Base(name) == format.ClusterKey {
		return d.cluster(b)
	}
	if original.IsBatch(b) {
		return d.original(b)
	}
	p, err := format.DecodePrologue(b)
	if err != nil {
		return err
	}
	d.line("object", "%v, version %d, %d bytes, head %d bytes with CRC %08x", p.Kind, p.Version, len(b), p.HeadSize, p.HeadCRC)
	d.line("written", "%v (by the writer's clock)", micros(p.Created))
	switch p.Kind {
	case format.KindCommit:
		return d.commit(b, name)
	case format.KindSegment:
		if format.IsPage(b) {
			return d.page(b, name)
		}
		return d.segment(b, name)
	case format.KindData:
		return d.data(b, name)
	case format.KindIntroduction:
		return d.introduction(b, name)
	case format.KindCheckpoint:
		return d.checkpoint(b, name)
	default:
		return fmt.Errorf("%w: %v", format.ErrVersion, p.Kind)
	}
}

func (d *dumper) cluster(b []byte) error {
	c, err := format.DecodeCluster(b)
	if err != nil {
		return err
	}
	d.line("object", "constants of the bucket, %d bytes", len(b))
	d.line("cluster", "%v", c.ID)
	d.line("format", "%d", c.Format)
	d.line("delete delay", "%v", time.Duration(c.DeleteDelay))
	d.line("margin", "%v", time.Duration(c.Margin))
	d.line("created", "%v", c.Created.UTC())
	return nil
}

func (d *dumper) commit(b []byte, name string) error {
	c, err := format.DecodeCommit(b)
	if err != nil {
		return err
	}
	d.line("cluster", "%v", c.Cluster)
	d.line("slot", "%d%s", c.Seq, d.standsAt(name, format.LogKey(c.Seq)))
	d.line("nonce", "%x", c.Nonce)
	d.line("previous", "%v", c.Prev)
	d.line("this", "%v", c.Hash)
	d.line("time", "%v (by the store's clock)", micros(c.Time))
	d.line("payload", "%d bytes at %d%s", c.PayloadSize, c.PayloadStart, d.mark(c.Size() != int64(len(b)), "the object has another size"))
	for i, ref := range c.Data {
		d.line("data", "%d: %s, %d bytes", i+1, ref.Key(), ref.Size)
	}
	for i, item := range c.Entries {
		switch x := item.(type) {
		case *format.Batch:
			d.row(i, x, b, c)
		case *format.TopicCreated:
			d.line("item", "%d: topic %d created: %q, %d partitions", i, x.ID, x.Name, x.Partitions)
		case *format.TopicDeleted:
			d.line("item", "%d: topic %d deleted", i, x.ID)
		case *format.PartitionsAdded:
			d.line("item", "%d: topic %d has %d partitions from here on", i, x.Topic, x.Partitions)
		case *format.DataFloor:
			d.line("item", "%d: no later commit refers to a data object below %d", i, x.Seq)
		case *format.StartMoved:
			d.line("item", "%d: partition %d of topic %d starts at %d from here on", i, x.Partition, x.Topic, x.Start)
		case *format.TopicConfigured:
			d.line("item", "%d: topic %d has the retention settings %v and %d bytes from here on (0: not set)", i, x.Topic, time.Duration(x.Config.RetentionMS)*time.Millisecond, x.Config.RetentionBytes)
		case *format.AppendKeyed:
			d.line("item", "%d: append to topic %d with the idempotency key that hashes to %x: %d ranges", i, x.Topic, x.Key, len(x.Ranges))
			for _, r := range x.Ranges {
				d.line("", "partition %d: offsets %d to %d", r.Partition, r.Base, r.Base+seb.Offset(r.Count)-1)
			}
		case *format.KeyCreated:
			d.line("item", "%d: API key %d created: %q, scopes %#x, topics %q, %s", i, x.ID, x.Name, x.Scopes, x.Topics, expiry(x.Expires))
		case *format.KeyRevoked:
			d.line("item", "%d: API key %d revoked", i, x.ID)
		case *format.ConsumerCreated:
			d.line("item", "%d: consumer %d of topic %d created: %q", i, x.ID, x.Topic, x.Name)
		case *format.PositionsMoved:
			d.line("item", "%d: consumer %d moved", i, x.Consumer)
			for _, p := range x.Positions {
				d.line("", "partition %d: the next offset to read is %d", p.Partition, p.Offset)
			}
		case *format.ConsumerDeleted:
			d.line("item", "%d: consumer %d deleted", i, x.ID)
		case *format.SessionNamed:
			d.sessionItem(i, x)
		case *format.WriterMark:
			d.line("item", "%d: written by session %v%s", i, x.Session, writerOf(x))
		case *format.BundleMark:
			d.line("item", "%d: bundle %d of session %v, requests: %d%s", i, x.Number, x.Session, x.Requests, leftOut(x))
		case *format.UnknownEntry:
			d.line("item", "%d: unknown kind %d, not critical, %d bytes", i, x.Kind, len(x.Body))
		default:
			if !d.segmentItem(i, item) {
				d.queueItem(i, item)
			}
		}
	}
	return nil
}

// row shows where a batch of a commit is, and the batch itself if the commit holds it.
func (d *dumper) row(i int, x *format.Batch, b []byte, c *format.Commit) {
	where := "inline"
	if x.Object > 0 {
		where = fmt.Sprintf("in data %d", x.Object)
	}
	d.line("item", "%d: batch of topic %d partition %d: offsets %d to %d, latest %v, %s at %d, %d bytes, CRC %08x",
		i, x.Topic, x.Partition, x.Base, x.Base+seb.Offset(x.Count)-1, millis(x.MaxTime), where, x.Pos, x.Size, x.CRC)
	if x.Object > 0 {
		return
	}
	from := int64(c.PayloadStart) + int64(x.Pos)
	if from+int64(x.Size) > int64(len(b)) {
		d.line("", "%s", d.mark(true, "the object ends before the batch does"))
		return
	}
	batch, ok := d.batch(b[from:from+int64(x.Size)], int64(x.Base))
	if ok && (batch.Count != int(x.Count) || !batch.Dense() || batch.CRC != x.CRC) {
		d.line("", "%s", d.mark(true, "the row and the batch differ"))
	}
}

// batch shows one batch whose first record has the offset base, and tells
// whether it is intact.
func (d *dumper) batch(b []byte, base int64) (x record.Batch, ok bool) {
	x, err := record.Check(b, record.Limits{})
	if err != nil {
		d.line("", "%s", d.mark(true, err.Error()))
		return x, false
	}
	d.line("", "batch: %d records, compression %v, attributes %#x, CRC %08x: ok", x.Count, x.Codec, x.Attributes, x.CRC)
	if !d.records {
		return x, true
	}
	for r, err := range x.Records(b, base, record.Limits{}) {
		if err != nil {
			d.line("", "%s", d.mark(true, err.Error()))
			return x, false
		}
		headers := ""
		for _, h := range r.Headers {
			headers += fmt.Sprintf(" %q=%s", h.Key, quoted(h.Value))
		}
		d.line("", "%d %v key %s value %s%s", r.Offset, millis(r.Timestamp), quoted(r.Key), quoted(r.Value), headers)
	}
	return x, true
}

func (d *dumper) data(b []byte, name string) error {
	h, err := format.DecodeDataHead(b)
	if err != nil {
		return err
	}
	d.line("cluster", "%v", h.Cluster)
	d.line("begun after", "slot %d%s", h.Ref.Seq, d.standsAt(name, h.Ref.Key()))
	rest := b[format.DataPayloadStart:]
	d.line("payload", "%d batches, %d bytes at %d%s", h.Batches, h.PayloadSize, format.DataPayloadStart,
		d.mark(int64(h.PayloadSize) != int64(len(rest)), "the object has another size"))
	for i := range h.Batches {
		x, err := record.Parse(rest)
		if err == nil && x.Size > len(rest) {
			err = fmt.Errorf("batch %d should have %d bytes, but only %d bytes are left", i, x.Size, len(rest))
		}
		if err != nil {
			return fmt.Errorf("no valid batch at byte %d: %w", len(b)-len(rest), err)
		}
		d.line("batch", "%d at %d: %d bytes", i, len(b)-len(rest)-format.DataPayloadStart, x.Size)
		d.batch(rest[:x.Size], 0)
		rest = rest[x.Size:]
	}
	if len(rest) > 0 {
		d.line("", "%s", d.mark(true, fmt.Sprintf("%d bytes follow the last batch", len(rest))))
	}
	return nil
}

func (d *dumper) introduction(b []byte, name string) error {
	x, err := format.DecodeIntroduction(b)
	if err != nil {
		return err
	}
	id := x.Session.ID()
	d.line("cluster", "%v", x.Cluster)
	d.line("begun after", "slot %d%s", x.Ref.Seq, d.standsAt(name, x.Ref.Key()))
	d.line("session", "%v, key %x", id, x.Session)
	return nil
}

func (d *dumper) checkpoint(b []byte, name string) error {
	c, err := format.DecodeCheckpoint(b)
	if err != nil {
		return err
	}
	d.line("cluster", "%v", c.Cluster)
	d.line("slot", "%d%s", c.Seq, d.standsAt(name, format.CheckpointKey(c.Seq)))
	d.line("its hash", "%v", c.Hash)
	s, err := state.Decode(c.Seq, c.Body)
	if err != nil {
		return err
	}
	d.line("state", "%d bytes: %d topics, %d batches in %d objects", len(c.Body), s.TopicCount(), s.Batches(), s.Objects())
	d.line("time", "%v (by the store's clock)", micros(s.Time()))
	d.segments(s)
	for _, month := range s.Spending() {
		d.line("spent", "in %s:", month.Month.Start().Format("2006-01"))
		d.causes(month.Causes)
	}
	d.pages(s)
	for _, t := range s.Topics() {
		d.line("topic", "%d: %q, created %v", t.ID, t.Name, micros(t.Created))
		for i, p := range t.Partitions {
			d.line("", "partition %d: offsets %d to %d, %d bytes", i, p.Start, p.End, p.Bytes)
		}
		for _, c := range s.Consumers(t.ID) {
			d.line("consumer", "%d: %q, created %v, moved %v", c.ID, c.Name, micros(c.Created), micros(c.Moved))
			for i := range t.Partitions {
				d.line("", "partition %d: the next offset to read is %d", i, c.Position(format.Partition(i)))
			}
		}
		for _, q := range s.Queues(t.ID) {
			d.queue(t, q)
		}
	}
	for _, x := range s.Delayed() {
		d.line("delayed", "partition %d of topic %d: offsets %d to %d, due %v", x.Partition, x.Topic, x.Offset, x.Offset+seb.Offset(x.Count)-1, micros(x.Due))
	}
	for _, k := range s.Keys() {
		d.line("API key", "%d: %q, scopes %#x, topics %q, created %v, %s", k.ID, k.Name, k.Scopes, k.Topics, micros(k.Created), expiry(k.Expires))
	}
	return nil
}

// original shows a file of the original Seb.
func (d *dumper) original(b []byte) error {
	batch, err := original.Decode(b)
	if err != nil {
		return err
	}
	d.line("object", "record batch of the original Seb, version 1, %d bytes", len(b))
	d.line("written", "%v", micros(batch.Time.UnixMicro()))
	d.line("records", "%d, %d bytes", batch.Count(), batch.Bytes())
	if !d.records {
		return nil
	}
	at := 0
	for i := range batch.Count() {
		d.line("record", "%d at %d: %s", i, at, quoted(batch.Record(i)))
		at += len(batch.Record(i))
	}
	return nil
}

// mark counts and describes a fault; it returns "" if fault is false.
func (d *dumper) mark(fault bool, what string) string {
	if !fault {
		return ""
	}
	d.Bad++
	return d.paint(red, " BAD: "+what)
}

// standsAt marks a fault if the object is in a directory (such as log) like that of the key that the object itself names,
// but has another name there. In any other directory, every name is allowed: the object may be a copy.
func (d *dumper) standsAt(name, key string) string {
	dir, base := path.Split(name)
	if path.Base(dir) != path.Dir(key) {
		return ""
	}
	return d.mark(base != path.Base(key), "its own key is "+key)
}

// expiry tells until when an API key is valid.
func expiry(us int64) string {
	if us == 0 {
		return "never expires"
	}
	return "expires " + micros(us)
}

func quoted(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%q", b)
}

func micros(us int64) string { return time.UnixMicro(us).UTC().Format("2006-01-02T15:04:05.000000Z") }
func millis(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
