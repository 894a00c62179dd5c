package main

import (
	"fmt"
	"hash/crc32"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/segment"
	"github.com/simple-event-broker/seb/internal/sst"
	"github.com/simple-event-broker/seb/internal/state"
)

// segmentItem shows an entry about segments, deletion, spending, or the level of the log. ok is false for another entry.
func (d *dumper) segmentItem(i int, item format.Entry) (ok bool) {
	switch x := item.(type) {
	case *format.LevelRaised:
		d.line("item", "%d: the log has the level %d from here on; dead objects stay for %v", i, x.Level, x.DeleteDelay)
	case *format.CheckpointSeen:
		d.line("item", "%d: the writer has read the checkpoint of slot %d; bottom %d", i, x.Slot, x.Bottom)
	case *format.Collected:
		d.line("item", "%d: what died up to slot %d is deleted, and the commits below slot %d", i, x.Slot, x.Bottom)
	case *format.DelaySet:
		d.line("item", "%d: dead objects stay for %v; if that is shorter than before, from later on", i, x.Delay)
	case *format.Held:
		d.line("item", "%d: nothing that was live after slot %d may be deleted until %s (hold %016x)", i, x.Slot, micros(x.Until), x.ID)
	case *format.QueuesPassed:
		keeps := "stay"
		if x.PastQueues {
			keeps = "go"
		}
		d.line("item", "%d: records of topic %d that are over %s from here on if a queue has not done them", i, x.Topic, keeps)
	case *format.Spent:
		d.line("item", "%d: requests to the store since the last such item:", i)
		d.causes(x.Causes)
	case *format.PageStored:
		d.pageItem(i, x)
	case *format.LevelKnown:
		hold := ""
		if x.Hold {
			hold = ", and wants the log to keep its level"
		}
		d.line("item", "%d: the writer knows the level %d%s", i, x.Level, hold)
	case *format.SegmentAdded:
		from := fmt.Sprintf("commits up to slot %d", x.Slot)
		if len(x.Inputs) > 0 {
			from = fmt.Sprintf("the segments %d", x.Inputs)
		}
		d.line("item", "%d: segment of level %d in the place of %s: %s, %d bytes, records of the slots %d to %d", i, x.Level, from, x.Ref.Key(), x.Ref.Size, x.First.Seq, x.Last.Seq)
		for _, r := range x.Ranges {
			if r.Stays {
				d.line("", "topic %d partition %d: the batch at offset %d can't be read, and stays where it is", r.Topic, r.Partition, r.Base)
				continue
			}
			d.line("", "topic %d partition %d: offsets %d to %d, %d records, %d bytes, latest %v", r.Topic, r.Partition, r.Base, r.End-1, r.Records, r.Bytes, millis(r.MaxTime))
		}
	default:
		return false
	}
	return true
}

// causes shows requests to the store, by what they were for.
func (d *dumper) causes(causes []format.CauseUse) {
	for _, c := range causes {
		d.line("", "%v: %d creates, %d gets, %d lists, %d deletes; %d bytes sent, %d received", c.Cause, c.Creates, c.Gets, c.Lists, c.Deletes, c.SentBytes, c.ReceivedBytes)
	}
}

// segment shows a segment: its sections, and each batch by its row in the table of locations.
func (d *dumper) segment(b []byte, name string) error {
	h, err := format.DecodeSegmentHead(b)
	if err != nil {
		return err
	}
	d.line("cluster", "%v", h.Cluster)
	d.line("begun after", "slot %d%s", h.Ref.Seq, d.standsAt(name, h.Ref.Key()))
	if int64(h.Ref.Size) != int64(len(b)) {
		d.line("size", "%s", d.mark(true, fmt.Sprintf("it has %d bytes instead of %d", len(b), h.Ref.Size)))
		return nil
	}
	for _, s := range h.Sections {
		sum := crc32.Checksum(b[s.Pos:s.Pos+s.Size], crc32.MakeTable(crc32.Castagnoli))
		d.line("section", "of kind %d: %d rows, %d bytes at %d, CRC %08x%s", s.Kind, s.Rows, s.Size, s.Pos, s.CRC, d.mark(sum != s.CRC, "its bytes have another CRC"))
	}
	locations, _ := h.Section(format.SectionLocations)
	table, err := sst.Open(b[locations.Pos : locations.Pos+locations.Size])
	if err != nil {
		return fmt.Errorf("%w: %w", format.ErrCorrupt, err)
	}
	for row, err := range table.All() {
		if err != nil {
			return fmt.Errorf("%w: %w", format.ErrCorrupt, err)
		}
		x, err := format.DecodeSegmentBatch(row.Key, row.Value)
		if err != nil {
			return err
		}
		d.line("row", "topic %d partition %d: offsets %d to %d, %d records, latest %v, at %d, %d bytes, CRC %08x",
			x.Topic, x.Partition, x.Base, x.Base+seb.Offset(x.Span)-1, x.Records, millis(x.MaxTime), x.Pos, x.Size, x.CRC)
		for _, c := range x.Commits {
			d.line("", "from offset %d on: slot %d, %v", c.Base, c.Seq, micros(c.Time))
		}
		if int64(x.Pos)+int64(x.Size) > int64(len(b)) {
			d.line("", "%s", d.mark(true, "the object ends before the batch does"))
			continue
		}
		batch, ok := d.batch(b[x.Pos:x.Pos+x.Size], int64(x.Base))
		if ok && (int64(batch.Count) != x.Records || batch.Span != x.Span || batch.CRC != x.CRC) {
			d.line("", "%s", d.mark(true, "the row and the batch differ"))
		}
	}
	if _, _, err := segment.Check(b); err != nil {
		d.line("", "%s", d.mark(true, err.Error()))
	}
	return nil
}

// segments shows what a checkpoint says about segments.
func (d *dumper) segments(s *state.State) {
	if s.Level() < format.LevelSegments {
		return
	}
	d.line("level", "%d; the batches of all commits below slot %d are in segments", s.Level(), s.Bottom())
	if c := s.Collected(); c.Slot > 0 {
		d.line("collected", "what died up to slot %d is deleted, and the commits below slot %d", c.Slot, c.Bottom)
	}
	for _, x := range s.Seen() {
		d.line("seen", "the checkpoint of slot %d, at %v; bottom %d", x.Slot, micros(x.Time), x.Bottom)
	}
	for _, n := range s.Segments() {
		d.line("segment", "%d, level %d: %s, %d bytes, %d of %d bytes of batches are live, records of the slots %d to %d", n.Number, n.Level, n.Ref.Key(), n.Ref.Size, n.Live(), n.Bytes, n.First.Seq, n.Last.Seq)
	}
	for _, x := range s.Dead() {
		kind := format.LogKey(format.Seq(x.Seq))
		if x.Data {
			kind = format.DataRef{Seq: format.Seq(x.Seq), ID: x.Tag}.Key()
		}
		d.line("dead", "%s, since slot %d", kind, x.Slot)
	}
}
