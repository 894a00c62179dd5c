package fsck

import (
	"cmp"
	"errors"
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/objstore"
)

// Class is the kind of a finding about an object.
type Class string

// The classes. Missing, corrupt and foreign objects are damage: the log has lost data, or a
// broker will stop. The other classes are no damage, but a broker of this version also stops when it needs a
// newer object.
const (
	// Missing: the log needs the object, and it does not exist.
	Missing Class = "missing"
	// Corrupt: the object's bytes are not those that were written, or contradict other objects.
	Corrupt Class = "corrupt"
	// Foreign: the object is of another cluster, or its content says that it has another key.
	Foreign Class = "foreign"
	// Newer: the object needs another version of seb, and was not checked.
	Newer Class = "newer"
	// Deleted: the slots no longer exist, and the log does not need them.
	Deleted Class = "deleted"
	// Orphaned: no commit refers to the data object, and probably no later commit will. For
	// example, the broker that uploaded the object died before the commit.
	Orphaned Class = "orphaned"
	// InUse: no commit refers to the data object yet, but a later commit may.
	InUse Class = "possibly in use"
	// Leftover: the object is a probe (a broker wrote it to test the store) that was not deleted.
	Leftover Class = "leftover"
	// Stray: the key is not one that Seb uses.
	Stray Class = "stray"
)

// Classes are all classes, the worst first.
var Classes = []Class{Missing, Corrupt, Foreign, Newer, Deleted, Orphaned, InUse, Leftover, Stray}

// Damage reports whether the class means that the log is damaged.
func (c Class) Damage() bool { return c == Missing || c == Corrupt || c == Foreign }

// Finding is what the check found about an object, or about consecutive slots (a run).
type Finding struct {
	Class Class  `json:"class"`
	Key   string `json:"key"`
	// Through is the last key of a run of slots, "" for a single object.
	Through string `json:"through,omitempty"`
	// Count is the number of slots of a run, 0 for a single object.
	Count  uint64 `json:"count,omitempty"`
	Detail string `json:"detail"`
	Bytes  int64  `json:"bytes,omitempty"` // the object's size, for classes [Orphaned] and [InUse]
}

// Report is the outcome of a check.
type Report struct {
	Cluster string `json:"cluster"`
	Deep    bool   `json:"deep"`
	// Complete says whether the check ended without an error.
	Complete bool `json:"complete"`
	// First and Last are the first and the last slot in log/, or 0.
	First uint64 `json:"first_slot"`
	Last  uint64 `json:"last_slot"`
	// The numbers of objects that were checked and found sound.
	Commits     int64 `json:"commits"`
	Checkpoints int64 `json:"checkpoints"`
	DataObjects int64 `json:"data_objects"`
	Batches     int64 `json:"batches"` // verified batches; 0 unless Deep
	// Bytes is how many bytes were read.
	Bytes int64 `json:"bytes_read"`
	// Findings are sorted by class, the worst first, and by key.
	Findings []Finding `json:"findings"`
}

// Of returns the findings of a class.
func (r *Report) Of(class Class) []Finding {
	var out []Finding
	for _, f := range r.Findings {
		if f.Class == class {
			out = append(out, f)
		}
	}
	return out
}

// Damage returns how many findings are damage.
func (r *Report) Damage() int {
	n := 0
	for _, f := range r.Findings {
		if f.Class.Damage() {
			n++
		}
	}
	return n
}

func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(Classes, a.Class), slices.Index(Classes, b.Class)), cmp.Compare(a.Key, b.Key))
	})
}

// classOf returns the class of an error about an object; ok is false if the error
// is about something else, such as a failed store.
func classOf(err error) (class Class, ok bool) {
	switch {
	case errors.Is(err, format.ErrCorrupt), errors.Is(err, record.ErrCorrupt), errors.Is(err, record.ErrMagic),
		errors.Is(err, objstore.ErrNotRegular):
		return Corrupt, true
	case errors.Is(err, format.ErrForeign):
		return Foreign, true
	case errors.Is(err, format.ErrVersion):
		return Newer, true
	}
	return "", false
}
