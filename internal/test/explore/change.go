package explore

import (
	"github.com/simple-event-broker/seb/internal/format"
)

// change is what a commit does to a queue. It is a part of a map key: the outcome of each change on each
// state is computed only once.
type change struct {
	what   changeKind
	epoch  uint8
	record uint8
	number uint8 // the number of a delivery of the record
	window uint8 // the new dispatch limit
	out    uint8 // for a release: a bit for each record that a worker has
	// silent says that the commit of a takeover first releases the queue, as if the previous owner had done
	// that. Then the fold does not extend the uncertain range.
	silent bool
}

type changeKind uint8

const (
	anAppend    changeKind = iota
	aTakeover              // uses the fields epoch, window and silent
	aWindow                // uses the fields epoch and window
	anAttempt              // uses the fields epoch, record and number
	aRelease               // uses the fields epoch and out
	anAck                  // RecordsDone
	aNack                  // RecordPutBack
	aDeadLetter            // a RecordPutBack that makes the record a dead letter
	aRedriving             // RecordsRedriven
)

// entries returns the entries of the commit; end is the offset that the next record of the partition gets.
func (c *change) entries(end int) []format.Entry {
	epoch := format.Epoch(c.epoch)
	attempt := format.Attempt{Offset: format.Offset(c.record), Number: uint32(c.number)}
	putBack := &format.RecordPutBack{Queue: theQueue, Attempt: attempt, DeadLetter: c.what != aNack}
	switch c.what {
	case anAppend:
		return []format.Entry{&format.Batch{Topic: theTopic, Base: format.Offset(end), Count: 1, Size: 61}}
	case aTakeover:
		owned := &format.QueueOwned{Queue: theQueue, Epoch: epoch, Windows: []format.Offset{format.Offset(c.window)}}
		named := &format.SessionNamed{Session: format.SessionKey{1}, Queue: theQueue, Epoch: epoch}
		if c.silent {
			return []format.Entry{&format.QueueReleased{Queue: theQueue, Epoch: epoch - 1}, owned, named}
		}
		return []format.Entry{owned, named}
	case aWindow:
		return []format.Entry{&format.WindowMoved{Queue: theQueue, Epoch: epoch, Window: format.Offset(c.window)}}
	case anAttempt:
		return []format.Entry{&format.RecordsAttempted{Queue: theQueue, Epoch: epoch, Attempts: []format.Attempt{attempt}}}
	case aRelease:
		return c.release()
	case anAck:
		return []format.Entry{&format.RecordsDone{Queue: theQueue, Runs: []format.Run{{Offset: format.Offset(c.record), Count: 1, Number: uint32(c.number)}}}}
	case aNack, aDeadLetter:
		return []format.Entry{putBack}
	default:
		return []format.Entry{&format.RecordsRedriven{Queue: theQueue, Offsets: []format.Offset{format.Offset(c.record)}}}
	}
}

func (c *change) release() []format.Entry {
	out := &format.RecordsAttempted{Queue: theQueue, Epoch: format.Epoch(c.epoch)}
	for o := range recordsMax {
		if c.out&(1<<o) != 0 {
			out.Attempts = append(out.Attempts, format.Attempt{Offset: format.Offset(o), Number: 1})
		}
	}
	released := &format.QueueReleased{Queue: theQueue, Epoch: format.Epoch(c.epoch)}
	if c.out == 0 {
		return []format.Entry{released}
	}
	return []format.Entry{out, released}
}
