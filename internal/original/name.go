package original

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

const (
	batchSuffix   = ".record_batch"
	offsetsPrefix = "offsets_"
	offsetsSuffix = ".offsets"
)

// Name returns the name of the file with the topic's batch whose first record has the given offset.
func Name(topic string, offset int64) string {
	return fmt.Sprintf("%s/%012d%s", topic, offset, batchSuffix)
}

// ParseName parses the name of a file, relative to the directory or prefix in which the original
// Seb stores its files. batch is false for files that hold no records. If a name has the suffix of
// a batch but is otherwise invalid, ParseName returns an error.
func ParseName(name string) (topic string, offset int64, batch bool, err error) {
	if !strings.HasSuffix(name, batchSuffix) {
		return "", 0, false, nil
	}
	topic, base := path.Split(name)
	topic = strings.TrimSuffix(topic, "/")
	offset, err = strconv.ParseInt(strings.TrimSuffix(base, batchSuffix), 10, 64)
	if topic == "" || err != nil || offset < 0 || Name(topic, offset) != name {
		return "", 0, false, fmt.Errorf("%q is not the name of a batch: a name has the topic, a slash, the first offset as 12 digits, and %s", name, batchSuffix)
	}
	return topic, offset, true, nil
}

// IsOffsets reports whether name is the name of a list of offsets. The original Seb writes such a
// file so that it need not list the batches.
func IsOffsets(name string) bool {
	base := path.Base(name)
	return strings.HasPrefix(base, offsetsPrefix) && strings.HasSuffix(base, offsetsSuffix)
}
