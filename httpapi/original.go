package httpapi

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/simple-event-broker/seb"
)

// The endpoints of the original Seb (github.com/micvbang/simple-event-broker), so
// that programs written for it run unchanged. They append to and read from partition 0.
//
//	POST /records?topic-name=                                            append
//	GET  /records?topic-name=&offset=&max-records=&max-bytes=&timeout=   read, or wait
//	GET  /record?topic-name=&offset=                                     one record
//	GET  /topic?topic-name=                                              end of a topic
//
// Records are multipart/form-data: a field "sizes", a JSON list of their sizes in
// bytes, then a field "records", their values back to back.
//
// The query is read as the original reads it: if a parameter occurs twice, the first counts;
// unknown parameters are ignored; and an optional parameter with an invalid value has its
// default. The rest of this package refuses such queries.
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

// originalText returns p as plain text, in the original's words if its clients may
// match them.
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

// originalStatus returns the status of p for the original's clients. They take every
// status but 401, 404 and 413 for success, so a caller without access must get 401.
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

// originalQuery is a query on one of the original's paths.
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

// offset returns the offset, which must be given. An offset that is larger than any partition
// can have is returned as the largest possible one.
func (q originalQuery) offset() (seb.Offset, error) {
	s := q.Get("offset")
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, invalid("add offset=N; the first record has offset 0", "the query's offset is %q, not a number from 0 on", s)
	}
	return seb.Offset(min(n, 1<<63-1)), nil
}

// count returns the parameter name as a number; 0 if it is missing or invalid.
func (q originalQuery) count(name string) int64 {
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// duration returns the parameter name as a duration, hi at most. If the parameter is missing or
// invalid, duration returns the value of otherwise.
func (q originalQuery) duration(name string, otherwise, hi time.Duration) time.Duration {
	d, err := time.ParseDuration(q.Get(name))
	if err != nil {
		return otherwise
	}
	return min(max(d, 0), hi)
}

// originalTopic answers with the end of the topic's partition 0, and with the time of the last batch
// in it. If the partition has no batches, the time is in the year 1.
func (h *Handler) originalTopic(w *response, r *http.Request) error {
	name, err := newOriginalQuery(r).topic()
	if err != nil {
		return err
	}
	t, err := h.broker.Topic(r.Context(), name)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		NextOffset     seb.Offset `json:"next_offset"`
		LatestCommitAt time.Time  `json:"latest_commit_at"`
	}{t.Partitions[0].End, t.Partitions[0].LastTimestamp.UTC()})
}
