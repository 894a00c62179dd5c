package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/original"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/s3store"
)

const (
	// importAhead is how many files are read while the records of another are appended.
	importAhead = 4
	// importTries is the most attempts for a request to the source's store.
	importTries = 6
)

// importSource reads the files of the original Seb. It is not an [objstore.Store]: a directory of the
// original Seb may hold names that are invalid in a store, and import must report these instead of skipping
// them.
type importSource interface {
	// list calls the function each with the name of every file whose name begins with prefix.
	list(ctx context.Context, prefix string, each func(name string) error) error
	// read returns a file, or an error if the file is larger than original.FileBytesMax.
	read(ctx context.Context, name string) ([]byte, error)
	close()
}

func openImportSource(ctx context.Context, spec string) (importSource, error) {
	switch {
	case strings.HasPrefix(spec, "s3:"):
		store, err := s3store.Open(ctx, spec)
		if err != nil {
			return nil, err
		}
		return bucketSource{store}, nil
	case !isDirectory(spec):
		return nil, usage(fmt.Errorf("source %s: use a directory or s3://BUCKET/PREFIX", spec))
	}
	root, err := os.OpenRoot(spec)
	if err != nil {
		return nil, err
	}
	return dirSource{root}, nil
}

// dirSource is a directory that has a subdirectory for each topic.
type dirSource struct{ root *os.Root }

func (s dirSource) close() { _ = s.root.Close() } // nothing was written

func (s dirSource) list(ctx context.Context, prefix string, each func(string) error) error {
	return fs.WalkDir(s.root.FS(), path.Clean("./"+prefix), func(name string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && prefix != "" && name == path.Clean(prefix):
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case entry.Type()&fs.ModeSymlink != 0:
			return fmt.Errorf("%s is a symbolic link, and import follows none: replace the link by the file or directory that it leads to", name)
		case !entry.Type().IsRegular():
			return nil
		}
		return each(name)
	})
}

func (s dirSource) read(_ context.Context, name string) ([]byte, error) {
	f, err := s.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := checkImportSize(info.Size()); err != nil {
		return nil, err
	}
	body := make([]byte, info.Size())
	if _, err := io.ReadFull(f, body); err != nil {
		return nil, err
	}
	return body, nil
}

func checkImportSize(bytes int64) error {
	if bytes > original.FileBytesMax {
		return fmt.Errorf("%w: it has %d bytes, and the largest valid file has %d", original.ErrDamaged, bytes, original.FileBytesMax)
	}
	return nil
}

// bucketSource reads a bucket, or the keys below a prefix in it. It retries failed requests, since the
// store does not.
type bucketSource struct{ store objstore.Store }

func (bucketSource) close() {}

func (s bucketSource) list(ctx context.Context, prefix string, each func(string) error) error {
	for after := ""; ; {
		var page objstore.Page
		err := persist(ctx, func() (err error) { page, err = s.store.List(ctx, prefix, after, 0); return err })
		if err != nil {
			return err
		}
		for _, name := range page.Keys {
			if err := each(name); err != nil {
				return err
			}
			after = name
		}
		if !page.More {
			return nil
		}
	}
}

func (s bucketSource) read(ctx context.Context, name string) ([]byte, error) {
	var o objstore.Object
	err := persist(ctx, func() (err error) { o, err = s.store.Get(ctx, name, 0, original.FileBytesMax+1); return err })
	if err != nil {
		return nil, err
	}
	return o.Body, checkImportSize(o.Size)
}

// persist sends a request to a store up to importTries times. It does not retry ErrNotFound.
func persist(ctx context.Context, request func() error) error {
	var pause backoff
	for try := 1; ; try++ {
		err := request()
		if err == nil || errors.Is(err, objstore.ErrNotFound) || try == importTries || !pause.wait(ctx, err) {
			return err
		}
	}
}

// inventory is what a source holds: for each topic, the first offsets of its files, ascending.
type inventory struct {
	topics  map[string][]int64
	ignored int64 // files that hold no records
}

