package seb

import "github.com/simple-event-broker/seb/internal/change"

// conditional tells whether the commit has conditions that do not belong to one of its parts.
func (c Commit) conditional() bool { return len(c.Ends) > 0 || !c.After.IsZero() }

// conditions checks the form of the commit's conditions, and adds them to x.
func (c Commit) conditions(x *change.Commit, cluster string) error {
	for _, e := range c.Ends {
		if err := x.AddEnds(e.Topic, e.ID, cluster, e.Ends); err != nil {
			return err
		}
	}
	if c.After.IsZero() {
		return nil
	}
	return x.SetAfter(c.After)
}
