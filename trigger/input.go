package trigger

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/simple-event-broker/seb"
)

// fetchBytes is how many bytes of a partition are read at once.
const fetchBytes = 256 << 10

// inputs reads the records of several topics in the order of the log: see position.
type inputs struct {
	b     *seb.Broker
	open  map[seb.TopicID]*input
	bytes int64                                                     // how many bytes of keys and values were read
	gap   func(from *input, partition int32, start, end seb.Offset) // gets the offsets that are gone before they were read; the same one twice if the first is unknown
}

// input is a topic that is read.
type input struct {
	name string
	id   seb.TopicID
	tag  string
	next map[int32]seb.Offset
	from position // records up to there do not count
}

// cursor is the place of the reader in a partition.
type cursor struct {
	*input
	partition int32
	end       seb.Offset
	records   []seb.Record // those that were fetched, and not given yet
}

// cursors are ordered by their next record.
type cursors []*cursor

func (c cursors) Len() int           { return len(c) }
func (c cursors) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c cursors) Less(i, j int) bool { return c[i].at().compare(c[j].at()) < 0 }

// Push implements heap.Interface.
func (c *cursors) Push(x any) { *c = append(*c, x.(*cursor)) }

// Pop implements heap.Interface.
func (c *cursors) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// at returns the position of the next record.
func (c *cursor) at() position {
	r := &c.records[0]
	return position{time: r.LogTime.UnixMicro(), topic: c.id, partition: r.Partition, offset: r.Offset}
}

// errStop ends a read early. It is no failure.
var errStop = errors.New("stop")

// read gives all records up to a cut, in order. If give returns errStop, read ends behind that record, and returns false.
func (in *inputs) read(ctx context.Context, cut seb.Cut, give func(topic string, id seb.TopicID, r *seb.Record) error) (whole bool, err error) {
	var all cursors
	for _, t := range cut.Topics {
		of := in.byTag(t.ID)
		if of == nil {
			continue
		}
		for _, p := range sortedPartitions(t.Ends) {
			c := &cursor{input: of, partition: p, end: t.Ends[p]}
			if ok, err := in.fill(ctx, c); err != nil {
				return false, err
			} else if ok {
				all = append(all, c)
			}
		}
	}
	heap.Init(&all)
	for len(all) > 0 {
		c := all[0]
		r := &c.records[0]
		c.next[c.partition] = r.Offset + 1
		in.bytes += int64(len(r.Key) + len(r.Value))
		err := give(c.name, c.id, r)
		c.records = c.records[1:]
		if errors.Is(err, errStop) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		ok := len(c.records) > 0
		if !ok {
			if ok, err = in.fill(ctx, c); err != nil {
				return false, err
			}
		}
		if ok {
			heap.Fix(&all, 0)
		} else {
			heap.Pop(&all)
		}
	}
	return true, nil
}

func sortedPartitions(ends seb.Offsets) []int32 {
	var ps []int32
	for p := range ends {
		ps = append(ps, p)
	}
	slices.Sort(ps)
	return ps
}

func (in *inputs) byTag(tag string) *input {
	for _, i := range in.open {
		if i.tag == tag {
			return i
		}
	}
	return nil
}

// fill fetches the next records of a partition. It returns false at the end.
func (in *inputs) fill(ctx context.Context, c *cursor) (bool, error) {
	next, seeked := c.next[c.partition]
	if !seeked {
		var err error
		if next, err = in.seek(ctx, c, c.from); err != nil {
			return false, err
		}
		c.next[c.partition] = next
	}
	for next < c.end {
		got, err := in.b.Fetch(ctx, c.name, c.partition, seb.At(next), seb.FetchOptions{MaxBytes: fetchBytes, Limit: 10_000, TopicTag: c.tag})
		if e, below := errors.AsType[*seb.Error](err); below && e.Code == seb.CodeOffsetOutOfRange && e.Start > next {
			in.gap(c.input, c.partition, next, min(e.Start, c.end))
			next = e.Start
			c.next[c.partition] = next
			continue
		}
		if err != nil {
			return false, fmt.Errorf("read topic %s: %w", c.name, err)
		}
		c.records = got.Records
		if i := slices.IndexFunc(c.records, func(r seb.Record) bool { return r.Offset >= c.end }); i >= 0 {
			c.records = c.records[:i]
		}
		if len(c.records) > 0 {
			if c.records[0].LogTime.IsZero() {
				return false, fmt.Errorf("topic %s has records without a log time: run `seb upgrade`, so that the log keeps such times", c.name)
			}
			return true, nil
		}
		next = got.Next
		c.next[c.partition] = next
	}
	return false, nil
}

// seek returns the offset of the first record of a partition behind a position.
func (in *inputs) seek(ctx context.Context, c *cursor, behind position) (seb.Offset, error) {
	var low seb.Offset    // all records below it are not behind the position
	high := c.end         // the record there, and those after it, are behind the position
	cut := seb.Offset(-1) // the first record that is left
	for step := seb.Offset(1); low < high; step *= 2 {
		probe := low + (high-low)/2
		if high == c.end || step < high-low { // near the end first: most positions are of a moment ago
			probe = max(low, high-step)
		}
		got, err := in.b.Fetch(ctx, c.name, c.partition, seb.At(probe), seb.FetchOptions{Limit: 1, TopicTag: c.tag})
		if e, below := errors.AsType[*seb.Error](err); below && e.Code == seb.CodeOffsetOutOfRange && e.Start > probe {
			low = min(e.Start, high)
			step, cut = 1, low
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("find a place in topic %s: %w", c.name, err)
		}
		if len(got.Records) == 0 {
			return 0, fmt.Errorf("find a place in topic %s: the broker returned no record at offset %d of partition %d", c.name, probe, c.partition)
		}
		r := &got.Records[0]
		at := position{time: r.LogTime.UnixMicro(), topic: c.id, partition: c.partition, offset: r.Offset}
		if at.compare(behind) > 0 {
			high = probe
		} else {
			low = r.Offset + 1
			step = 1 << 40 // from here on, halve what is left
		}
	}
	if low == cut { // records behind the position may be gone
		in.gap(c.input, c.partition, low, low)
	}
	return low, nil
}

// places returns where the topics are read next.
func (in *inputs) places() map[seb.TopicID]map[int32]seb.Offset {
	all := map[seb.TopicID]map[int32]seb.Offset{}
	for id, i := range in.open {
		all[id] = maps.Clone(i.next)
	}
	return all
}

// watch adds a topic that is to be read from a position on, unless it is read already. next has the offsets of partitions in which
// the place is known.
func (in *inputs) watch(name string, id seb.TopicID, from position, next map[int32]seb.Offset) {
	if in.open[id] != nil {
		return
	}
	i := &input{name: name, id: id, tag: in.b.TopicTag(id), next: map[int32]seb.Offset{}, from: from}
	maps.Copy(i.next, next)
	in.open[id] = i
}

// names returns the names of the topics that are read, sorted.
func (in *inputs) names() []string {
	var names []string
	for _, i := range in.open {
		names = append(names, i.name)
	}
	slices.SortFunc(names, cmp.Compare)
	return names
}
