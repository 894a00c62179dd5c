package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"mime"
	"net/http"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/httprecord"
)

// Media types of bodies with several records.
const (
	typeNDJSON  = "application/x-ndjson"
	typeRecords = "application/vnd.seb.records+json"
	typeBatch   = "application/vnd.seb.batch"
	typeJSON    = "application/json"
)

const (
	keyHeader       = httprecord.KeyHeader
	timestampHeader = httprecord.TimestampHeader
	headerPrefix    = httprecord.HeaderPrefix
	hintHeader      = "Seb-Hint"
	delayHeader     = "Seb-Delay"
	deliverAtHeader = "Seb-Deliver-At"
)

// appendRecords hands the records to the broker and frees the request's memory before
// it waits for the commit: an append spends most of its time waiting.
//
// If the client seems to have left, appendRecords withdraws the append, if that is still possible. Without
// this, a client that gives up and tries again while the store is slow would append its records once per
// attempt. A client that has only shut down its sending side also seems to have left, but still gets an answer.
func (h *Handler) appendRecords(w *response, _ *http.Request) error {
	r := w.clientRequest()
	spec, err := parseAppend(r)
	if err != nil {
		return err
	}
	return h.append(w, r, spec)
}

// append appends what the body has, and answers.
func (h *Handler) append(w *response, r *http.Request, spec *appendSpec) error {
	pending, err := h.submit(w, r, spec)
	if err != nil {
		return err
	}
	done, err := pending.Wait(r.Context())
	if err != nil {
		return err
	}
	if done.Replayed {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	if spec.hint != "" {
		w.Header().Set(hintHeader, spec.hint)
	}
	return writeBody(w, http.StatusCreated, typeJSON, append(appendedJSON(nil, done), '\n'))
}

// submit reads the records from the body, and starts their append. The broker copies the records.
func (h *Handler) submit(w *response, r *http.Request, spec *appendSpec) (*seb.Pending, error) {
	body, err := h.readBody(w, r, h.bodyLimits(spec))
	if err != nil {
		return nil, err
	}
	defer body.free()
	if w.bytesIn == 0 {
		if err := spec.checkEmpty(r); err != nil {
			return nil, err
		}
	}
	records, err := h.records(r.Context(), spec, body.data)
	if err != nil {
		return nil, err
	}
	defer records.free()
	if len(records.list) == 0 {
		return nil, invalid("send at least one record; as application/x-ndjson, an empty line is an empty record", "the request has no records")
	}
	if err := h.reserveRanges(r.Context(), w, h.rangesMax(spec.topic, len(records.list))); err != nil {
		return nil, err
	}
	opts := spec.conditions
	switch {
	case spec.partitions != nil:
		opts = append(opts, seb.ToPartitions(spec.partitions))
	case spec.partition >= 0:
		opts = append(opts, seb.ToPartition(spec.partition))
	}
	return h.broker.AppendAsync(r.Context(), spec.topic, records.list, opts...)
}

func (h *Handler) bodyLimits(spec *appendSpec) bodyLimits {
	limits := bodyLimits{bytes: h.limits.RequestBytes}
	switch {
	case spec.mediaType == typeNDJSON:
		limits.line = h.limits.RecordBytes
	case spec.oneValue():
		limits.value = h.limits.RecordBytes
	case spec.mediaType != typeBatch:
		limits.bytes /= 2 // the other half is for the list of records, which grows, and for decoded base64
	}
	return limits
}

// records parses body as the request's media type says. The value of a record is a slice of body, unless the
// value had to be decoded.
func (h *Handler) records(ctx context.Context, spec *appendSpec, body []byte) (*recordList, error) {
	l, err := h.parse(ctx, spec, body)
	if err == nil {
		l.parsed()
	}
	return l, err
}

func (h *Handler) parse(ctx context.Context, spec *appendSpec, body []byte) (*recordList, error) {
	if spec.events {
		return h.postedEventsOf(ctx, spec, body)
	}
	switch spec.mediaType {
	case typeNDJSON:
		spec.hint = fieldsHint(body)
		return h.linesOf(ctx, spec, body)
	case typeBatch:
		return h.batchOf(ctx, spec, body)
	case typeRecords:
		return h.recordsJSONOf(ctx, spec, body)
	case typeEvent, typeEventBatch:
		return h.eventsOf(ctx, spec, body)
	default:
		l, err := h.newRecordList(ctx, 1)
		if err != nil {
			return nil, err
		}
		l.list = append(l.list, spec.record(body))
		spec.hint = severalHint(spec.mediaType, body)
		return l, nil
	}
}

// beginsRecords matches a body that was probably meant to have the type typeRecords.
var beginsRecords = regexp.MustCompile(`^\s*\{\s*"records"\s*:\s*\[`)

// severalHint returns what to send instead if the value of one record was probably meant as several records;
// otherwise "".
func severalHint(mediaType string, body []byte) string {
	switch mediaType {
	case "application/jsonl", "application/ndjson", "application/json-lines", "application/jsonlines", "text/x-ndjson":
		return "the body was appended as one record; to append each of its lines as a record, send it with Content-Type: " + typeNDJSON
	}
	switch {
	case beginsRecords.Match(body):
		return "the body was appended as one record; to append each of its records, send it with Content-Type: " + typeRecords
	case mediaType == typeJSON && isArray(body):
		return `the body was appended as one record; to append each element of the array as a record, send {"records":[{"value_json":ELEMENT}, ...]} with Content-Type: ` + typeRecords
	}
	return ""
}

// beginsFields matches a line that was probably meant as a record with its key and value, as in responses to reads.
var beginsFields = regexp.MustCompile(`^\s*\{\s*"(partition|offset|timestamp|key|headers|value|value_json)"\s*:`)

// fieldsHint returns what to send instead if the values of records, one in each line, were probably meant as records
// with fields; otherwise "". It looks at the first line.
func fieldsHint(body []byte) string {
	line, _, _ := bytes.Cut(body, []byte{'\n'})
	if !beginsFields.Match(line) || !bytes.Contains(line, []byte(`"value`)) {
		return ""
	}
	return `each line was appended as a value; to append records with a key and a value, send {"records":[{"key":"...","value":"..."}, ...]} with Content-Type: ` + typeRecords
}

// isArray tells whether text begins and ends like a JSON array.
func isArray(text []byte) bool {
	text = bytes.TrimSpace(text)
	return len(text) > 1 && text[0] == '[' && text[len(text)-1] == ']'
}

// oneValue tells whether the body is the value of one record.
func (s *appendSpec) oneValue() bool {
	switch s.mediaType {
	case typeNDJSON, typeBatch, typeRecords, typeEvent, typeEventBatch:
		return false
	default:
		return !s.events
	}
}

// checkEmpty refuses a request without a body that was probably sent by mistake, such as curl -X POST without
// data. To append an empty value on purpose, a client sends Content-Length: 0, and a Content-Type or a key. An
// event with its attributes in headers is also accepted, since an event need not have data.
func (s *appendSpec) checkEmpty(r *http.Request) error {
	meant := r.Header.Get("Content-Length") != "" && (r.Header.Get("Content-Type") != "" || s.key != nil)
	if meant || !s.oneValue() || isBinaryEvent(r.Header) {
		return nil
	}
	return invalid("send the value as the body; to append an empty value, send Content-Length: 0 with a Content-Type or a key", "the request has no body")
}

// appendSpec holds the query and the headers of an append.
type appendSpec struct {
	topic     string
	mediaType string
	events    bool  // the body has events, whatever mediaType says: see postEvents
	partition int32 // -1: the broker chooses by the key, or round robin if there is no key

	// Properties of every record of the request.
	key       []byte // nil if the records have no key
	timestamp time.Time
	headers   []seb.Header

	conditions []seb.AppendOption // if_offset, Idempotency-Key and the delay
	delayed    bool               // a delay, or a time to deliver at, was given

	// partitions has one element per record if any record names a partition, else it is nil.
	partitions []int32

	hint string // what to send instead if the body was probably meant otherwise; else ""
}

// record returns a record with value and the properties that all records of the request share.
func (s *appendSpec) record(value []byte) seb.Record {
	return seb.Record{Key: s.key, Value: value, Headers: s.headers, Timestamp: s.timestamp}
}

// parseAppend reads the query and the headers of an append.
func parseAppend(r *http.Request) (*appendSpec, error) {
	q, err := parseParameters(r, "partition", "key", "if_offset")
	if err != nil {
		return nil, err
	}
	s := &appendSpec{topic: r.PathValue("topic")}
	if _, given := q["if_offset"]; given {
		end, err := q.count("if_offset", 0, math.MaxInt64, 0)
		if err != nil {
			return nil, err
		}
		s.conditions = append(s.conditions, seb.IfOffset(seb.Offset(end)))
	}
	if s.partition, err = q.partition(-1); err != nil {
		return nil, err
	}
	if s.mediaType, err = mediaType(r.Header); err != nil {
		return nil, err
	}
	if key, given := q["key"]; given {
		s.key = []byte(key)
	}
	if err := s.parseHeaders(r.Header); err != nil {
		return nil, err
	}
	if s.mediaType == typeRecords && (s.key != nil || s.headers != nil || !s.timestamp.IsZero()) {
		return nil, invalid("give each record in the body its own key, timestamp or headers", "a body of type %s can't be combined with a key, timestamp or header for all records", typeRecords)
	}
	return s, nil
}

// mediaType returns the lower-case media type of a body, without parameters. It returns "" if the body is the
// data of a CloudEvent whose attributes are HTTP headers.
func mediaType(header http.Header) (string, error) {
	t, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	t = strings.ToLower(strings.TrimSpace(t))
	switch {
	case t == typeEvent || t == typeEventBatch:
		return t, nil
	case strings.HasPrefix(t, typeAnyEvent):
		return "", &seb.Error{
			Code: codeUnsupportedMediaType, Outcome: seb.NotCommitted,
			Detail: fmt.Sprintf("unknown CloudEvents format %q", t),
			Hint:   "send " + typeEvent + ", " + typeEventBatch + ", or the data with ce- headers",
		}
	case isBinaryEvent(header):
		return "", nil
	}
	return t, nil
}

// parseHeaders reads Idempotency-Key, the Seb- headers, and the attributes of a CloudEvent. It refuses an
// unknown Seb- header: otherwise the client might believe that the header had an effect.
func (s *appendSpec) parseHeaders(header http.Header) error {
	key, err := idempotencyKey(header)
	if err != nil {
		return err
	}
	s.conditions = append(s.conditions, key...)
	for name, values := range header {
		if !strings.HasPrefix(name, "Seb-") || name == requestIDHeader {
			continue
		}
		recordHeader, isRecordHeader := strings.CutPrefix(name, headerPrefix)
		switch {
		case isRecordHeader && recordHeader != "":
			for _, v := range values {
				s.headers = append(s.headers, seb.Header{Name: strings.ToLower(recordHeader), Value: []byte(v)})
			}
			continue
		case len(values) > 1:
			return invalid("give it once", "the header %s is given %d times", name, len(values))
		}
		switch name {
		case keyHeader:
			if s.key != nil {
				return invalid("leave one of them out", "the key is given both in the query and in the header %s", keyHeader)
			}
			s.key = []byte(values[0])
		case timestampHeader:
			t, err := parseTimestamp(values[0])
			if err != nil {
				return err
			}
			s.timestamp = t
		case delayHeader, deliverAtHeader:
			if err := s.parseDelay(name, values[0]); err != nil {
				return err
			}
		default:
			return invalid("known headers are "+strings.Join([]string{keyHeader, timestampHeader, delayHeader, deliverAtHeader, headerPrefix + "NAME"}, ", "), "unknown header %s", name)
		}
	}
	if s.mediaType == "" && isBinaryEvent(header) {
		if err := s.keepEvent(header); err != nil {
			return err
		}
	}
	s.keepContentType(header)
	// A map has no order. The sort is stable, so headers of the same name keep their order.
	slices.SortStableFunc(s.headers, func(a, b seb.Header) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// parseDelay reads a header that says when queues may first hand the records out.
func (s *appendSpec) parseDelay(name, value string) error {
	if s.delayed {
		return invalid("leave one of them out", "%s and %s exclude each other: both say when the records are due", delayHeader, deliverAtHeader)
	}
	s.delayed = true
	parse := dueIn
	if name == deliverAtHeader {
		parse = dueAt
	}
	opt, err := parse(name, value)
	s.conditions = append(s.conditions, opt)
	return err
}

// dueIn parses a delay; name is the header or the field that has it.
func dueIn(name, value string) (seb.AppendOption, error) {
	d, err := ParseDuration(value)
	switch {
	case err != nil:
		return nil, invalid("write a duration such as 10m or 7d, at most 366d", "invalid %s %.100q", name, value)
	case d < 0:
		return nil, invalid("leave it out to hand the records out at once", "%s is %s; it must be 0s to 366d", name, value)
	}
	return seb.Delay(d), nil
}

// dueAt parses a time when records are due; name is the header or the field that has it.
func dueAt(name, value string) (seb.AppendOption, error) {
	t, err := parseTimestamp(value)
	if err != nil {
		return nil, invalid("", "%s is %.100q; it must be RFC 3339, such as 2026-01-31T12:00:00Z, from 1970 on", name, value)
	}
	return seb.DeliverAt(t), nil
}

// idempotencyKey returns the append option for the header Idempotency-Key, or nil if the header is missing.
func idempotencyKey(header http.Header) ([]seb.AppendOption, error) {
	keys, given := header["Idempotency-Key"]
	switch {
	case !given:
		return nil, nil
	case len(keys) > 1:
		return nil, invalid("give it once", "the header Idempotency-Key is given %d times", len(keys))
	}
	return []seb.AppendOption{seb.IdempotencyKey(keys[0])}, nil
}

const contentTypeHeader = httprecord.ContentType

// keepContentType stores the Content-Type of a request with a single record in the headers of that record.
// A later read of that record alone answers with this Content-Type. The Content-Type that curl -d sends by
// default is not stored.
func (s *appendSpec) keepContentType(header http.Header) {
	switch s.mediaType {
	case "", typeNDJSON, typeBatch, typeRecords, typeEvent, typeEventBatch, "application/octet-stream", "application/x-www-form-urlencoded":
		return
	}
	given := header.Get("Content-Type")
	if _, _, err := mime.ParseMediaType(given); err != nil {
		return
	}
	for _, h := range s.headers {
		if h.Name == contentTypeHeader {
			return
		}
	}
	s.headers = append(s.headers, seb.Header{Name: contentTypeHeader, Value: []byte(textproto.TrimString(given))})
}

const (
	// rangeBytes is the memory for one range of an append: for its struct and for its JSON. A range is
	// the partition, the first offset and the number of records that an append has in one partition.
	rangeBytes = 128
	// rangesUnreserved is how many ranges an answer may have without a reservation.
	rangesUnreserved = 100
)

// rangesMax returns how many ranges an append has at most, if its records are contiguous in each partition.
func (h *Handler) rangesMax(topic string, records int) int {
	return min(records, h.broker.PartitionCount(topic))
}

// reserveRanges reserves memory for the ranges of an answer, until the answer is written. The caller calls it
// before the commit, so that an append that was committed never fails for lack of memory.
func (h *Handler) reserveRanges(ctx context.Context, w *response, ranges int) error {
	if ranges <= rangesUnreserved {
		return nil
	}
	release, err := h.broker.ReserveMore(ctx, int64(ranges)*rangeBytes)
	if err != nil {
		return err
	}
	w.release = release
	return nil
}

// appendedJSON appends a to b as JSON. The JSON has a list of ranges. If the list has only one range, the
// JSON has the partition and offset of that range a second time, outside the list.
func appendedJSON(b []byte, a seb.Appended) []byte {
	b = slices.Grow(b, 128+len(a.Topic)+64*len(a.Ranges))
	b = append(b, `{"topic":"`...)
	b = appendEscaped(b, []byte(a.Topic))
	b = append(b, `","count":`...)
	b = strconv.AppendInt(b, int64(a.Count), 10)
	if len(a.Ranges) == 1 {
		b = append(b, `,"partition":`...)
		b = strconv.AppendInt(b, int64(a.Ranges[0].Partition), 10)
		b = append(b, `,"offset":`...)
		b = strconv.AppendInt(b, int64(a.Ranges[0].Offset), 10)
	}
	b = append(b, `,"ranges":[`...)
	for i, r := range a.Ranges {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"partition":`...)
		b = strconv.AppendInt(b, int64(r.Partition), 10)
		b = append(b, `,"offset":`...)
		b = strconv.AppendInt(b, int64(r.Offset), 10)
		b = append(b, `,"count":`...)
		b = strconv.AppendInt(b, int64(r.Count), 10)
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

// partitionMax is the largest partition number that a body may name.
const partitionMax = math.MaxInt32
