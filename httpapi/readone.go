package httpapi

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/httprecord"
)

// readRecord answers with one record's value, unchanged. A key that an HTTP header can't carry
// is in Seb-Key-Base64. Record headers that HTTP can't carry are left out, and Seb-Omitted-Headers says how
// many these are. The answers of [Handler.readRecords] in JSON have all record headers.
func (h *Handler) readRecord(w *response, r *http.Request) error {
	q, err := parseQuery(r, "partition")
	if err != nil {
		return err
	}
	partition, err := q.partition(0)
	if err != nil {
		return err
	}
	offset, err := strconv.ParseInt(r.PathValue("offset"), 10, 64)
	if err != nil || offset < 0 {
		return invalid("write the offset as a number in the path, such as /v1/topics/TOPIC/records/41; for the last record, read /v1/topics/TOPIC/records?offset=-1", "invalid offset %q: it must be a number, such as 41", r.PathValue("offset"))
	}
	// A cache may ask whether its copy is still valid, so the answer must come from a recent state of
	// the log. The call of TopicID makes the broker sync if the last sync is too old.
	topic := r.PathValue("topic")
	if _, err := h.broker.TopicID(r.Context(), topic); err != nil {
		return err
	}
	found, rec, release, err := h.recordAt(w, r, topic, partition, seb.Offset(offset))
	if err != nil {
		return err
	}
	defer release()
	tag := fmt.Sprintf(`"%s-%d-%d"`, found.TopicTag, partition, offset)
	w.Header().Set(topicIDHeader, found.TopicTag)
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "private, no-cache")
	if noneMatch(r.Header.Values("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	noPage(w.Header())
	headers := headersOf(rec)
	httprecord.Describe(w.Header(), rec.Key, rec.Timestamp, rec.LogTime, headers)
	return writeBody(w, http.StatusOK, httprecord.MediaType(headers, "application/octet-stream"), rec.Value)
}

// recordAt returns the record at an offset. Its memory is reserved until release is called.
func (h *Handler) recordAt(w *response, r *http.Request, topic string, partition int32, offset seb.Offset) (found seb.Fetched, rec *seb.Record, release func(), err error) {
	found, release, err = h.fetchNow(r.Context(), w, topic, readSpec{partition: partition, from: seb.At(offset), limit: 1, maxBytes: 1})
	if err != nil {
		return found, nil, nil, err
	}
	if len(found.Records) > 0 && found.Records[0].Offset == offset {
		return found, &found.Records[0], release, nil
	}
	release()
	missing := &seb.Error{
		Code: seb.CodeOffsetOutOfRange, Start: found.Start, End: found.End,
		Detail: fmt.Sprintf("offset %d of partition %d of topic %q has no record yet", offset, partition, topic),
		Hint:   "try again later, or read /v1/topics/" + topic + "/records with wait",
	}
	if found.Next > offset {
		missing.Detail = fmt.Sprintf("partition %d of topic %q has records before and after offset %d, but none at this offset", partition, topic, offset)
		missing.Hint = fmt.Sprintf("read /v1/topics/%s/records?offset=%d: it goes on with the next record", topic, offset)
	}
	return found, nil, nil, missing
}

// noneMatch tells whether the values of If-None-Match contain tag or "*".
func noneMatch(etags []string, tag string) bool {
	for e := range strings.SplitSeq(strings.Join(etags, ","), ",") {
		if e = strings.TrimSpace(e); e == "*" || strings.TrimPrefix(e, "W/") == tag {
			return true
		}
	}
	return false
}

// headersOf returns a record's headers by name and value.
func headersOf(rec *seb.Record) httprecord.Headers {
	return func(yield func(string, []byte) bool) {
		for _, h := range rec.Headers {
			if !yield(h.Name, h.Value) {
				return
			}
		}
	}
}

// noPage keeps a browser from running the value of a record, which any producer may have written, as a page
// of the broker's origin.
func noPage(header http.Header) {
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox")
}
