package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/option"
)

// Encoding is a form of records in the HTTP API. Programs that only copy records from one place to another
// save the time to decode and encode them.
type Encoding string

const (
	// Values are records that have only a value: their number, the size of each (both uint32,
	// little-endian), and the values back to back.
	Values Encoding = batchType
	// Lines are records in JSON, one in each line. Only reads have this form.
	Lines Encoding = linesType
	// List is the JSON {"records":[...]}. Only appends have this form.
	List Encoding = recordsType
)

// AppendEncoded does what Append does, with records in the form of an encoding, Values or List. A detail of an
// error that names a byte means a byte of records.
func (c *Client) AppendEncoded(ctx context.Context, topic string, e Encoding, records []byte, opts ...seb.AppendOption) (seb.Appended, error) {
	o := option.OfAppend(opts)
	if o.Partitions != nil {
		return seb.Appended{}, refusedWrite("ToPartitions can't be combined with encoded records: name the partitions in the records")
	}
	if err := checkPartitions(topic, o); err != nil {
		return seb.Appended{}, err
	}
	r := newAppend(topic, o)
	r.header.Set("Content-Type", string(e))
	r.body = records
	count := -1
	if e == Values && len(records) >= 4 {
		count = int(binary.LittleEndian.Uint32(records))
	}
	return c.sendAppend(ctx, topic, count, r, o)
}

// Encoded are records that FetchEncoded has read.
type Encoded struct {
	// Fetched has the bounds of the records, and no Records.
	seb.Fetched
	// First is the offset of the first record. Without records, it is Next.
	First seb.Offset
	// Body is the whole response.
	Body []byte

	encoding Encoding
}

// FetchEncoded does what Fetch does, and returns the records in the form of an encoding, Values or Lines. It
// reads them into the memory of buf, as far as they fit.
func (c *Client) FetchEncoded(ctx context.Context, topic string, partition int32, from seb.Position, opts seb.FetchOptions, e Encoding, buf []byte) (Encoded, error) {
	f := Encoded{encoding: e}
	if err := checkBounds(opts); err != nil {
		return f, err
	}
	res, asked, err := c.read(ctx, topic, partition, from, opts, string(e), buf)
	if err != nil {
		return f, err
	}
	if err := bounds(&f.Fetched, res); err != nil {
		return f, err
	}
	f.Body = res.body
	if err = f.check(partition, res.header.Get("Seb-Offset")); err == nil {
		err = checkFirst(&f.Fetched, asked, f.First)
	}
	if err != nil {
		return f, unexpected(res.server, err, false)
	}
	return f, nil
}

// check checks that the body has records of the partition that follow each other up to Next, and sets First. first is
// the offset of the first record as a header tells it.
func (f *Encoded) check(partition int32, first string) error {
	if f.encoding == Lines {
		return f.checkLines(partition)
	}
	if len(f.Body) < 4 {
		return fmt.Errorf("it has %d bytes, too few for a batch", len(f.Body))
	}
	count, rest := int64(binary.LittleEndian.Uint32(f.Body)), int64(len(f.Body)-4)
	if rest < 4*count {
		return fmt.Errorf("after its count, it has %d bytes, too few for the sizes of %d records", rest, count)
	}
	f.First = f.Next - seb.Offset(count)
	if f.First < 0 || count > 0 && first != strconv.FormatInt(int64(f.First), 10) {
		return fmt.Errorf("it has %d records that end before offset %d, but its first offset is %q", count, f.Next, first)
	}
	sum := int64(0)
	for sizes := f.Body[4 : 4+4*count]; len(sizes) > 0; sizes = sizes[4:] {
		sum += int64(binary.LittleEndian.Uint32(sizes))
	}
	if rest -= 4 * count; sum != rest {
		return fmt.Errorf("the records' sizes add up to %d bytes, but their values have %d bytes", sum, rest)
	}
	return nil
}

func (f *Encoded) checkLines(partition int32) error {
	f.First = f.Next - seb.Offset(bytes.Count(f.Body, []byte{'\n'}))
	if len(f.Body) > 0 && f.Body[len(f.Body)-1] != '\n' {
		return fmt.Errorf("it ends within a record; its last record should be the one before offset %d", f.Next)
	}
	var begins []byte
	at := f.First
	for line := range bytes.Lines(f.Body) {
		// Brokers begin with these fields, so usually the line need not be parsed.
		begins = fmt.Appendf(begins[:0], `{"partition":%d,"offset":%d,`, partition, at)
		if !bytes.HasPrefix(line, begins) && !isLineOf(line, partition, at) {
			return fmt.Errorf("invalid line for the record at offset %d of partition %d: %.60q", at, partition, line)
		}
		at++
	}
	return nil
}

// isLineOf tells whether a line has the record at an offset of a partition.
func isLineOf(line []byte, partition int32, offset seb.Offset) bool {
	var r struct {
		Partition *int32      `json:"partition"`
		Offset    *seb.Offset `json:"offset"`
	}
	return json.Unmarshal(line, &r) == nil && r.Partition != nil && *r.Partition == partition && r.Offset != nil && *r.Offset == offset
}

// Each iterates over the records: over their values or, if Body has lines, over the lines without LF. The
// slices share the memory of Body.
func (f *Encoded) Each() iter.Seq2[seb.Offset, []byte] {
	return func(yield func(seb.Offset, []byte) bool) {
		count := int(f.Next - f.First)
		if f.encoding == Lines {
			rest := f.Body
			for i := range count {
				var line []byte
				if line, rest, _ = bytes.Cut(rest, []byte{'\n'}); !yield(f.First+seb.Offset(i), line) {
					return
				}
			}
			return
		}
		if count == 0 {
			return
		}
		sizes, values := f.Body[4:4+4*count], f.Body[4+4*count:]
		for i := range count {
			n := binary.LittleEndian.Uint32(sizes[4*i:])
			if !yield(f.First+seb.Offset(i), values[:n:n]) {
				return
			}
			values = values[n:]
		}
	}
}
