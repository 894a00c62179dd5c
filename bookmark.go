package seb

import (
	"strconv"
	"strings"
)

// AllPartitions stands for every partition of a topic, also those that are added later.
const AllPartitions int32 = -1

// FollowPartitionsMax is how many partitions one [Follower] may read, which
// bounds what a [Bookmark] takes, as text too. A consumer's may read more: it has no Bookmark.
const FollowPartitionsMax = 1024

// Bookmark tells where a [Follower] stands, so that another one, of any broker of
// the bucket and at any later time, goes on exactly there.
//
// Its text is CLUSTER.TOPIC:OFFSET,OFFSET,... for all partitions, from 0 on, and
// CLUSTER.TOPIC/PARTITION:OFFSET for one: cluster as eight hexadecimal digits, all
// else as decimal numbers, such as 1f0c6a3e.7:41,0,12 and 1f0c6a3e.7/2:12.
type Bookmark struct {
	// Cluster is the first eight digits of the cluster's id, Topic the topic's id:
	// together they tell a topic from one that is created later under its name.
	Cluster string
	Topic   uint64
	// Partition is the one that is followed, or AllPartitions.
	Partition int32
	// Offsets are the next ones to read, by partition from 0; those that are
	// missing begin at 0. Where one partition is followed it is that one's.
	Offsets []Offset
}

const (
	clusterDigits    = 8
	bookmarkBytesMax = 32 << 10
)

// ParseBookmark reads what [Bookmark.String] returns.
func ParseBookmark(s string) (_ Bookmark, err error) {
	defer reads(&err)
	head, offsets, _ := strings.Cut(s, ":")
	cluster, topic, _ := strings.Cut(head, ".")
	topic, partition, one := strings.Cut(topic, "/")
	m := Bookmark{Cluster: cluster, Partition: AllPartitions}
	id, err := strconv.ParseUint(topic, 10, 64)
	ok := len(s) <= bookmarkBytesMax && len(cluster) == clusterDigits && strings.Trim(cluster, "0123456789abcdef") == "" &&
		err == nil && strings.Count(offsets, ",") < FollowPartitionsMax
	m.Topic = id
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

// AppendText implements [encoding.TextAppender]. It never returns an error.
func (m Bookmark) AppendText(b []byte) ([]byte, error) {
	b = append(append(b, m.Cluster...), '.')
	b = strconv.AppendUint(b, m.Topic, 10)
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
	b, _ := m.AppendText(nil) // it has no error to return
	return string(b)
}

// Advance moves m behind a record of its topic.
func (m *Bookmark) Advance(r Record) {
	i := 0
	if m.Partition == AllPartitions {
		i = int(r.Partition)
	}
	for len(m.Offsets) <= i {
		m.Offsets = append(m.Offsets, 0) // partitions that were added
	}
	m.Offsets[i] = r.Offset + 1
}
