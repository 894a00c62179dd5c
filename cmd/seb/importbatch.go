package main

import (
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// importRecords is the largest number of records in a request. --batch-bytes limits the bytes of the
	// values only, but in JSON each record takes another 70 bytes: without importRecords, a request with many
	// small records would be far larger than --batch-bytes.
	importRecords = 20_000

	timestampLayout = "2006-01-02T15:04:05.000Z07:00"
)

// importBatch is what one request appends: records of one file, or of several small files, whose times may
// differ. The values share the memory of the files.
type importBatch struct {
	records []seb.Record
	bytes   int // of the values
}

func (g *importBatch) reset() {
	clear(g.records)
	g.records, g.bytes = g.records[:0], 0
}

func (g *importBatch) count() int { return len(g.records) }

func (g *importBatch) add(r seb.Record) {
	g.records, g.bytes = append(g.records, r), g.bytes+len(r.Value)
}

// full tells whether the batch has no room for a value of the given size: the value has to wait for the next
// batch.
func (g *importBatch) full(bytes, limit int) bool {
	return g.count() > 0 && (g.bytes+bytes > limit || g.count() >= importRecords)
}

// importTime returns a batch's time as the log has it: to the millisecond.
func importTime(at time.Time) time.Time { return at.Truncate(time.Millisecond) }
