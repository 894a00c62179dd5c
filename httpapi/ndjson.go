package httpapi

import (
	"bytes"
	"context"
)

// linesOf makes a record of each line, without its LF; the last LF is optional.
// Lines are not parsed, and a CR belongs to its line.
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
