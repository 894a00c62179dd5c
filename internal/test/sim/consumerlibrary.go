package sim

import (
	"context"

	"github.com/simple-event-broker/seb"
)

func (l library) of(o *op) *seb.Consumer { return l.broker.Consumer(o.topic, o.consumer) }

func (l library) consume(ctx context.Context, o *op, opts seb.FetchOptions) {
	f, err := l.of(o).Follower(ctx, int32(o.partition))
	if err != nil {
		o.fail(err)
		return
	}
	records, err := f.Next(ctx, opts)
	for _, r := range records {
		o.come(l.history, int(r.Partition))
		o.found(l.history, r.Offset, string(r.Value))
	}
	o.behindRecords(seb.After(records...))
	o.fail(err)
}

func (l library) commit(ctx context.Context, o *op) {
	var opts []seb.CommitOption
	if o.version != "" {
		opts = append(opts, seb.IfVersion(o.version))
	}
	version, err := l.of(o).Commit(ctx, o.offsets, opts...)
	if err == nil {
		o.told = []positions{{version: version}}
	}
	o.fail(err)
}

func (l library) set(ctx context.Context, o *op) {
	var (
		info seb.ConsumerInfo
		err  error
	)
	switch c := l.of(o); o.to {
	case "":
		info, o.created, err = c.Create(ctx)
	case "earliest":
		info, o.created, err = c.Reset(ctx, seb.Earliest)
	case "latest":
		info, o.created, err = c.Reset(ctx, seb.Latest)
	default:
		info, o.created, err = c.ResetTo(ctx, o.offsets)
	}
	o.tell(info, err)
}

func (l library) describe(ctx context.Context, o *op) { o.tell(l.of(o).Describe(ctx)) }

func (l library) list(ctx context.Context, o *op) {
	for info, err := range l.broker.Consumers(ctx, o.topic, seb.ListOptions{}) {
		o.tell(info, err)
	}
}

func (l library) forget(ctx context.Context, o *op) { o.fail(l.of(o).Delete(ctx)) }

// tell notes what an answer says about a consumer.
func (o *op) tell(info seb.ConsumerInfo, err error) {
	if err != nil {
		o.fail(err)
		return
	}
	o.told = append(o.told, positionsOf(info))
}

func positionsOf(info seb.ConsumerInfo) positions {
	s := positions{consumer: info.Name, version: info.Version}
	for _, p := range info.Positions {
		s.at, s.bounds = append(s.at, p.Next), append(s.bounds, bounds{p.Start, p.End})
	}
	return s
}

// come notes the partition of a record that a read returned, and expects all records of the read to be of
// one partition.
func (o *op) come(h *history, partition int) {
	if o.partition >= 0 && partition != o.partition {
		h.violate("DenseOffsets", "records of partition %d: %v", partition, o)
	}
	o.partition = partition
}

// behindRecords notes the offset that the client is to commit when it has done the work on the answer's
// records.
func (o *op) behindRecords(offsets seb.Offsets) {
	o.next = offsets[int32(o.partition)]
	o.end = o.next // the answer does not tell where the partition ends
}
