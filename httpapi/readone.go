package httpapi

import (
	"encoding/base64"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/simple-event-broker/seb"
)

// readRecord answers with one record's value as it is. What HTTP headers can't
// carry is not lost without a word: such a key comes as Seb-Key-Base64, and
// Seb-Omitted-Headers counts headers that only the JSON forms can show.
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
		return invalid("", "%q is no offset, such as 41", r.PathValue("offset"))
	}
	// A cache that asks whether its copy still stands is to be told what the log
	// says now: describing the topic makes the broker look.
	topic, err := h.broker.Topic(r.Context(), r.PathValue("topic"))
	if err != nil {
		return err
	}
	found, release, err := h.fetchNow(r.Context(), topic.Name, readSpec{
		partition: partition, from: seb.At(seb.Offset(offset)), limit: 1, maxBytes: 1,
	})
	if err != nil {
		return err
	}
	defer release()
	if len(found.Records) == 0 {
		return &seb.Error{
			Code: seb.CodeOffsetOutOfRange, Start: found.Start, End: found.End,
			Detail: fmt.Sprintf("offset %d of partition %d has no record yet", offset, partition),
			Hint:   "read it with wait from /v1/topics/" + topic.Name + "/records, or later",
		}
	}
	tag := fmt.Sprintf(`"%s-%d-%d"`, found.TopicTag, partition, offset)
	w.Header().Set(topicIDHeader, found.TopicTag)
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "private, no-cache")
	if noneMatch(r.Header.Values("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	rec := &found.Records[0]
	describe(w.Header(), rec)
	return writeBody(w, http.StatusOK, contentTypeOf(rec), rec.Value)
}

// noneMatch tells whether a cache that holds what etags say has tag's.
func noneMatch(etags []string, tag string) bool {
	for e := range strings.SplitSeq(strings.Join(etags, ","), ",") {
		if e = strings.TrimSpace(e); e == "*" || strings.TrimPrefix(e, "W/") == tag {
			return true
		}
	}
	return false
}

// describe sets the headers that say what a raw value can't.
func describe(header http.Header, rec *seb.Record) {
	noPage(header)
	header.Set(timestampHeader, rec.Timestamp.UTC().Format(timestampLayout))
	switch {
	case rec.Key == nil:
	case fitsHeader(rec.Key):
		header.Set(keyHeader, string(rec.Key))
	default:
		header.Set(keyHeader+"-Base64", base64.StdEncoding.EncodeToString(rec.Key))
	}
	omitted := 0
	for _, h := range rec.Headers {
		if !isToken(h.Name) || !fitsHeader(h.Value) {
			omitted++
			continue
		}
		header.Add(headerPrefix+h.Name, string(h.Value))
	}
	if omitted > 0 {
		header.Set("Seb-Omitted-Headers", strconv.Itoa(omitted))
	}
}

// noPage keeps browsers from taking a value, which is anyone's, for a page of
// this origin.
func noPage(header http.Header) {
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox")
}

func contentTypeOf(rec *seb.Record) string {
	for _, h := range rec.Headers {
		if strings.EqualFold(h.Name, contentTypeHeader) && fitsHeader(h.Value) {
			if _, _, err := mime.ParseMediaType(string(h.Value)); err == nil {
				return string(h.Value)
			}
		}
	}
	return "application/octet-stream"
}

// fitsHeader tells whether v survives as the value of an HTTP header: text
// without control characters, and without spaces at its ends.
func fitsHeader(v []byte) bool {
	if len(v) > 0 && (v[0] == ' ' || v[len(v)-1] == ' ') || !utf8.Valid(v) {
		return false
	}
	for _, c := range v {
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

// isToken tells whether s may be part of an HTTP header's name (RFC 9110, 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		alphanumeric := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}
