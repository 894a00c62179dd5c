package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode"

	"github.com/simple-event-broker/seb"
)

// recordsMax is the maximum number of lines that one commit counts. Each commit costs a write
// to the store. With a higher maximum the program counts faster, with a lower one it shows counts
// sooner.
const recordsMax = 500

// counter counts the words of one topic, and appends the counts to another.
type counter struct {
	broker   *seb.Broker
	from, to string
	log      *slog.Logger
}

// count counts from the consumer's position on, until a request fails.
func (c *counter) count(ctx context.Context) error {
	// Read the version first, and then the position and the counts. If another counter commits after the
	// version was read, the broker refuses the commit below, because that commit names an old version. If the
	// counts were read first, a commit could name the new version, but have counts without those of the other
	// counter.
	consumer := c.broker.Consumer(c.from, "wordcount")
	info, _, err := consumer.Create(ctx)
	if err != nil {
		return err
	}
	version := info.Version
	lines, err := consumer.Follower(ctx, seb.AllPartitions)
	if err != nil {
		return err
	}
	counts, err := c.load(ctx)
	if err != nil {
		return err
	}
	for {
		records, err := lines.Next(ctx, seb.FetchOptions{Limit: recordsMax, Wait: time.Minute})
		if err != nil {
			return err
		}
		if len(records) == 0 {
			continue
		}
		if version, err = c.commit(ctx, counts, records, version); err != nil {
			return err
		}
		c.log.Info("counted", "lines", len(records), "different_words", len(counts))
	}
}

// load returns the counts so far: the last record of a word has the count of the word.
func (c *counter) load(ctx context.Context) (map[string]int64, error) {
	counts := map[string]int64{}
	for r, err := range c.broker.Read(ctx, c.to, 0, seb.Earliest) {
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseInt(string(r.Value), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the record at offset %d of topic %s is not a count: %w", r.Offset, c.to, err)
		}
		counts[string(r.Key)] = n
	}
	return counts, nil
}

// commit counts the words of records. It commits the changed counts together with the
// offsets past the records, and returns the consumer's new version. The commit fails unless
// the consumer still has the given version. To compare the consumer's positions in the
// partitions of these records would not be enough: another counter may have counted records
// of other partitions.
func (c *counter) commit(ctx context.Context, counts map[string]int64, records []seb.Record, version string) (string, error) {
	changed := map[string]bool{}
	for _, r := range records {
		for _, word := range words(r.Value) {
			counts[word]++
			changed[word] = true
		}
	}
	commit := seb.Commit{Positions: []seb.CommitPositions{
		{Topic: c.from, Consumer: "wordcount", Version: version, Offsets: seb.After(records...)},
	}}
	if len(changed) > 0 {
		out := seb.CommitAppend{Topic: c.to, Options: []seb.AppendOption{seb.ToPartition(0)}}
		for _, word := range slices.Sorted(maps.Keys(changed)) {
			out.Records = append(out.Records, seb.Record{Key: []byte(word), Value: strconv.AppendInt(nil, counts[word], 10)})
		}
		commit.Appends = []seb.CommitAppend{out}
	}
	done, err := c.broker.Commit(ctx, commit)
	if err != nil {
		return "", err
	}
	return done.Versions[0], nil
}

// words returns the words of a line, in lower case.
func words(line []byte) []string {
	var list []string
	for _, word := range bytes.FieldsFunc(bytes.ToLower(line), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		list = append(list, string(word))
	}
	return list
}
