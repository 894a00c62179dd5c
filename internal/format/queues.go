package format

// The entries about queues, which hand out the records of a topic as work. docs/rfcs/0002 gives
// the reasons for them.
//
//	14 queue set: id (uint64), topic (uint64), lease, shortest and longest backoff in ms (3 × int64),
//	   attempts (uint32), flags (uint32: bit 0 = order by key, bit 1 = paused), size of the next text (uint16),
//	   name of the dead-letter topic, name of the queue; if the queue exists, the entry replaces the queue's config
//	15 queue deleted: id (uint64)
//	16 queue owned: queue (uint64), epoch (uint64), number of partitions (uint32), 0 (uint32),
//	   then for each partition its dispatch limit (int64), then the owner's address
//	17 queue released: queue (uint64), epoch (uint64); in the same commit, entries of kind 19 name the records
//	   that workers still have from a first delivery
//	18 window moved: queue (uint64), epoch (uint64), partition (uint32), 0 (uint32), dispatch limit (int64)
//	19 records attempted: queue (uint64), epoch (uint64), partition (uint32), 0 (uint32),
//	   then for each: offset (int64), number of the latest attempt (uint32), 0 (uint32)
//	20 records done: queue (uint64), partition (uint32), 0 (uint32),
//	   then for each run: first offset (int64), records (uint32), attempt that succeeded (uint32)
//	21 record put back: queue (uint64), partition (uint32), attempt that failed (uint32), offset (int64),
//	   not before, in microseconds (int64), flags (uint32: bit 0 = dead letter), 0 (uint32), reason
//	22 records redriven: queue (uint64), partition (uint32), 0 (uint32), then each offset (int64)
//	23 queue purged: queue (uint64), partition (uint32), 0 (uint32), first offset that is not purged (int64)
//	24 records delayed: topic (uint64), partition (uint32), records (uint32), first offset (int64),
//	   due, in microseconds since 1970 (int64)
const (
	entryQueueSet         = 14
	entryQueueDeleted     = 15
	entryQueueOwned       = 16
	entryQueueReleased    = 17
	entryWindowMoved      = 18
	entryRecordsAttempted = 19
	entryRecordsDone      = 20
	entryRecordPutBack    = 21
	entryRecordsRedriven  = 22
	entryQueuePurged      = 23
	entryRecordsDelayed   = 24
)

// QueueSet adds a queue, or replaces its config.
type QueueSet struct {
	ID     QueueID
	Topic  TopicID
	Config QueueConfig
	Name   string // unique among the topic's queues
}

// QueueConfig says how a queue hands out records.
type QueueConfig struct {
	LeaseMS                    int64
	BackoffMinMS, BackoffMaxMS int64
	Attempts                   uint32 // most attempts of a record
	Ordered                    bool   // by record key
	Paused                     bool
	DeadLetterTopic            string // "": the queue has no dead-letter topic
}

// QueueDeleted deletes a queue.
type QueueDeleted struct{ ID QueueID }

// QueueOwned makes a broker the owner of a queue. The owner hands out the queue's records.
type QueueOwned struct {
	Queue QueueID
	Epoch Epoch
	// Windows has the dispatch limit of each partition: the owner may hand out a record for the first
	// time only if the record's offset is below the limit.
	Windows []Offset
	Address string
}

// QueueReleased leaves a queue without an owner.
type QueueReleased struct {
	Queue QueueID
	Epoch Epoch
}

// WindowMoved sets the dispatch limit of a partition to Window: the owner may hand out a record for the first
// time only if the record's offset is below Window.
type WindowMoved struct {
	Queue     QueueID
	Epoch     Epoch
	Partition Partition
	Window    Offset
}

// RecordsAttempted counts deliveries of records. The owner commits it before each delivery of a record
// except the first, which the dispatch limit allows. When the owner releases the queue, workers may still
// have records from a first delivery. The owner then commits these deliveries with the release, so that
// the next owner counts the attempts exactly.
type RecordsAttempted struct {
	Queue     QueueID
	Epoch     Epoch
	Partition Partition
	Attempts  []Attempt // ascending by offset
}

