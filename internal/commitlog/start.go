package commitlog

import (
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
)

// CommitStart is what the first Get of a commit's object returned. A reader that reads many commits at once
// learns from it how much memory the head takes, before it reads the rest of a large head.
type CommitStart struct {
	Body []byte // the first bytes of the object
	Size int64  // size of the whole object in bytes
	pro  format.Prologue
}

// StartCommit checks the first bytes of a commit's object, which a Get of these bytes returned.
func StartCommit(o objstore.Object) (CommitStart, error) {
	x := CommitStart{Body: o.Body, Size: o.Size}
	var err error
	if x.pro, err = format.DecodePrologue(o.Body); err == nil && !x.Whole() {
		err = format.CheckCommitStart(o.Body, o.Size)
	}
	return x, err
}

// Whole reports whether Body has the whole head.
func (x CommitStart) Whole() bool { return x.End() <= int64(len(x.Body)) }

// End returns the size of the prologue and the head in bytes.
func (x CommitStart) End() int64 { return x.pro.End() }

// Memory returns about how many bytes of memory it takes to read and decode the head. If Body is the whole
// object, the bytes after the head are included.
func (x CommitStart) Memory() int64 { return format.CommitMemory(x.pro) + int64(len(x.Body)) }
