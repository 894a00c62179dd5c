package seb

import (
	"context"
	"slices"

	"github.com/simple-event-broker/seb/internal/leases"
)

const (
	chunkRecords = walkRecords
	chunkBytes   = 256 << 10
	chunksMax    = 4
)

// chunk is records of one partition that were read together, since they are handed out
// one after the other.
type chunk struct {
	partition int32
	from, to  int64
	records   []Record
	bytes     int64
}

func (c *chunk) record(offset int64) *Record { return &c.records[offset-c.from] }

// chunks are the few that a desk keeps, the newest last.
type chunks []*chunk

// at returns the chunk that holds a record, nil if there is none.
func (cs chunks) at(partition int32, offset int64) *chunk {
	for _, c := range cs {
		if c.partition == partition && c.from <= offset && offset < c.to {
			return c
		}
	}
	return nil
}

// drop takes a chunk out, if it is there.
func (cs *chunks) drop(c *chunk) {
	*cs = slices.DeleteFunc(*cs, func(x *chunk) bool { return x == c })
}

// load reads the records from a place on, and keeps them. One caller at a time reads for
// all: most want what follows.
func (d *desk) load(ctx context.Context, at leases.Place) (*chunk, error) {
	select {
	case d.loading <- struct{}{}:
		defer func() { <-d.loading }()
	case <-ctx.Done():
		return nil, canceled(ctx, "")
	}
	if c := d.loaded(at); c != nil {
		return c, nil
	}
	f, err := d.read(ctx, at, chunkRecords, chunkBytes)
	if err != nil {
		return nil, err
	}
	c := &chunk{partition: at.Partition, from: at.Offset, to: int64(f.Next), records: f.Records}
	c.own()
	d.keep(c)
	return c, nil
}

func (d *desk) loaded(at leases.Place) *chunk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.chunks.at(at.Partition, at.Offset)
}

// read reads at least the record at a place.
func (d *desk) read(ctx context.Context, at leases.Place, records int, bytes int64) (Fetched, error) {
	f, err := d.b.fetch(ctx, d.topicName, at.Partition, At(Offset(at.Offset)), FetchOptions{
		Limit: records, MaxBytes: bytes, TopicTag: d.b.TopicTag(d.topic),
	})
	if err == nil && len(f.Records) == 0 {
		err = refused(CodeDataLost, "offset %d of partition %d of topic %q can't be read", at.Offset, at.Partition, d.topicName)
	}
	return f, asRead(err)
}

// record returns the record of a delivery.
func (d *desk) record(ctx context.Context, x leases.Delivery) (Record, error) {
	c := d.loaded(x.Place)
	if c == nil && x.Number == 1 {
		var err error
		if c, err = d.load(ctx, x.Place); err != nil {
			return Record{}, err
		}
	}
	if c != nil {
		return *c.record(x.Offset), nil
	}
	f, err := d.read(ctx, x.Place, 1, 1)
	if err != nil {
		return Record{}, err
	}
	return f.Records[0], nil
}