// takeInventory lists the files of the given topics of a source, or of all topics if none is given.
func takeInventory(ctx context.Context, source importSource, topics []string) (*inventory, error) {
	v := &inventory{topics: make(map[string][]int64)}
	prefixes := []string{""}
	if len(topics) > 0 {
		prefixes = nil
	}
	for _, topic := range slices.Compact(slices.Sorted(slices.Values(topics))) {
		if err := seb.CheckTopicName(topic); err != nil {
			return nil, usage(fmt.Errorf("--topic: %w", err))
		}
		prefixes = append(prefixes, topic+"/")
	}
	for _, prefix := range prefixes {
		if err := source.list(ctx, prefix, v.add); err != nil {
			return nil, err
		}
	}
	for topic, offsets := range v.topics {
		slices.Sort(offsets)
		if seb.CheckTopicName(topic) != nil {
			return nil, hinted(fmt.Errorf("topic %q can't be imported under its name: a topic name has 1 to 249 characters, each a-z, A-Z, 0-9, ., _ or -", topic),
				"to import the other topics, name each with --topic")
		}
	}
	for _, topic := range topics {
		if v.topics[topic] == nil {
			return nil, codedError{fmt.Errorf("the source has no files of this topic (the first would be %s)", original.Name(topic, 0)), exitRefused}
		}
	}
	if len(v.topics) == 0 {
		return nil, codedError{hinted(errors.New("the source has no files named TOPIC/OFFSET.record_batch"),
			"name the directory, or the bucket and prefix, that holds the topics of the original"), exitRefused}
	}
	return v, nil
}

func (v *inventory) add(name string) error {
	topic, offset, batch, err := original.ParseName(name)
	switch {
	case err != nil:
		return err
	case batch:
		v.topics[topic] = append(v.topics[topic], offset)
	default:
		v.ignored++
	}
	return nil
}

func (v *inventory) names() []string { return slices.Sorted(maps.Keys(v.topics)) }

func (v *inventory) files() (n int64) {
	for _, offsets := range v.topics {
		n += int64(len(offsets))
	}
	return n
}

// importFile is one file of a topic.
type importFile struct {
	name  string
	first int64 // offset of its first record
	next  int64 // offset at which the next file begins; -1 for the last file
	batch original.Batch
}

// end is the offset after the last record.
func (f *importFile) end() int64 { return f.first + int64(f.batch.Count()) }

// check returns an error if there is a gap or an overlap between the offsets of f and those of the next file.
func (f *importFile) check(topic string) error {
	if f.next < 0 || f.end() == f.next {
		return nil
	}
	what := "a gap"
	if f.end() > f.next {
		what = "an overlap"
	}
	return fmt.Errorf("%s between files: %s has the offsets %d to %d, and the next file is %s",
		what, f.name, f.first, f.end()-1, original.Name(topic, f.next))
}

// readFiles yields a topic's files in the order of their offsets. It reads the next files while the caller
// handles one.
func readFiles(ctx context.Context, source importSource, topic string, offsets []int64) iter.Seq2[*importFile, error] {
	type loaded struct {
		file *importFile
		err  error
	}
	return func(yield func(*importFile, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		queue := make(chan chan loaded, importAhead)
		go func() {
			defer close(queue)
			for i := range offsets {
				c := make(chan loaded, 1)
				select {
				case queue <- c:
				case <-ctx.Done():
					return
				}
				go func() {
					f, err := loadFile(ctx, source, topic, offsets[i:])
					c <- loaded{f, err}
				}()
			}
		}()
		defer func() { // wait for the readers
			cancel()
			for c := range queue {
				<-c
			}
		}()
		for c := range queue {
			if l := <-c; !yield(l.file, l.err) || l.err != nil {
				return
			}
		}
	}
}

// loadFile reads the file of a topic that begins at offsets[0]. The next file begins at offsets[1], if
// there is one.
func loadFile(ctx context.Context, source importSource, topic string, offsets []int64) (*importFile, error) {
	f := &importFile{name: original.Name(topic, offsets[0]), first: offsets[0], next: -1}
	if len(offsets) > 1 {
		f.next = offsets[1]
	}
	body, err := source.read(ctx, f.name)
	if err == nil {
		f.batch, err = original.Decode(body)
	}
	if err == nil {
		err = f.check(topic)
	} else {
		err = fmt.Errorf("%s: %w", f.name, err)
	}
	return f, err
}
