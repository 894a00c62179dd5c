package httpapi

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// topicIDHeader has an id that distinguishes a topic from a topic that is created later with the same
	// name.
	topicIDHeader = "Seb-Topic-Id"

	defaultReadRecords = 1000
	defaultReadBytes   = 1 << 20
	// The limits of one answer, even if the caller asks for more. The caller continues at
	// Seb-Next-Offset.
	readRecordsMax = 64 << 10
	readBytesMax   = 8 << 20
	readWaitMax    = 5 * time.Minute
)

// topicIDForm is the form of a topic_id, such as 1f0c6a3e.7. An empty topic_id means that none was given.
var topicIDForm = regexp.MustCompile(`^([0-9a-f]{8}\.[0-9]+)?$`)

// readSpec is the query of a read.
type readSpec struct {
	partition int32
	from      seb.Position
	topicID   string // "" for any topic of that name
	limit     int
	maxBytes  int64
	wait      time.Duration
	// jsonValues says that values which are JSON are answered as JSON.
	jsonValues bool
}

// readRecords answers with the records of one fetch. It fetches all of them before it writes the first: the
// headers of the answer, which come before the body, have the next offset.
func (h *Handler) readRecords(w *response, r *http.Request) error {
	mediaType, err := negotiate(r.Header.Values("Accept"))
	if err != nil {
		return err
	}
	if mediaType == typeEvents {
		return h.followRecords(w, r)
	}
	spec, err := h.parseRead(r)
	if err == nil {
		err = spec.fits(mediaType)
	}
	if err != nil {
		return err
	}
	found, release, err := h.fetch(w, r, spec)
	if err != nil {
		return err
	}
	defer release()
	first := found.Next
	if len(found.Records) > 0 {
		first = found.Records[0].Offset
	}
	if n := untilGap(found.Records); mediaType == typeBatch && n < len(found.Records) {
		found.Next, found.Records = found.Records[n].Offset, found.Records[:n]
	}
	w.Header().Add("Vary", "Accept")
	setHeaders(w.Header(),
		"Content-Type", mediaType,
		topicIDHeader, found.TopicTag,
		"Seb-Next-Offset", strconv.FormatInt(int64(found.Next), 10),
		"Seb-Start-Offset", strconv.FormatInt(int64(found.Start), 10),
		"Seb-End-Offset", strconv.FormatInt(int64(found.End), 10))
	out := newChunks(w)
	defer out.free()
	out.jsonValues = spec.jsonValues
	switch mediaType {
	case typeBatch:
		w.Header().Set("Seb-Offset", strconv.FormatInt(int64(first), 10))
		w.Header().Set("Content-Length", strconv.FormatInt(batchBytes(found.Records), 10))
		return writeBatch(out, found.Records)
	case typeJSON:
		return writeRecordsJSON(out, found)
	default:
		return writeNDJSON(out, found.Records)
	}
}

// untilGap returns how many of the records, from the first on, have consecutive offsets. A form that has only the
// offset of its first record must end there.
func untilGap(records []seb.Record) int {
	for i := 1; i < len(records); i++ {
		if records[i].Offset != records[i-1].Offset+1 {
			return i
		}
	}
	return len(records)
}

// setHeaders sets the headers of pairs, each a name in its canonical form and its value. All values share one
// allocation, where Header.Set would take one each.
func setHeaders(header http.Header, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		header[pairs[i]] = pairs[i+1 : i+2 : i+2]
	}
}

func writeNDJSON(out *chunks, records []seb.Record) error {
	for i := range records {
		out.record(&records[i])
		out.text("\n")
	}
	return out.flush()
}

func writeRecordsJSON(out *chunks, found seb.Fetched) error {
	out.records(found.Records)
	out.text(`,"next_offset":`)
	out.integer(int64(found.Next))
	out.text(`,"end_offset":`)
	out.integer(int64(found.End))
	out.text("}\n")
	return out.flush()
}

func (h *Handler) parseRead(r *http.Request) (readSpec, error) {
	var s readSpec
	q, err := parseQuery(r, "partition", "offset", "time", "topic_id", "limit", "max_bytes", "wait", valuesParameter)
	if err != nil {
		return s, err
	}
	if s.partition, err = q.partition(0); err != nil {
		return s, err
	}
	if s.from, err = q.position(); err != nil {
		return s, err
	}
	if s.topicID = q["topic_id"]; !topicIDForm.MatchString(s.topicID) {
		return s, invalid("use the "+topicIDHeader+" of an earlier response unchanged, such as 1f0c6a3e.7", "topic_id %.80q does not have the form of a topic id", s.topicID)
	}
	return s, h.parseBounds(q, &s)
}

