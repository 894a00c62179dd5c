package format

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Seq is the number of a slot: the position of a commit in the log. The first commit has 1, and there
// are no gaps. 0 is the position before the first commit.
type Seq uint64

// TopicID identifies a topic. No other topic of the log ever has the same id, even after the topic is
// deleted. 0 identifies no topic.
type TopicID uint64

// QueueID identifies a queue. No other queue of the log ever has the same id, and 0 identifies no queue.
type QueueID uint64

// ConsumerID identifies a consumer. No other consumer of the log ever has the same id, and 0
// identifies no consumer.
type ConsumerID uint64

// KeyID identifies an API key. No other key of the log ever has the same id, and 0 identifies no key.
type KeyID uint64

// Epoch counts the owners of a queue: it rises with each new owner.
type Epoch uint64

// Partition is the number of a partition in its topic, from 0.
type Partition int32

// Offset is the position of a record in its partition: from 0, without gaps.
type Offset int64

// Hash is the SHA-256 of a commit's prologue (the first 32 bytes of the object) and head. Each commit has
// the Hash of the previous commit; the commit of slot 1 has the zero Hash instead.
type Hash [32]byte

// ClusterID identifies the log of a bucket. Every object of the bucket contains the ClusterID.
type ClusterID [16]byte

// Nonce is a random number in each commit. It makes the bytes of every commit unique, so that a broker
// recognizes its own commits.
type Nonce [16]byte

// String returns 32 hex digits.
func (c ClusterID) String() string { return hex.EncodeToString(c[:]) }

// String returns 64 hex digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Tag returns the first 64 bits of the nonce. They distinguish a commit's object from all other objects that
// have ever had the same key.
func (n Nonce) Tag() uint64 { return le.Uint64(n[:]) }

// The keys in a bucket, without the bucket's prefix.
const (
	ClusterKey       = "seb.json"
	LogPrefix        = "log/"
	DataPrefix       = "data/"
	CheckpointPrefix = "checkpoint/"
	ProbePrefix      = "probe/"
)

const seqDigits = 20

// LogKey returns the key of a slot's object.
func LogKey(s Seq) string { return seqKey(LogPrefix, s) }

// CheckpointKey returns the key of the checkpoint that covers the slots up to s.
func CheckpointKey(s Seq) string { return seqKey(CheckpointPrefix, s) }

func seqKey(prefix string, s Seq) string {
	return fmt.Sprintf("%s%0*d", prefix, seqDigits, uint64(s))
}

// AfterKey returns the key after which a List must start to show slot s and later slots: the key of slot
// s-1, or "" if s is 0.
func AfterKey(prefix string, s Seq) string {
	if s == 0 {
		return ""
	}
	return seqKey(prefix, s-1)
}

// ParseSeqKey returns the slot of a key. It returns false unless the key is prefix and then 20 digits.
func ParseSeqKey(prefix, key string) (Seq, bool) {
	digits, ok := strings.CutPrefix(key, prefix)
	if !ok || len(digits) != seqDigits {
		return 0, false
	}
	for _, d := range []byte(digits) {
		if d < '0' || d > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return Seq(n), err == nil
}

// DataRef names a data object.
type DataRef struct {
	Seq  Seq    // the last slot that the uploading broker had applied when the upload began
	ID   uint64 // random
	Size uint32 // bytes of the whole object
}

// Key returns the data object's key.
func (d DataRef) Key() string {
	return fmt.Sprintf("%s%0*d-%016x", DataPrefix, seqDigits, uint64(d.Seq), d.ID)
}

// ParseDataKey is the inverse of [DataRef.Key]; the result has Size 0. It returns false if no data
// object can have the key.
func ParseDataKey(key string) (DataRef, bool) {
	seq, id, ok := strings.Cut(key, "-")
	if !ok {
		return DataRef{}, false
	}
	s, ok := ParseSeqKey(DataPrefix, seq)
	n, err := strconv.ParseUint(id, 16, 64)
	d := DataRef{Seq: s, ID: n}
	return d, ok && err == nil && d.Key() == key
}
