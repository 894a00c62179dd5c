package explore

import "github.com/simple-event-broker/seb/internal/commitlog"

// change is what a commit brings to a queue. It can be compared, so that what the state
// makes of it is asked only once.
type change struct {
	what   changeKind
	epoch  uint8
	record uint8
	number uint8 // of the delivery that it is about
	window uint8
	out    uint8 // has a bit for each record that a release says is out
	// silent: the owner before is released first, so that nothing is in doubt.
	silent bool
}

type changeKind uint8

const (
	anAppend   changeKind = iota
	aTakeover             // by epoch and window
	aWindow               // by epoch
	anAttempt             // by epoch
	aRelease              // by epoch
	anAck                 // RecordsDone
	aNack                 // RecordPutBack
	aParking              // the same, and it is parked
	aRedriving            // RecordsRedriven
)

// items are those of the commit, which the log before gives the next offset.
func (c *change) items(end int) []commitlog.Item {
	epoch := uint64(c.epoch)
	attempt := commitlog.Attempt{Offset: int64(c.record), Number: uint32(c.number)}
	putBack := &commitlog.RecordPutBack{Queue: theQueue, Attempt: attempt, Parked: c.what != aNack}
	switch c.what {
	case anAppend:
		return []commitlog.Item{&commitlog.Batch{Topic: theTopic, Base: int64(end), Count: 1, Size: 61}}
	case aTakeover:
		owned := &commitlog.QueueOwned{Queue: theQueue, Epoch: epoch, Windows: []int64{int64(c.window)}}
		named := &commitlog.SessionNamed{Session: commitlog.SessionKey{1}, Queue: theQueue, Epoch: epoch}
		if c.silent {
			return []commitlog.Item{&commitlog.QueueReleased{Queue: theQueue, Epoch: epoch - 1}, owned, named}
		}
		return []commitlog.Item{owned, named}
	case aWindow:
		return []commitlog.Item{&commitlog.WindowMoved{Queue: theQueue, Epoch: epoch, Window: int64(c.window)}}
	case anAttempt:
		return []commitlog.Item{&commitlog.RecordsAttempted{Queue: theQueue, Epoch: epoch, Attempts: []commitlog.Attempt{attempt}}}
	case aRelease:
		return c.release()
	case anAck:
		return []commitlog.Item{&commitlog.RecordsDone{Queue: theQueue, Runs: []commitlog.Run{{Offset: int64(c.record), Count: 1, Number: uint32(c.number)}}}}
	case aNack, aParking:
		return []commitlog.Item{putBack}
	default:
		return []commitlog.Item{&commitlog.RecordsRedriven{Queue: theQueue, Offsets: []int64{int64(c.record)}}}
	}
}

func (c *change) release() []commitlog.Item {
	out := &commitlog.RecordsAttempted{Queue: theQueue, Epoch: uint64(c.epoch)}
	for o := range recordsMax {
		if c.out&(1<<o) != 0 {
			out.Attempts = append(out.Attempts, commitlog.Attempt{Offset: int64(o), Number: 1})
		}
	}
	released := &commitlog.QueueReleased{Queue: theQueue, Epoch: uint64(c.epoch)}
	if c.out == 0 {
		return []commitlog.Item{released}
	}
	return []commitlog.Item{out, released}
}
