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

// CutOf returns where the topics end. It returns a refusal if one of them does not exist.
func CutOf(s *state.State, topics []string) (Cut, error) {
	cut := Cut{Time: s.Time(), Topics: make([]TopicEnds, len(topics))}
	for i, name := range topics {
		t := s.Topic(name)
		if t == nil {
			return Cut{}, TopicNotFound(name)
		}
		ends := make([]format.Offset, len(t.Partitions))
		for p := range ends {
			ends[p] = t.Partitions[p].End
		}
		cut.Topics[i] = TopicEnds{ID: t.ID, Ends: ends}
	}
	return cut, nil
}