// parseBounds reads how much a read may return, how long it may wait, and in which form it returns values.
func (h *Handler) parseBounds(q query, s *readSpec) error {
	limit, err := q.atMost("limit", defaultReadRecords)
	if err != nil {
		return err
	}
	maxBytes, err := q.atMost("max_bytes", defaultReadBytes)
	if err != nil {
		return err
	}
	s.limit = int(min(limit, readRecordsMax, int64(h.recordsMax())))
	s.maxBytes = min(maxBytes, readBytesMax, int64(h.limits.RequestBytes))
	if s.wait, err = q.duration("wait", readWaitMax); err != nil {
		return err
	}
	s.jsonValues, err = q.jsonValues()
	return err
}

// fits refuses a form of values that an answer of the media type can't have.
func (s *readSpec) fits(mediaType string) error {
	if s.jsonValues && mediaType == typeBatch {
		return invalid("leave "+valuesParameter+" out, or accept "+typeNDJSON+" or "+typeJSON, "%s=json has no effect in the compact form", valuesParameter)
	}
	return nil
}

// fetch returns the records that spec asks for. Their memory is reserved until release is called. While fetch
// waits for records, no memory is reserved.
func (h *Handler) fetch(w *response, r *http.Request, spec readSpec) (_ seb.Fetched, release func(), _ error) {
	topic := r.PathValue("topic")
	deadline := time.Now().Add(spec.wait)
	for {
		found, release, err := h.fetchNow(r.Context(), w, topic, spec)
		wait := time.Until(deadline)
		if err != nil || len(found.Records) > 0 || wait <= 0 || h.drained() {
			return found, release, err
		}
		release()
		// The next fetch must begin where this first fetch began. So the positions "latest" and -N become an
		// offset. The next fetch must also read the same topic, not a topic that is created with the same
		// name during the wait, so it requires the topic's id. If records are deleted during the wait, a
		// read without an offset goes on at the first record that is left.
		spec.topicID = found.TopicTag
		if _, named := spec.from.Offset(); !named {
			spec.from = seb.AtOrAfter(found.Next)
		}
		if err := h.waitFor(w.clientContext, topic, spec, wait); err != nil {
			return seb.Fetched{}, nil, err // found is left out: a returned found would stay in memory during the wait
		}
	}
}

// fetchNow fetches records without waiting for new ones. Their memory is reserved until release is called.
func (h *Handler) fetchNow(ctx context.Context, w *response, topic string, spec readSpec) (found seb.Fetched, release func(), err error) {
	release, err = h.withMemory(w, spec, func(opts seb.FetchOptions) ([]seb.Record, error) {
		found = seb.Fetched{} // records of an earlier try must not stay in memory
		found, err = h.broker.Fetch(ctx, topic, spec.partition, spec.from, opts)
		return found.Records, err
	})
	return found, release, err
}

// withMemory calls read with the limits of spec. The memory of the records that read returns is reserved until
// release is called. If the records need more memory than was reserved, and there is no room, withMemory waits for
// room, and calls read again.
func (h *Handler) withMemory(w *response, spec readSpec, read func(seb.FetchOptions) ([]seb.Record, error)) (release func(), err error) {
	m := h.newAnswerMemory(w)
	opts := seb.FetchOptions{Limit: spec.limit, MaxBytes: spec.maxBytes, TopicTag: spec.topicID, Reserve: m.reserve}
	for {
		records, err := read(opts)
		if err != nil {
			m.free()
			return nil, err
		}
		count, held := len(records), heldBytes(records)
		if m.settle(held) {
			return m.free, nil
		}
		opts.Reserve = m.whole(count, held)
	}
}

func heldBytes(records []seb.Record) int64 {
	var n int64
	for i := range records {
		n += heldBy(&records[i])
	}
	return n
}

func heldBy(r *seb.Record) int64 {
	return int64(recordStructBytes + len(r.Key) + len(r.Value) + len(r.Headers)*headerStructBytes)
}

// waitFor returns when there is a record at spec.from, when the given time has passed, or when the broker is
// shutting down.
func (h *Handler) waitFor(ctx context.Context, topic string, spec readSpec, wait time.Duration) error {
	return h.untilDrained(ctx, func(ctx context.Context) error {
		_, err := h.broker.Fetch(ctx, topic, spec.partition, spec.from, seb.FetchOptions{
			Wait: wait, TopicTag: spec.topicID, Reserve: readNothing,
		})
		return err
	})
}

// readNothing is the Reserve of a fetch that only waits for records. If the fetch read a record, the record
// would count as read twice.
func readNothing(context.Context, int, int64) (limit int, maxBytes int64, err error) {
	return 0, 0, nil
}

// untilDrained calls wait with a context that is canceled when the broker is shutting down. If wait fails for
// this reason, untilDrained returns nil, so that the request is answered with the records that are there.
func (h *Handler) untilDrained(ctx context.Context, wait func(context.Context) error) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.draining, cancel)()
	err := wait(waiting)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
