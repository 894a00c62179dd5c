package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"mime/multipart"
	"net/http"

	"github.com/simple-event-broker/seb"
)

// originalAppend appends a form's records to partition 0. Like [Handler.appendRecords]
// it frees the request's memory before it waits for the commit, and withdraws
// the append if the client seems to have left.
func (h *Handler) originalAppend(w *response, _ *http.Request) error {
	r := w.clientRequest()
	topic, err := newOriginalQuery(r).topic()
	if err != nil {
		return err
	}
	pending, err := h.originalSubmit(w, r, topic)
	if err != nil {
		return err
	}
	done, err := pending.Wait(r.Context())
	if err != nil {
		return err
	}
	return writeOffsets(w, done.Ranges)
}

// originalSubmit reads the records from the form, and starts their append. The broker copies the records.
func (h *Handler) originalSubmit(w *response, r *http.Request, topic string) (*seb.Pending, error) {
	boundary, err := formBoundary(r.Header)
	if err != nil {
		return nil, err
	}
	body, err := h.readBody(w, r, bodyLimits{bytes: h.limits.RequestBytes})
	if err != nil {
		return nil, err
	}
	defer body.free()
	sizes, values, err := splitForm(body.data, boundary)
	if err != nil {
		return nil, err
	}
	records, err := h.sizedRecords(r.Context(), sizes, values)
	if err != nil {
		return nil, err
	}
	defer records.free()
	return h.broker.AppendAsync(r.Context(), topic, records.list, seb.ToPartition(0))
}

func formBoundary(header http.Header) (string, error) {
	mediaType, params, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || mediaType != typeForm || params["boundary"] == "" {
		return "", invalid("", "the Content-Type is %q; it must be %s with a boundary", header.Get("Content-Type"), typeForm)
	}
	return params["boundary"], nil
}

// splitForm parses body as a form and returns the values of its two fields. It writes these values to the
// front of body's memory. They fit, since a value is never larger than its field in the form.
func splitForm(body []byte, boundary string) (sizes, values []byte, err error) {
	in := &bounded{src: bytes.NewReader(body)}
	f := &form{parts: multipart.NewReader(in, boundary), in: in, room: body}
	if sizes, err = f.field(sizesField); err != nil {
		return nil, nil, err
	}
	if values, err = f.field(recordsField); err != nil {
		return nil, nil, err
	}
	extra, err := f.next()
	if err == nil && extra != nil {
		err = invalid("", "the form has a third field, %q; it must have %q, then %q", extra.FormName(), sizesField, recordsField)
	}
	return sizes, values, err
}

// form reads the fields of multipart/form-data in order.
type form struct {
	parts *multipart.Reader
	in    *bounded
	room  []byte // the part of the body's memory that has no value yet; a value overwrites only bytes that were parsed before
}

// field reads the next field. It returns an error if the field has another name.
func (f *form) field(name string) ([]byte, error) {
	part, err := f.next()
	switch {
	case err != nil:
		return nil, err
	case part == nil:
		return nil, invalid("", "the form ends before the field %q", name)
	case part.FormName() != name:
		return nil, invalid("", "the form has the field %q where %q must be; it must have %q, then %q", part.FormName(), name, sizesField, recordsField)
	}
	for used := 0; ; {
		// room is never full before the value ends: a boundary follows the value in the body.
		n, err := part.Read(f.room[used:])
		used += n
		if errors.Is(err, io.EOF) {
			value := f.room[:used:used]
			f.room = f.room[used:]
			return value, nil
		}
		if err != nil {
			return nil, malformedForm(err)
		}
	}
}

// next returns the next field, or nil at the end of the form.
func (f *form) next() (*multipart.Part, error) {
	f.in.left = formHeaderBytesMax
	part, err := f.parts.NextPart()
	f.in.left = math.MaxInt
	if err == io.EOF { // a wrapped io.EOF means that the form is cut off
		return nil, nil
	}
	if err != nil {
		return nil, malformedForm(err)
	}
	return part, nil
}

func malformedForm(err error) error {
	return &seb.Error{Code: seb.CodeInvalidRequest, Outcome: seb.NotCommitted, Err: err, Detail: fmt.Sprintf("the form is malformed or cut off: %v", err)}
}

// formHeaderBytesMax is how many bytes may be read before a field's value begins. Without this limit the
// parser would accept ten megabytes of headers, for which no memory is reserved.
const formHeaderBytesMax = 16 << 10

// bounded reads at most left bytes of src.
type bounded struct {
	src  io.Reader
	left int
}

// Read implements [io.Reader].
func (b *bounded) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("a field's headers take more than %d bytes", formHeaderBytesMax)
	}
	n, err := b.src.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// sizedRecords returns a record for each element of sizes, which is a JSON list. The values of the records
// are slices of the bytes in values. The sizes must add up to the number of these bytes.
func (h *Handler) sizedRecords(ctx context.Context, sizes, values []byte) (*recordList, error) {
	var count int
	var sum int64
	err := eachSize(sizes, func(size int64) error {
		count++
		sum += size
		return h.checkRecordCount(count)
	})
	switch {
	case err != nil:
		return nil, err
	case count == 0:
		return nil, invalid("", "%q is an empty list: the request has no records", sizesField)
	case sum != int64(len(values)):
		return nil, invalid("", "the sizes in %q add up to %d bytes, but %q has %d bytes", sizesField, sum, recordsField, len(values))
	}
	l, err := h.newRecordList(ctx, count)
	if err != nil {
		return nil, err
	}
	err = eachSize(sizes, func(size int64) error {
		l.list = append(l.list, seb.Record{Value: values[:size:size]})
		values = values[size:]
		return nil
	})
	if err != nil {
		l.free()
		return nil, err
	}
	l.parsed()
	return l, nil
}

// eachSize calls f with each element of a JSON list of sizes.
func eachSize(sizes []byte, f func(size int64) error) error {
	j, err := newJSONReader(sizes)
	if err != nil {
		return err
	}
	err = j.list(sizesField, func(int) error {
		n, given, err := j.integer("a size", 0, math.MaxUint32)
		if err == nil && !given {
			err = invalid("", "a size is null, at byte %d of %q", j.at, sizesField)
		}
		if err != nil {
			return err
		}
		return f(n)
	})
	if err != nil {
		return err
	}
	return j.end()
}

// writeOffsets answers an append with the offset of each record.
func writeOffsets(w *response, ranges []seb.Range) error {
	w.Header().Set("Content-Type", typeJSON)
	w.WriteHeader(http.StatusCreated)
	out := newChunks(w)
	defer out.free()
	out.text(`{"offsets":[`)
	separator := ""
	for _, r := range ranges {
		for i := range r.Count {
			out.text(separator)
			out.integer(int64(r.Offset + seb.Offset(i)))
			separator = ","
		}
	}
	out.text("]}")
	return out.flush()
}