// Attempt is a delivery of a record. Number counts the record's deliveries from 1.
type Attempt struct {
	Offset Offset
	Number uint32
}

// RecordsDone marks records as done.
type RecordsDone struct {
	Queue     QueueID
	Partition Partition
	Runs      []Run // ascending by offset, disjoint
}

// Run is Count records from Offset on. For each of them, Number is the attempt that succeeded.
type Run struct {
	Offset        Offset
	Count, Number uint32
}

// End returns the offset after the last record.
func (r Run) End() Offset { return r.Offset + Offset(r.Count) }

// RecordPutBack says that a delivery failed.
type RecordPutBack struct {
	Queue     QueueID
	Partition Partition
	Attempt
	NotBefore  int64 // earliest time of the next delivery, or when the record became a dead letter; microseconds since 1970
	DeadLetter bool  // the record is handed out again only after a redrive
	Reason     string
}

// RecordsRedriven turns dead letters into records that the queue hands out again, with as many new
// attempts as the queue allows. In the log, the numbers of attempts continue: after attempt
// 5 comes attempt 6. Workers see numbers that begin at 1 again.
type RecordsRedriven struct {
	Queue     QueueID
	Partition Partition
	Offsets   []Offset // ascending
}

// QueuePurged marks all records before an offset as done.
type QueuePurged struct {
	Queue     QueueID
	Partition Partition
	Before    Offset
}

// RecordsDelayed delays records that the same commit appends: queues hand out these records only when
// they are due. In the commit, the entry comes after the records' batches. No record is in two such entries.
type RecordsDelayed struct {
	Topic     TopicID
	Partition Partition
	Count     uint32
	Offset    Offset
	Due       int64 // microseconds since 1970
}

// End returns the offset after the last record.
func (d *RecordsDelayed) End() Offset { return d.Offset + Offset(d.Count) }

func (*QueueSet) kind() uint16         { return entryQueueSet }
func (*QueueDeleted) kind() uint16     { return entryQueueDeleted }
func (*QueueOwned) kind() uint16       { return entryQueueOwned }
func (*QueueReleased) kind() uint16    { return entryQueueReleased }
func (*WindowMoved) kind() uint16      { return entryWindowMoved }
func (*RecordsAttempted) kind() uint16 { return entryRecordsAttempted }
func (*RecordsDone) kind() uint16      { return entryRecordsDone }
func (*RecordPutBack) kind() uint16    { return entryRecordPutBack }
func (*RecordsRedriven) kind() uint16  { return entryRecordsRedriven }
func (*QueuePurged) kind() uint16      { return entryQueuePurged }
func (*RecordsDelayed) kind() uint16   { return entryRecordsDelayed }

const (
	queueSetSize  = 50 // without the names
	queueOwnedMin = 24
	attemptedMin  = 24
	runsMin       = 16
	putBackSize   = 40 // without the reason

	queueOrdered     = 1
	queuePaused      = 2
	recordDeadLetter = 1
)

func (q *QueueSet) size() int         { return queueSetSize + len(q.Config.DeadLetterTopic) + len(q.Name) }
func (*QueueDeleted) size() int       { return 8 }
func (o *QueueOwned) size() int       { return queueOwnedMin + 8*len(o.Windows) + len(o.Address) }
func (*QueueReleased) size() int      { return 16 }
func (*WindowMoved) size() int        { return 32 }
func (a *RecordsAttempted) size() int { return attemptedMin + 16*len(a.Attempts) }
func (d *RecordsDone) size() int      { return runsMin + 16*len(d.Runs) }
func (p *RecordPutBack) size() int    { return putBackSize + len(p.Reason) }
func (r *RecordsRedriven) size() int  { return runsMin + 8*len(r.Offsets) }
func (*QueuePurged) size() int        { return 24 }
func (*RecordsDelayed) size() int     { return 32 }

