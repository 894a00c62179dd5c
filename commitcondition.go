package seb

import (
	"fmt"
	"time"

	"github.com/simple-event-broker/seb/internal/change"
)

// conditional tells whether the commit has conditions that do not belong to one of its parts.
func (c Commit) conditional() bool { return len(c.Ends) > 0 || !c.After.IsZero() }

// conditions checks the form of the commit's conditions, and adds them to x.
func (c Commit) conditions(x *change.Commit, cluster string) error {
	first := map[string]string{}
	for i, named := range c.Ends {
		e, err := change.NewCommitEnds(fmt.Sprintf("ends/%d", i), named.Topic, named.ID, cluster, named.Ends)
		if err != nil {
			return err
		}
		if before, twice := first[e.Topic]; twice {
			return refused(CodeInvalidRequest, "%s already names this topic", before).of(e.Part)
		}
		first[e.Topic] = e.Part
		x.Ends = append(x.Ends, e)
	}
	if c.After.IsZero() {
		return nil
	}
	if year := c.After.UTC().Year(); year < 1970 || year > 9999 {
		return refused(CodeInvalidRequest, "the commit must be later than %s; give a time from 1970 to 9999", c.After.UTC().Format(time.RFC3339)).of(change.PartAfter)
	}
	x.After = c.After.UnixMicro()
	return nil
}
