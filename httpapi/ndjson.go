package httpapi

import (
	"bytes"
	"context"
)

// linesOf returns a record for each line of body. The value is the line without the LF; the last LF is
// optional. A line need not be JSON. A CR before the LF is part of the value.
func (h *Handler) linesOf(ctx context.Context, spec *appendSpec, body []byte) (*recordList, error) {
	count := bytes.Count(body, []byte{'\n'})
	if len(body) > 0 && body[len(body)-1] != '\n' {
		count++
	}
	l, err := h.newRecordList(ctx, count)
	if err != nil {
		return nil, err
	}
	for len(body) > 0 {
		line, rest, _ := bytes.Cut(body, []byte{'\n'})
		l.list = append(l.list, spec.record(line))
		body = rest
	}
	return l, nil
}
