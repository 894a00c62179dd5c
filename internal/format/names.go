package format

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Seq is the position of a commit in the log, dense from 1; 0 is before the first.
type Seq uint64

// Hash is the SHA-256 of a commit's prologue and head. The zero Hash precedes slot 1.
type Hash [32]byte

// ClusterID names a bucket's log; every object has it.
type ClusterID [16]byte

// Nonce makes the bytes of every claim unique, so that its writer knows its own.
type Nonce [16]byte

// String returns 32 hex digits.
func (c ClusterID) String() string { return hex.EncodeToString(c[:]) }

// String returns 64 hex digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Tag returns the first 64 bits of the nonce, which tell a commit's object from
// any other that may have had the same key.
func (n Nonce) Tag() uint64 { return le.Uint64(n[:]) }

// The keys of a bucket, below its prefix.
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

// CheckpointKey returns the key of the checkpoint as of s.
func CheckpointKey(s Seq) string { return seqKey(CheckpointPrefix, s) }

func seqKey(prefix string, s Seq) string {
	return fmt.Sprintf("%s%0*d", prefix, seqDigits, uint64(s))
}

// AfterKey returns the key after which a List begins with s: the one of the
// slot before it.
func AfterKey(prefix string, s Seq) string {
	if s == 0 {
		return ""
	}
	return seqKey(prefix, s-1)
}

// ParseSeqKey returns the slot of a key of the exact form prefix + 20 digits.
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
	Seq  Seq    // the slot that its writer had applied when the upload began
	ID   uint64 // random
	Size uint32 // bytes of the whole object
}

// Key returns the data object's key.
func (d DataRef) Key() string {
	return fmt.Sprintf("%s%0*d-%016x", DataPrefix, seqDigits, uint64(d.Seq), d.ID)
}

// ParseDataKey returns what a key of the exact form of [DataRef.Key] names; Size
// is 0.
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
