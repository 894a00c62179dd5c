package state

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// MonthsKept is for how many months the state keeps what brokers have spent: the month of the last entry about it, and those before.
const MonthsKept = 13

// Month is a calendar month in UTC: the months since the year 0.
type Month int64

// MonthOf returns the month of a time in microseconds since 1970.
func MonthOf(micros int64) Month {
	t := time.UnixMicro(micros).UTC()
	return Month(t.Year())*12 + Month(t.Month()) - 1
}

// Start returns when the month begins.
func (m Month) Start() time.Time {
	return time.Date(int(m/12), time.Month(m%12)+1, 1, 0, 0, 0, 0, time.UTC)
}

// Spending is what brokers have said to have asked of the store in commits of a month. So requests count to the month in which
// their broker tells of them, which can be the next one.
type Spending struct {
	Month Month
	// Since is when the first broker told of its requests, by the log's time in microseconds since 1970.
	Since  int64
	Causes []format.CauseUse // ascending
}

// Sum returns the use of the store for all causes.
func (x *Spending) Sum() (sum format.StoreUse) {
	for _, c := range x.Causes {
		sum = sum.Plus(c.StoreUse)
	}
	return sum
}

const (
	spendingMemory = int64(unsafe.Sizeof(Spending{}))
	causeMemory    = int64(unsafe.Sizeof(format.CauseUse{}))
)

// Spending returns what brokers have spent, by month, ascending. The caller must not change it.
func (s *State) Spending() []Spending { return s.spending }

func (d *Draft) takeSpent(*format.Spent) error {
	if d.s.level < format.LevelSegments {
		return fmt.Errorf("%w: at level %d of the log, an entry about requests to the store", ErrNonsense, d.s.level)
	}
	return nil
}

// spentMemory returns how many bytes an entry of a commit at that time adds to the state at most.
func (s *State) spentMemory(x *format.Spent, at int64) (bytes int64) {
	var known []format.CauseUse
	if n := len(s.spending); n > 0 && s.spending[n-1].Month == MonthOf(at) {
		known = s.spending[n-1].Causes
	} else {
		bytes = spendingMemory
	}
	for _, c := range x.Causes {
		if _, ok := findCause(known, c.Cause); !ok {
			bytes += causeMemory
		}
	}
	return bytes
}

func findCause(causes []format.CauseUse, cause format.Cause) (at int, ok bool) {
	return slices.BinarySearchFunc(causes, cause, func(have format.CauseUse, cause format.Cause) int { return cmp.Compare(have.Cause, cause) })
}

// spend adds an entry of a commit at that time to the sums of its month. Months that are too old go.
func (s *State) spend(x *format.Spent, at int64) {
	month := MonthOf(at)
	for len(s.spending) > 0 && s.spending[0].Month <= month-MonthsKept {
		s.memory -= spendingMemory + int64(len(s.spending[0].Causes))*causeMemory
		s.spending = slices.Delete(s.spending, 0, 1)
	}
	if n := len(s.spending); n == 0 || s.spending[n-1].Month != month {
		s.addSpending(Spending{Month: month, Since: at})
	}
	sums := &s.spending[len(s.spending)-1]
	for _, c := range x.Causes {
		i, known := findCause(sums.Causes, c.Cause)
		if !known {
			more := make([]format.CauseUse, 0, len(sums.Causes)+1) // no longer than needed
			more = append(append(more, sums.Causes[:i]...), format.CauseUse{Cause: c.Cause})
			sums.Causes = append(more, sums.Causes[i:]...)
			s.memory += causeMemory
		}
		sums.Causes[i].StoreUse = sums.Causes[i].Plus(c.StoreUse)
	}
}

func (s *State) dropSpending() {
	for _, x := range s.spending {
		s.memory -= spendingMemory + int64(len(x.Causes))*causeMemory
	}
	s.spending = nil
}

func (s *State) addSpending(x Spending) {
	s.spending = append(s.spending, x)
	s.memory += spendingMemory + int64(len(x.Causes))*causeMemory
}

// CloneSpending returns a copy of what brokers have spent, by month, ascending.
func (s *State) CloneSpending() []Spending {
	list := slices.Clone(s.spending)
	for i := range list {
		list[i].Causes = slices.Clone(list[i].Causes)
	}
	return list
}

// spendingSection returns the section of the snapshot about what brokers have spent.
func (v *View) spendingSection() []byte {
	b := binary.AppendUvarint(nil, uint64(len(v.spending)))
	for _, x := range v.spending {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(x.Month)), uint64(x.Since))
		b = binary.AppendUvarint(b, uint64(len(x.Causes)))
		for _, c := range x.Causes {
			b = format.AppendUse(binary.AppendUvarint(b, uint64(c.Cause)), c.StoreUse)
		}
	}
	return b
}

// decodeSpending reads the section, and reports whether it has something.
func (s *State) decodeSpending(r *reader) bool {
	n := r.count(3)
	for range n {
		x := Spending{Month: Month(r.max(math.MaxUint32)), Since: r.int64()}
		for range r.count(7) {
			c := format.CauseUse{Cause: format.Cause(r.max(uint64(format.CausesMax))), StoreUse: format.ReadUse(r.int64)}
			if k := len(x.Causes); c.Cause == 0 || c.StoreUse == (format.StoreUse{}) || k > 0 && x.Causes[k-1].Cause >= c.Cause {
				r.fail("the causes of what brokers have spent don't ascend, or have no requests")
				return false
			}
			x.Causes = append(x.Causes, c)
		}
		if k := len(s.spending); len(x.Causes) == 0 || MonthOf(x.Since) != x.Month || x.Since > s.time || k > 0 && s.spending[k-1].Month >= x.Month || x.Month >= s.firstSpending(x.Month)+MonthsKept {
			r.fail("month %d of what brokers have spent is invalid", x.Month)
		}
		if r.err != nil {
			return false
		}
		s.addSpending(x)
	}
	return n > 0
}

// firstSpending returns the oldest month of which the state knows what brokers have spent; next if it knows of none.
func (s *State) firstSpending(next Month) Month {
	if len(s.spending) == 0 {
		return next
	}
	return s.spending[0].Month
}

// continuesSpending is the part of [State.Continues] about what brokers have spent: no sum fell.
func (s *State) continuesSpending(old *State) error {
	for i := range old.spending {
		was := &old.spending[i]
		at := slices.IndexFunc(s.spending, func(x Spending) bool { return x.Month == was.Month })
		if at < 0 && (len(s.spending) == 0 || s.firstSpending(0) <= was.Month) {
			return fmt.Errorf("%w: the state does not know what brokers have spent in %s", ErrDiscontinued, was.Month.Start().Format("2006-01"))
		}
		if at < 0 {
			continue // it was long ago
		}
		for _, c := range was.Causes {
			i, known := findCause(s.spending[at].Causes, c.Cause)
			if !known || !s.spending[at].Causes[i].Covers(c.StoreUse) {
				return fmt.Errorf("%w: brokers have spent less in %s than before, by cause %v", ErrDiscontinued, was.Month.Start().Format("2006-01"), c.Cause)
			}
		}
	}
	return nil
}
