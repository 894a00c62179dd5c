package format

import "fmt"

// decodeQueueEntry decodes an entry about queues; ok is false if the kind is not about queues.
func decodeQueueEntry(kind uint16, b []byte) (_ Entry, ok bool, err error) {
	var it Entry
	switch kind {
	case entryQueueSet:
		it, err = decodeQueueSet(b)
	case entryQueueDeleted:
		it = &QueueDeleted{ID: QueueID(le.Uint64(b))}
	case entryQueueOwned:
		it, err = decodeQueueOwned(b)
	case entryQueueReleased:
		it = &QueueReleased{Queue: QueueID(le.Uint64(b)), Epoch: Epoch(le.Uint64(b[8:]))}
	case entryWindowMoved:
		it, err = decodeWindowMoved(b)
	case entryRecordsAttempted:
		it, err = decodeRecordsAttempted(b)
	case entryRecordsDone:
		it, err = decodeRecordsDone(b)
	case entryRecordPutBack:
		it, err = decodeRecordPutBack(b)
	case entryRecordsRedriven:
		it, err = decodeRecordsRedriven(b)
	case entryQueuePurged:
		it, err = decodeQueuePurged(b)
	case entryRecordsDelayed:
		it, err = decodeRecordsDelayed(b)
	case entryQueuePushSet:
		it, err = decodeQueuePushSet(b)
	default:
		return nil, false, nil
	}
	return it, true, err
}

// queueEntrySize returns the size in bytes that every entry of the kind has, or -1 if the size
// varies.
func queueEntrySize(kind uint16) int64 {
	switch kind {
	case entryQueueDeleted:
		return 8
	case entryQueueReleased:
		return 16
	case entryQueuePurged:
		return 24
	case entryWindowMoved, entryRecordsDelayed:
		return 32
	default:
		return -1
	}
}

// reserved returns an error unless all bytes are 0: reserved bytes are for later versions.
func reserved(b []byte) error {
	for _, c := range b {
		if c != 0 {
			return Corrupt("reserved bytes of an entry about a queue are set")
		}
	}
	return nil
}

func decodeQueueSet(b []byte) (*QueueSet, error) {
	if len(b) < queueSetSize {
		return nil, Corrupt("an entry for a queue has the invalid size of %d bytes", len(b))
	}
	flags, dead := le.Uint32(b[44:]), int(le.Uint16(b[48:]))
	if flags&^(queueOrdered|queuePaused) != 0 {
		return nil, fmt.Errorf("%w: a queue has the unknown flags %#x", ErrVersion, flags)
	}
	if dead > len(b)-queueSetSize {
		return nil, Corrupt("a dead-letter topic's name of %d bytes does not fit into an entry of %d bytes", dead, len(b))
	}
	return &QueueSet{ID: QueueID(le.Uint64(b)), Topic: TopicID(le.Uint64(b[8:])), Name: string(b[queueSetSize+dead:]), Config: QueueConfig{
		LeaseMS: int64(le.Uint64(b[16:])), BackoffMinMS: int64(le.Uint64(b[24:])), BackoffMaxMS: int64(le.Uint64(b[32:])),
		Attempts: le.Uint32(b[40:]), Ordered: flags&queueOrdered != 0, Paused: flags&queuePaused != 0,
		DeadLetterTopic: string(b[queueSetSize : queueSetSize+dead]),
	}}, nil
}

func decodeQueueOwned(b []byte) (*QueueOwned, error) {
	if len(b) < queueOwnedMin {
		return nil, Corrupt("an entry for the owner of a queue has the invalid size of %d bytes", len(b))
	}
	n, rest := le.Uint32(b[16:]), b[queueOwnedMin:]
	if int64(n) > int64(len(rest)/8) {
		return nil, Corrupt("an entry for the owner of a queue has %d bytes, too few for its %d dispatch limits", len(b), n)
	}
	o := &QueueOwned{Queue: QueueID(le.Uint64(b)), Epoch: Epoch(le.Uint64(b[8:]))}
	for ; n > 0; n-- {
		w := Offset(le.Uint64(rest))
		if w < 0 {
			return nil, Corrupt("a dispatch limit is the invalid offset %d", w)
		}
		o.Windows, rest = append(o.Windows, w), rest[8:]
	}
	o.Address = string(rest)
	return o, reserved(b[20:24])
}

func decodeWindowMoved(b []byte) (*WindowMoved, error) {
	w := &WindowMoved{Queue: QueueID(le.Uint64(b)), Epoch: Epoch(le.Uint64(b[8:])), Partition: Partition(le.Uint32(b[16:])), Window: Offset(le.Uint64(b[24:]))}
	if w.Window < 0 {
		return nil, Corrupt("a dispatch limit is the invalid offset %d", w.Window)
	}
	return w, reserved(b[20:24])
}

