package dispatch

import (
	"errors"
	"strconv"
	"strings"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
)

// Token names a delivery of a queue's record. A worker gets the token as text, and sends the text back
// with the answer.
type Token struct {
	Cluster string // a part of the log's id
	Queue   format.QueueID
	leases.Delivery
}

const tokenBytesMax = 100

// String returns the token as text: CLUSTER.QUEUE/PARTITION:OFFSET.ATTEMPT
func (t Token) String() string {
	b := make([]byte, 0, tokenBytesMax)
	b = strconv.AppendUint(append(append(b, t.Cluster...), '.'), uint64(t.Queue), 10)
	b = strconv.AppendInt(append(b, '/'), int64(t.Partition), 10)
	b = strconv.AppendInt(append(b, ':'), int64(t.Offset), 10)
	b = strconv.AppendUint(append(b, '.'), uint64(t.Attempt), 10)
	return string(b)
}

// ParseToken parses the text that [Token.String] returns. It refuses any other text, even if the values
// are valid (such as an offset with leading zeros). It does not check the cluster.
func ParseToken(s string) (t Token, ok bool) {
	cluster, rest, _ := strings.Cut(s, ".")
	queue, rest, _ := strings.Cut(rest, "/")
	partition, rest, _ := strings.Cut(rest, ":")
	offset, attempt, _ := strings.Cut(rest, ".")
	q, err1 := strconv.ParseUint(queue, 10, 64)
	p, err2 := strconv.ParseUint(partition, 10, 31)
	o, err3 := strconv.ParseUint(offset, 10, 63)
	n, err4 := strconv.ParseUint(attempt, 10, 32)
	t = Token{cluster, format.QueueID(q), leases.Delivery{Place: leases.Place{Partition: format.Partition(p), Offset: format.Offset(o)}, Attempt: uint32(n)}}
	if len(s) > tokenBytesMax || errors.Join(err1, err2, err3, err4) != nil || n == 0 || t.String() != s {
		return Token{}, false
	}
	return t, true
}
