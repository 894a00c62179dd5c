package httpapi

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/simple-event-broker/seb"
)

// originalPaths are the paths of the original Seb (github.com/micvbang/simple-event-broker). Programs written
// for the original run unchanged. Requests to these paths append to partition 0, and read from partition 0.
//
//	POST /records?topic-name=                                            append
//	GET  /records?topic-name=&offset=&max-records=&max-bytes=&timeout=   read, or wait
//	GET  /record?topic-name=&offset=                                     one record
//	GET  /topic?topic-name=                                              end of a topic
//
// Records are multipart/form-data. The first field, "sizes", is a JSON list of the records' sizes in bytes.
// The second field, "records", has the values of the records, back to back.
//
// The query is read as the original reads it. If a parameter occurs twice, the second is ignored, and so are
// unknown parameters. If an optional parameter has an invalid value, the parameter's default is
// used. The rest of this package refuses such queries.
var originalPaths = []string{"/records", "/record", "/topic"}

const (
	typeForm = "multipart/form-data"

	sizesField   = "sizes"
	recordsField = "records"
)

func (h *Handler) originalRoutes() {
	reads := need{declared: true, scope: seb.ScopeRead, topic: originalTopicOf}
	writes := need{declared: true, scope: seb.ScopeWrite, topic: originalTopicOf}
	h.route("/records", methods{"GET": {reads, h.originalRead}, "POST": {writes, h.originalAppend}})
	h.route("/record", methods{"GET": {reads, h.originalReadOne}})
	h.route("/topic", methods{"GET": {reads, h.originalTopic}})
}

func originalTopicOf(r *http.Request) string { return newOriginalQuery(r).Get("topic-name") }

// originalText returns p as plain text. Clients of the original may compare an error's text with two texts that the
// original sends. For these two errors, originalText returns exactly those texts.
func originalText(p problem) string {
	if p.Code == seb.CodeTopicNotFound {
		return "topic not found"
	}
	if p.Code == seb.CodeOffsetOutOfRange {
		return "offset out of bounds"
	}
	text := p.Detail
	if p.Hint != "" {
		text += "; " + p.Hint
	}
	if p.Outcome != "" {
		text += " (outcome: " + string(p.Outcome) + ")"
	}
	return text
}

// originalStatus returns the status of p for clients of the original. These clients treat every
// status except 401, 404 and 413 as success, so a caller without access must get 401.
func originalStatus(p problem) int {
	switch p.Code {
	case seb.CodeOffsetOutOfRange:
		return http.StatusNotFound
	case seb.CodeForbidden, codeCrossOrigin, codeBrokerUnknown, codeTooManyAttempts:
		return http.StatusUnauthorized
	default:
		return p.Status
	}
}

// originalQuery is a query on one of the paths in originalPaths.
type originalQuery struct{ url.Values }

func newOriginalQuery(r *http.Request) originalQuery { return originalQuery{r.URL.Query()} }

// topic returns the topic's name, which must be given.
func (q originalQuery) topic() (string, error) {
	name := q.Get("topic-name")
	if name == "" {
		return "", invalid("add ?topic-name=NAME", "the query has no topic-name")
	}
	return name, seb.CheckTopicName(name)
}

// offset returns the offset, which must be given. If the offset is larger than any partition can have, it
// returns the largest possible offset.
func (q originalQuery) offset() (seb.Offset, error) {
	s := q.Get("offset")
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, invalid("add offset=N; the first record has offset 0", "the query's offset is %q, not a number from 0 on", s)
	}
	return seb.Offset(min(n, 1<<63-1)), nil
}

// count returns the value of a parameter as a number, or 0 if the parameter is missing or invalid.
func (q originalQuery) count(name string) int64 {
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// duration returns the value of a parameter as a duration, at most hi. If the parameter is missing or
// invalid, duration returns the default that the caller passes as otherwise.
func (q originalQuery) duration(name string, otherwise, hi time.Duration) time.Duration {
	d, err := time.ParseDuration(q.Get(name))
	if err != nil {
		return otherwise
	}
	return min(max(d, 0), hi)
}

// originalTopic answers with the end offset of the topic's partition 0, and with the time of the last batch
// in that partition. If the partition has no batches, the time is in the year 1.
func (h *Handler) originalTopic(w *response, r *http.Request) error {
	name, err := newOriginalQuery(r).topic()
	if err != nil {
		return err
	}
	release, err := h.reserveFor(w)(r.Context(), chunkReserved+int64(h.broker.PartitionCount(name))*seb.PartitionBytes)
	if err != nil {
		return err
	}
	defer release()
	t, err := h.broker.Topic(r.Context(), name)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		NextOffset     seb.Offset `json:"next_offset"`
		LatestCommitAt time.Time  `json:"latest_commit_at"`
	}{t.Partitions[0].End, t.Partitions[0].LastTimestamp.UTC()})
}