func decodeRecordsAttempted(b []byte) (*RecordsAttempted, error) {
	if len(b) < attemptedMin+16 || (len(b)-attemptedMin)%16 != 0 {
		return nil, Corrupt("an entry for attempts has the invalid size of %d bytes", len(b))
	}
	a := &RecordsAttempted{Queue: QueueID(le.Uint64(b)), Epoch: Epoch(le.Uint64(b[8:])), Partition: Partition(le.Uint32(b[16:]))}
	if err := reserved(b[20:24]); err != nil {
		return nil, err
	}
	last := Offset(-1)
	for b = b[attemptedMin:]; len(b) > 0; b = b[16:] {
		x := Attempt{Offset: Offset(le.Uint64(b)), Number: le.Uint32(b[8:])}
		if x.Offset <= last || x.Number == 0 {
			return nil, Corrupt("attempt %d of offset %d is invalid, or comes after offset %d out of order", x.Number, x.Offset, last)
		}
		if err := reserved(b[12:16]); err != nil {
			return nil, err
		}
		last = x.Offset
		a.Attempts = append(a.Attempts, x)
	}
	return a, nil
}

func decodeRecordsDone(b []byte) (*RecordsDone, error) {
	if len(b) < runsMin+16 || (len(b)-runsMin)%16 != 0 {
		return nil, Corrupt("an entry for done records has the invalid size of %d bytes", len(b))
	}
	d := &RecordsDone{Queue: QueueID(le.Uint64(b)), Partition: Partition(le.Uint32(b[8:]))}
	if err := reserved(b[12:16]); err != nil {
		return nil, err
	}
	var end Offset
	for b = b[runsMin:]; len(b) > 0; b = b[16:] {
		r := Run{Offset: Offset(le.Uint64(b)), Count: le.Uint32(b[8:]), Number: le.Uint32(b[12:])}
		if r.Offset < end || r.Count == 0 || r.Number == 0 || r.End() < 0 {
			return nil, Corrupt("%d records done by attempt %d from offset %d on are invalid, or are not after the previous ones, which end at %d", r.Count, r.Number, r.Offset, end)
		}
		end = r.End()
		d.Runs = append(d.Runs, r)
	}
	return d, nil
}

func decodeRecordPutBack(b []byte) (*RecordPutBack, error) {
	if len(b) < putBackSize {
		return nil, Corrupt("an entry for a record that is put back has the invalid size of %d bytes", len(b))
	}
	flags := le.Uint32(b[32:])
	if flags&^recordDeadLetter != 0 {
		return nil, fmt.Errorf("%w: an entry for a record that is put back has the unknown flags %#x", ErrVersion, flags)
	}
	p := &RecordPutBack{
		Queue: QueueID(le.Uint64(b)), Partition: Partition(le.Uint32(b[8:])),
		Attempt:   Attempt{Offset: Offset(le.Uint64(b[16:])), Number: le.Uint32(b[12:])},
		NotBefore: int64(le.Uint64(b[24:])), DeadLetter: flags&recordDeadLetter != 0, Reason: string(b[putBackSize:]),
	}
	if p.Offset < 0 || p.Number == 0 || p.NotBefore < 0 {
		return nil, Corrupt("an entry puts the record at offset %d back after attempt %d until %d µs since 1970; the offset and the time must be at least 0, the attempt at least 1", p.Offset, p.Number, p.NotBefore)
	}
	return p, reserved(b[36:40])
}

func decodeRecordsRedriven(b []byte) (*RecordsRedriven, error) {
	if len(b) < runsMin+8 || (len(b)-runsMin)%8 != 0 {
		return nil, Corrupt("an entry for redriven records has the invalid size of %d bytes", len(b))
	}
	r := &RecordsRedriven{Queue: QueueID(le.Uint64(b)), Partition: Partition(le.Uint32(b[8:]))}
	if err := reserved(b[12:16]); err != nil {
		return nil, err
	}
	last := Offset(-1)
	for b = b[runsMin:]; len(b) > 0; b = b[8:] {
		o := Offset(le.Uint64(b))
		if o <= last {
			return nil, Corrupt("the redriven offset %d is invalid, or comes after %d out of order", o, last)
		}
		last = o
		r.Offsets = append(r.Offsets, o)
	}
	return r, nil
}

func decodeQueuePurged(b []byte) (*QueuePurged, error) {
	p := &QueuePurged{Queue: QueueID(le.Uint64(b)), Partition: Partition(le.Uint32(b[8:])), Before: Offset(le.Uint64(b[16:]))}
	if p.Before < 0 {
		return nil, Corrupt("a queue is purged before the invalid offset %d", p.Before)
	}
	return p, reserved(b[12:16])
}

func decodeRecordsDelayed(b []byte) (*RecordsDelayed, error) {
	d := &RecordsDelayed{
		Topic: TopicID(le.Uint64(b)), Partition: Partition(le.Uint32(b[8:])), Count: le.Uint32(b[12:]),
		Offset: Offset(le.Uint64(b[16:])), Due: int64(le.Uint64(b[24:])),
	}
	if d.Offset < 0 || d.Count == 0 || d.End() < 0 || d.Due < 0 {
		return nil, Corrupt("%d records from offset %d on can't be delayed until %d µs since 1970", d.Count, d.Offset, d.Due)
	}
	return d, nil
}
