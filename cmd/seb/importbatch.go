package main

import (
	"encoding/base64"
	"slices"
	"time"
)

const (
	// importRecords is the largest number of records in a request. --batch-bytes limits the bytes of the
	// values only, but in JSON each record takes another 70 bytes: without importRecords, a request with many
	// small records would be far larger than --batch-bytes.
	importRecords = 20_000

	timestampLayout = "2006-01-02T15:04:05.000Z07:00"
)

// importBatch is what one request appends: records of one file, or of several small files, whose times may
// differ. times has the time of each record. The values share the memory of the files.
type importBatch struct {
	values [][]byte
	times  []string
	bytes  int // of the values
}

func (g *importBatch) reset() {
	clear(g.values)
	g.values, g.times, g.bytes = g.values[:0], g.times[:0], 0
}

func (g *importBatch) count() int { return len(g.values) }

func (g *importBatch) add(value []byte, at string) {
	g.values, g.times, g.bytes = append(g.values, value), append(g.times, at), g.bytes+len(value)
}

// full tells whether the batch has no room for a value of the given size: the value has to wait for the next
// batch.
func (g *importBatch) full(bytes, limit int) bool {
	return g.count() > 0 && (g.bytes+bytes > limit || g.count() >= importRecords)
}

// request writes the batch into b. If all records have the same time, it uses the compact form and returns
// that time; else it uses JSON and returns "".
func (g *importBatch) request(b *recordBatch) (at string) {
	b.json = slices.ContainsFunc(g.times, func(s string) bool { return s != g.times[0] })
	b.reset()
	if !b.json {
		for _, value := range g.values {
			b.add(value)
		}
		return g.times[0]
	}
	var record []byte
	for i, value := range g.values {
		record = append(record[:0], `{"value_base64":"`...)
		record = base64.StdEncoding.AppendEncode(record, value)
		record = append(record, `","timestamp":"`...)
		record = append(record, g.times[i]...)
		b.add(append(record, `"}`...))
	}
	return ""
}

// importTime returns a batch's time as the broker writes it: in UTC, to the millisecond.
func importTime(at time.Time) string { return at.UTC().Format(timestampLayout) }
