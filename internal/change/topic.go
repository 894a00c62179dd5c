package change

import (
	"fmt"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// NamesHint says which names are valid.
const NamesHint = "use 1 to 249 of a-z, A-Z, 0-9, ., _ and -, but not . or .."

const topicNameBytesMax = 249

// CheckTopicName refuses an invalid name of a topic. The names of queues and consumers have the same
// rules.
func CheckTopicName(name string) error {
	ok := name != "" && name != "." && name != ".." && len(name) <= topicNameBytesMax
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
	}
	if !ok {
		return refused(CodeInvalidTopicName, NamesHint, "%.300q is not a valid topic name", name)
	}
	return nil
}

// CreateTopic creates a topic. If a topic of that name exists, CreateTopic changes nothing. It then
// refuses the request unless the topic has the same number of partitions, and each value of Config that
// is not 0.
type CreateTopic struct {
	Name       string
	Partitions uint32
	Config     format.TopicConfig
	TopicsMax  int // how many topics the log may have
}

// Apply implements engine.Change.
func (x CreateTopic) Apply(d *state.Draft) ([]format.Entry, error) {
	if id, n, ok := d.TopicID(x.Name); ok {
		has := d.TopicConfig(id)
		if err := x.differs(n, has); err != nil || !d.Dormant(id) || x.Config.RetentionMS != has.RetentionMS || x.Config.RetentionBytes != has.RetentionBytes {
			return nil, err
		}
		return appendConfig(d, nil, id, has, has, true) // the request asks for all limits that the topic has, so from now on they apply
	}
	if d.TopicCount() >= x.TopicsMax {
		return nil, limited(CodeTooManyTopics, x.TopicsMax, "there are %d topics, which is the maximum", x.TopicsMax)
	}
	id := d.NextTopicID()
	entries := []format.Entry{&format.TopicCreated{ID: id, Partitions: x.Partitions, Name: x.Name}}
	return appendConfig(d, entries, id, format.TopicConfig{}, x.Config, false)
}

// appendConfig appends the entries that change the config of a topic. set says that the limits are set even if they don't change.
func appendConfig(d *state.Draft, entries []format.Entry, id format.TopicID, was, now format.TopicConfig, set bool) ([]format.Entry, error) {
	if set || was.RetentionMS != now.RetentionMS || was.RetentionBytes != now.RetentionBytes {
		limits := format.TopicConfig{RetentionMS: now.RetentionMS, RetentionBytes: now.RetentionBytes}
		entries = append(entries, &format.TopicConfigured{Topic: id, Config: limits})
	}
	if was.PastQueues != now.PastQueues {
		if d.Level() < format.LevelSegments {
			return nil, refused(CodeInvalidRequest, "run seb upgrade once all brokers have this version", "retention_past_queues needs level %d of the log's format; the log has level %d",
				format.LevelSegments, d.Level())
		}
		entries = append(entries, &format.QueuesPassed{Topic: id, PastQueues: now.PastQueues})
	}
	return entries, nil
}

// differs compares x with the existing topic of the same name; has is the config of that topic. differs
// returns nil if x asks for the same number of partitions and for no other config, else a refusal.
func (x CreateTopic) differs(partitions uint32, has format.TopicConfig) error {
	want := has
	if x.Config.RetentionMS != 0 {
		want.RetentionMS = x.Config.RetentionMS
	}
	if x.Config.RetentionBytes != 0 {
		want.RetentionBytes = x.Config.RetentionBytes
	}
	want.PastQueues = want.PastQueues || x.Config.PastQueues
	if partitions == x.Partitions && want == has {
		return nil
	}
	exists := fmt.Sprintf("topic %q exists with one partition", x.Name)
	if partitions > 1 {
		exists = fmt.Sprintf("topic %q exists with %d partitions", x.Name, partitions)
	}
	if want != has {
		exists += ", " + kept(has)
	}
	return refused(CodeTopicExists, "", "%s", exists)
}

