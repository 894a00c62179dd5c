package httpapi

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"mime/multipart"
	"net/http"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	originalReadRecords = 10
	originalReadWait    = 10 * time.Second
	// A read of existing records may take originalReadGrace, even if the caller's timeout is shorter.
	// Otherwise a caller with a short timeout might never get a record.
	originalReadGrace = time.Second
	// The parameter max-bytes limits the bytes of the values, but a fetch limits the bytes of whole
	// records. So besideValueBytes is added to the fetch's limit for each record, but no more than
	// besideValuesMax in all.
	besideValueBytes = 256
	besideValuesMax  = 1 << 20
)

// codeChooseMediaType is the code of the error for an Accept header that names a media type in which the
// original can't answer.
const codeChooseMediaType seb.Code = "choose_media_type"

// originalSpec is the query of a read.
type originalSpec struct {
	topic    string
	offset   seb.Offset
	limit    int
	maxBytes int64 // the most bytes that the values may have together
	wait     time.Duration
}

// read returns the spec of the fetch. The caller then calls cut, which limits the values to maxBytes.
func (s *originalSpec) read() readSpec {
	beside := min(int64(s.limit)*besideValueBytes, besideValuesMax)
	return readSpec{from: seb.At(s.offset), limit: s.limit, maxBytes: s.maxBytes + beside}
}

// cut returns the first records whose values together have up to maxBytes, but at least one record. It ends before a
// gap between their offsets.
func (s *originalSpec) cut(records []seb.Record) []seb.Record {
	records = records[:untilGap(records)]
	left := s.maxBytes
	for i := range records {
		left -= int64(len(records[i].Value))
		if left < 0 && i > 0 {
			return records[:i]
		}
	}
	return records
}

// originalRead answers with records from an offset on, as a form. The offset may be beyond the partition's
// end. If no record comes before the timeout, it answers with 206 and a form without fields.
func (h *Handler) originalRead(w *response, r *http.Request) error {
	if err := acceptsForm(r.Header); err != nil {
		return err
	}
	spec, err := h.parseOriginalRead(r)
	if err != nil {
		return err
	}
	records, release, err := h.originalFetch(w, r, spec)
	if err != nil {
		return err
	}
	defer release()
	out := multipart.NewWriter(w)
	w.Header().Set("Content-Type", out.FormDataContentType())
	if len(records) == 0 {
		w.WriteHeader(http.StatusPartialContent)
	} else if err := writeForm(out, records); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("write the response: %w", err)
	}
	return nil
}

// acceptsForm refuses the Accept headers that the original refuses. It reads only the first Accept
// header, which must name exactly one media type.
func acceptsForm(header http.Header) error {
	hint := "send Accept: " + typeForm
	mediaType, _, err := mime.ParseMediaType(header.Get("Accept"))
	if err != nil {
		return &seb.Error{Code: codeNotAcceptable, Hint: hint, Detail: fmt.Sprintf("the Accept header is %q: %v", header.Get("Accept"), err)}
	}
	if mediaType != "*/*" && mediaType != typeForm {
		return &seb.Error{Code: codeChooseMediaType, Hint: hint, Detail: fmt.Sprintf("records can't be served as %q", mediaType)}
	}
	return nil
}

func (h *Handler) parseOriginalRead(r *http.Request) (s originalSpec, err error) {
	q := newOriginalQuery(r)
	if s.topic, err = q.topic(); err != nil {
		return s, err
	}
	if s.offset, err = q.offset(); err != nil {
		return s, err
	}
	limit, maxBytes := q.count("max-records"), q.count("max-bytes")
	if limit == 0 {
		limit = originalReadRecords
	}
	if maxBytes == 0 {
		maxBytes = readBytesMax
	}
	s.limit = int(min(limit, readRecordsMax, int64(h.recordsMax())))
	s.maxBytes = min(maxBytes, readBytesMax, int64(h.limits.RequestBytes))
	s.wait = q.duration("timeout", originalReadWait, readWaitMax)
	return s, nil
}