func (q *QueueSet) append(b []byte) []byte {
	var flags uint32
	if q.Config.Ordered {
		flags |= queueOrdered
	}
	if q.Config.Paused {
		flags |= queuePaused
	}
	b = le.AppendUint64(le.AppendUint64(b, uint64(q.ID)), uint64(q.Topic))
	b = le.AppendUint64(b, uint64(q.Config.LeaseMS))
	b = le.AppendUint64(b, uint64(q.Config.BackoffMinMS))
	b = le.AppendUint64(b, uint64(q.Config.BackoffMaxMS))
	b = le.AppendUint32(le.AppendUint32(b, q.Config.Attempts), flags)
	b = le.AppendUint16(b, uint16(len(q.Config.DeadLetterTopic)))
	return append(append(b, q.Config.DeadLetterTopic...), q.Name...)
}

func (q *QueueDeleted) append(b []byte) []byte { return le.AppendUint64(b, uint64(q.ID)) }

func (o *QueueOwned) append(b []byte) []byte {
	b = le.AppendUint64(le.AppendUint64(b, uint64(o.Queue)), uint64(o.Epoch))
	b = le.AppendUint64(b, uint64(len(o.Windows)))
	for _, w := range o.Windows {
		b = le.AppendUint64(b, uint64(w))
	}
	return append(b, o.Address...)
}

func (r *QueueReleased) append(b []byte) []byte {
	return le.AppendUint64(le.AppendUint64(b, uint64(r.Queue)), uint64(r.Epoch))
}

func (w *WindowMoved) append(b []byte) []byte {
	b = le.AppendUint64(le.AppendUint64(b, uint64(w.Queue)), uint64(w.Epoch))
	return le.AppendUint64(le.AppendUint64(b, uint64(w.Partition)), uint64(w.Window))
}

func (a *RecordsAttempted) append(b []byte) []byte {
	b = le.AppendUint64(le.AppendUint64(b, uint64(a.Queue)), uint64(a.Epoch))
	b = le.AppendUint64(b, uint64(a.Partition))
	for _, x := range a.Attempts {
		b = le.AppendUint64(le.AppendUint64(b, uint64(x.Offset)), uint64(x.Number))
	}
	return b
}

func (d *RecordsDone) append(b []byte) []byte {
	b = le.AppendUint64(le.AppendUint64(b, uint64(d.Queue)), uint64(d.Partition))
	for _, r := range d.Runs {
		b = le.AppendUint64(b, uint64(r.Offset))
		b = le.AppendUint32(le.AppendUint32(b, r.Count), r.Number)
	}
	return b
}

func (p *RecordPutBack) append(b []byte) []byte {
	var flags uint64
	if p.DeadLetter {
		flags = recordDeadLetter
	}
	b = le.AppendUint64(b, uint64(p.Queue))
	b = le.AppendUint32(le.AppendUint32(b, uint32(p.Partition)), p.Number)
	b = le.AppendUint64(le.AppendUint64(b, uint64(p.Offset)), uint64(p.NotBefore))
	return append(le.AppendUint64(b, flags), p.Reason...)
}

func (r *RecordsRedriven) append(b []byte) []byte {
	b = le.AppendUint64(le.AppendUint64(b, uint64(r.Queue)), uint64(r.Partition))
	for _, o := range r.Offsets {
		b = le.AppendUint64(b, uint64(o))
	}
	return b
}

func (p *QueuePurged) append(b []byte) []byte {
	b = le.AppendUint64(le.AppendUint64(b, uint64(p.Queue)), uint64(p.Partition))
	return le.AppendUint64(b, uint64(p.Before))
}

func (d *RecordsDelayed) append(b []byte) []byte {
	b = le.AppendUint64(b, uint64(d.Topic))
	b = le.AppendUint32(le.AppendUint32(b, uint32(d.Partition)), d.Count)
	return le.AppendUint64(le.AppendUint64(b, uint64(d.Offset)), uint64(d.Due))
}