// kept describes for how long, and up to how many bytes, a topic keeps records.
func kept(c format.TopicConfig) string {
	var limits []string
	if c.RetentionMS > 0 {
		limits = append(limits, fmt.Sprintf("a retention of %v", time.Duration(c.RetentionMS)*time.Millisecond))
	}
	if c.RetentionBytes > 0 {
		limits = append(limits, fmt.Sprintf("a retention of %d bytes", c.RetentionBytes))
	}
	if len(limits) == 0 {
		return "no retention limit"
	}
	text := strings.Join(limits, " and ")
	if c.PastQueues {
		text += ", also of records that a queue has not done"
	}
	return text
}

// DeleteTopic deletes a topic.
type DeleteTopic struct{ Name string }

// Apply implements engine.Change.
func (x DeleteTopic) Apply(d *state.Draft) ([]format.Entry, error) {
	id, _, ok := d.TopicID(x.Name)
	if !ok {
		return nil, TopicNotFound(x.Name)
	}
	return []format.Entry{&format.TopicDeleted{ID: id}}, nil
}

// UpdateTopic changes the number of partitions and the config of a topic.
type UpdateTopic struct {
	Name           string
	Partitions     uint32 // 0 leaves the number of partitions as it is
	RetentionMS    *int64 // nil leaves the value as it is, here and below
	RetentionBytes *int64
	PastQueues     *bool
}

// Apply implements engine.Change.
func (x UpdateTopic) Apply(d *state.Draft) (entries []format.Entry, _ error) {
	id, n, ok := d.TopicID(x.Name)
	if !ok {
		return nil, TopicNotFound(x.Name)
	}
	if x.Partitions != 0 && x.Partitions != n {
		if x.Partitions < n {
			return nil, refused(CodeInvalidRequest, "keep the number, or copy the records to a new topic that has fewer partitions",
				"topic %q has %d partitions; their number can't be reduced to %d", x.Name, n, x.Partitions)
		}
		entries = append(entries, &format.PartitionsAdded{Topic: id, Partitions: x.Partitions})
	}
	was := d.TopicConfig(id)
	config := was
	set(&config.RetentionMS, x.RetentionMS)
	set(&config.RetentionBytes, x.RetentionBytes)
	set(&config.PastQueues, x.PastQueues)
	// Limits that brokers don't apply yet apply once somebody sets them again.
	again := (x.RetentionMS != nil || x.RetentionBytes != nil) && d.Dormant(id)
	if again && (x.RetentionMS == nil && was.RetentionMS > 0 || x.RetentionBytes == nil && was.RetentionBytes > 0) {
		return nil, refused(CodeInvalidRequest, "give retention and retention_bytes; null, or none on the command line, means no limit",
			"topic %q has %s, which an earlier version has stored and no version has applied yet; setting one limit would apply the other one too", x.Name, kept(was))
	}
	return appendConfig(d, entries, id, was, config, again)
}

// set copies *from to *to, unless from is nil.
func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// DeleteRecords deletes the records of a partition whose offsets are below Before: it moves the start
// of the partition.
type DeleteRecords struct {
	Topic     string
	Partition format.Partition
	Before    format.Offset
}

// Apply implements engine.Change.
func (x DeleteRecords) Apply(d *state.Draft) ([]format.Entry, error) {
	id, n, ok := d.TopicID(x.Topic)
	if !ok {
		return nil, TopicNotFound(x.Topic)
	}
	if x.Partition < 0 || uint32(x.Partition) >= n {
		return nil, PartitionNotFound(x.Topic, x.Partition, int(n))
	}
	start := d.Start(id, x.Partition)
	end, _ := d.End(id, x.Partition)
	if x.Before < 0 || x.Before > end {
		r := OutOfRange(x.Topic, x.Partition, x.Before, start, end)
		r.Hint = fmt.Sprintf("give the first offset to keep: %d keeps all records, %d keeps none", start, end)
		if start == end {
			r.Hint = "the partition holds no records: there is nothing to delete"
		}
		return nil, r
	}
	if x.Before <= start {
		return nil, nil
	}
	return []format.Entry{&format.StartMoved{Topic: id, Partition: x.Partition, Start: x.Before}}, nil
}