// originalFetch returns records from spec.offset on. Their memory is reserved until release is
// called. If no record comes before the timeout, it returns no records. While it waits, no memory is
// reserved.
func (h *Handler) originalFetch(w *response, r *http.Request, spec originalSpec) (_ []seb.Record, release func(), _ error) {
	deadline := time.Now().Add(spec.wait)
	for {
		found, release, err := h.fetchUntil(r.Context(), w, deadline, spec)
		switch {
		case errors.Is(err, errTimeUp):
			return nil, func() {}, nil
		case err != nil:
			return nil, nil, err
		case len(found.Records) > 0:
			return spec.cut(found.Records), release, nil
		}
		release()
		there, err := h.awaitOffset(w.clientContext, spec, found.End, deadline)
		if err != nil || !there {
			return nil, func() {}, err
		}
	}
}

// errTimeUp means that the read's deadline passed before a record was read.
var errTimeUp = errors.New("no record was read before the deadline of the read")

// fetchUntil returns records from spec.offset on. If spec.offset is at or beyond the partition's end, it
// returns no records. If the store is not done at the deadline, fetchUntil returns the records that were
// read by then, or errTimeUp if no record was read.
func (h *Handler) fetchUntil(ctx context.Context, w *response, deadline time.Time, spec originalSpec) (seb.Fetched, func(), error) {
	if grace := time.Now().Add(originalReadGrace); grace.After(deadline) {
		deadline = grace
	}
	reading, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	found, release, err := h.fetchNow(reading, w, spec.topic, spec.read())
	var e *seb.Error
	switch {
	case err == nil:
		return found, release, nil
	case errors.As(err, &e) && e.Code == seb.CodeOffsetOutOfRange && spec.offset > e.End:
		return seb.Fetched{Start: e.Start, End: e.End}, func() {}, nil
	case errors.Is(reading.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("%w: %w", errTimeUp, err)
	}
	return found, nil, err
}

// awaitOffset waits for a record at spec.offset. It returns true when that record exists, and false at the
// deadline or when the broker is shutting down. end is the last known end of the partition.
func (h *Handler) awaitOffset(ctx context.Context, spec originalSpec, end seb.Offset, deadline time.Time) (bool, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.draining, cancel)()
	for end <= spec.offset {
		wait := time.Until(deadline)
		if wait <= 0 || h.drained() {
			return false, nil
		}
		found, err := h.broker.Fetch(waiting, spec.topic, 0, seb.At(end), seb.FetchOptions{Wait: wait, Reserve: readNothing})
		switch {
		case err != nil && ctx.Err() == nil && errors.Is(err, context.Canceled):
			return false, nil // the broker is shutting down
		case err != nil:
			return false, err
		}
		end = found.End
	}
	return true, nil
}

// writeForm writes records as the two fields of a form.
func writeForm(form *multipart.Writer, records []seb.Record) error {
	err := writeField(form, sizesField, func(out *chunks) {
		separator := "["
		for i := range records {
			out.text(separator)
			out.integer(int64(len(records[i].Value)))
			separator = ","
		}
		out.text("]")
	})
	if err != nil {
		return err
	}
	return writeField(form, recordsField, func(out *chunks) {
		for i := range records {
			out.bytes(records[i].Value)
		}
	})
}

func writeField(form *multipart.Writer, name string, value func(*chunks)) error {
	field, err := form.CreateFormField(name)
	if err != nil {
		return fmt.Errorf("write the response: %w", err)
	}
	out := newChunks(field)
	defer out.free()
	value(out)
	return out.flush()
}

// originalReadOne answers with one record's value. As in the original, the answer's Content-Type is
// guessed from the value's bytes.
func (h *Handler) originalReadOne(w *response, r *http.Request) error {
	q := newOriginalQuery(r)
	topic, err := q.topic()
	if err != nil {
		return err
	}
	offset, err := q.offset()
	if err != nil {
		return err
	}
	_, rec, release, err := h.recordAt(w, r, topic, 0, offset)
	if err != nil {
		return err
	}
	defer release()
	value := rec.Value
	noPage(w.Header())
	return writeBody(w, http.StatusOK, http.DetectContentType(value), value)
}
