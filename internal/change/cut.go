package change

import (
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// Cut says where topics end after the last commit of a state.
type Cut struct {
	Time   int64 // the time of the commit, in microseconds since 1970
	Topics []TopicEnds
}

// TopicEnds says where a topic ends.
type TopicEnds struct {
	Name string
	ID   format.TopicID
	Ends []format.Offset // of all partitions
}

// Offsets returns the ends by partition.
func (t TopicEnds) Offsets() map[int32]format.Offset {
	m := make(map[int32]format.Offset, len(t.Ends))
	for p, end := range t.Ends {
		m[int32(p)] = end
	}
	return m
}

// CheckCut returns a refusal unless the topics are one or more, each named only once.
func CheckCut(topics []string) error {
	if len(topics) == 0 {
		return refused(CodeInvalidRequest, "", "the cut names no topics")
	}
	named := map[string]bool{}
	for _, name := range topics {
		if named[name] {
			return refused(CodeInvalidRequest, "", "the cut names topic %q twice", name)
		}
		named[name] = true
	}
	return nil
}

// CutOf returns where the topics end. If one of them does not exist, it leaves the topic out if existing is true, and else returns a
// refusal.
func CutOf(s *state.State, topics []string, existing bool) (Cut, error) {
	cut := Cut{Time: s.Time()}
	for _, name := range topics {
		t := s.Topic(name)
		switch {
		case t == nil && existing:
			continue
		case t == nil:
			return Cut{}, TopicNotFound(name)
		}
		ends := make([]format.Offset, len(t.Partitions))
		for p := range ends {
			ends[p] = t.Partitions[p].End
		}
		cut.Topics = append(cut.Topics, TopicEnds{Name: name, ID: t.ID, Ends: ends})
	}
	return cut, nil
}
