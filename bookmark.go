package seb

import (
	"strconv"
	"strings"

	"github.com/simple-event-broker/seb/internal/engine"
)

// AllPartitions stands for every partition of a topic, including those that are added later.
const AllPartitions = int32(engine.AllPartitions)

// FollowPartitionsMax is how many partitions one [Follower] may read, so that a [Bookmark] does
// not become too large. A consumer's follower may read more partitions, since it needs no Bookmark: the
// consumer stores the follower's position.
const FollowPartitionsMax = 1024

// Bookmark is the position of a [Follower]. Another follower, of any broker of the bucket and at
// any later time, can go on exactly at this position.
//
// If the follower reads all partitions, the text of its bookmark is
// CLUSTER.TOPIC:OFFSET,OFFSET,..., with one offset for each partition from 0 on, such as
// 1f0c6a3e.7:41,0,12. If the follower reads one partition, the text is
// CLUSTER.TOPIC/PARTITION:OFFSET, such as 1f0c6a3e.7/2:12. CLUSTER has eight hexadecimal
// digits. TOPIC, PARTITION and OFFSET are decimal numbers.
type Bookmark struct {
	// Cluster is the first eight digits of the cluster's id, Topic the topic's id.
	// Together they distinguish the topic from a topic that is created later under the same name.
	Cluster string
	Topic   TopicID
	// Partition is the only partition that the follower reads, or AllPartitions.
	Partition int32
	// Offsets are the next offsets to read. If Partition is AllPartitions, the list has an
	// offset for each partition from 0 on; in partitions past the end of the list, the next
	// offset is 0. Otherwise the list has one offset.
	Offsets []Offset
}

const (
	clusterDigits    = 8
	bookmarkBytesMax = 32 << 10
)

// ParseBookmark parses what [Bookmark.String] returns. Its errors have CodeInvalidRequest.
func ParseBookmark(s string) (_ Bookmark, err error) {
	defer reads(&err)
	head, offsets, _ := strings.Cut(s, ":")
	cluster, topic, _ := strings.Cut(head, ".")
	topic, partition, one := strings.Cut(topic, "/")
	m := Bookmark{Cluster: cluster, Partition: AllPartitions}
	id, err := strconv.ParseUint(topic, 10, 64)
	ok := len(s) <= bookmarkBytesMax && len(cluster) == clusterDigits && strings.Trim(cluster, "0123456789abcdef") == "" &&
		err == nil && strings.Count(offsets, ",") < FollowPartitionsMax
	m.Topic = TopicID(id)
	if one {
		n, err := strconv.ParseUint(partition, 10, 31)
		m.Partition, ok = int32(n), ok && err == nil && !strings.Contains(offsets, ",")
	}
	if !ok {
		return Bookmark{}, errBookmark(s)
	}
	for o := range strings.SplitSeq(offsets, ",") {
		n, err := strconv.ParseUint(o, 10, 63)
		if err != nil {
			return Bookmark{}, errBookmark(s)
		}
		m.Offsets = append(m.Offsets, Offset(n))
	}
	return m, nil
}

// clusterTag returns a short id of the log, which distinguishes the log from most other logs.
func clusterTag(e *engine.Engine) string { return e.ClusterID()[:clusterDigits] }

// TopicTag returns a text, such as 1f0c6a3e.7, by which programs distinguish the topic with that id
// from all other topics of the log, and from the topics of most other logs. The text of a [Bookmark]
// begins with this text.
func (b *Broker) TopicTag(id TopicID) string {
	return Bookmark{Cluster: clusterTag(b.engine), Topic: id}.topicTag()
}

func (m Bookmark) topicTag() string { return m.Cluster + "." + strconv.FormatUint(uint64(m.Topic), 10) }

// AppendText implements [encoding.TextAppender]. It never returns an error.
func (m Bookmark) AppendText(b []byte) ([]byte, error) {
	b = append(append(b, m.Cluster...), '.')
	b = strconv.AppendUint(b, uint64(m.Topic), 10)
	if m.Partition != AllPartitions {
		b = strconv.AppendInt(append(b, '/'), int64(m.Partition), 10)
	}
	for i, o := range m.Offsets {
		b = strconv.AppendInt(append(b, ":,"[min(i, 1)]), int64(o), 10)
	}
	return b, nil
}

// String returns the text of m.
func (m Bookmark) String() string {
	b, _ := m.AppendText(nil) // AppendText never returns an error
	return string(b)
}

// Advance moves m past a record of the topic.
func (m *Bookmark) Advance(r Record) {
	i := 0
	if m.Partition == AllPartitions {
		i = int(r.Partition)
	}
	for len(m.Offsets) <= i {
		m.Offsets = append(m.Offsets, 0) // a partition that was added to the topic is read from offset 0
	}
	m.Offsets[i] = r.Offset + 1
}
