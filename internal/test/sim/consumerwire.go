package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/simple-event-broker/seb"
)

func pathOf(o *op) string { return "/consumers/" + o.consumer }

func (w wire) consume(ctx context.Context, o *op, opts seb.FetchOptions) {
	query := url.Values{"wait": {opts.Wait.String()}}
	if o.partition >= 0 {
		query.Set("partition", strconv.Itoa(o.partition))
	}
	if opts.Limit > 0 {
		query.Set("limit", strconv.Itoa(opts.Limit))
	}
	if opts.MaxBytes > 0 {
		query.Set("max_bytes", strconv.FormatInt(opts.MaxBytes, 10))
	}
	accept := typeBatch
	if w.lines {
		accept = typeLines
	}
	answer := w.do(ctx, o, http.MethodGet, pathOf(o)+"/records?"+query.Encode(), accept, nil)
	if answer == nil {
		return
	}
	var err error
	if w.lines {
		err = o.decodeLines(w.history, answer.body)
	} else {
		if answer.header.Get("Seb-Partition") != "" {
			o.come(w.history, int(answer.offset("Seb-Partition")))
		}
		err = o.decodeBatch(w.history, answer.offset("Seb-Offset"), answer.body)
	}
	var next seb.Offsets
	if err == nil {
		err = json.Unmarshal([]byte(answer.header.Get("Seb-Next-Offsets")), &next)
	}
	if err != nil {
		w.history.violate("DenseOffsets", "an answer that can't be read: %v", err)
	}
	o.behindRecords(next)
}

func (w wire) commit(ctx context.Context, o *op) {
	offsets, err := json.Marshal(o.offsets)
	if err != nil {
		panic(err) // can't happen: offsets are numbers
	}
	answer := w.do(ctx, o, http.MethodPost, pathOf(o)+"/commit", "application/json", fmt.Appendf(nil, `{"offsets":%s}`, offsets))
	if answer != nil {
		o.told = []positions{{version: answer.etag()}}
	}
}

func (w wire) set(ctx context.Context, o *op) {
	var body []byte
	switch o.to {
	case "":
	case "offsets":
		offsets, err := json.Marshal(o.offsets)
		if err != nil {
			panic(err) // can't happen: offsets are numbers
		}
		body = fmt.Appendf(nil, `{"from":{"offsets":%s}}`, offsets)
	default:
		body = fmt.Appendf(nil, `{"from":%q}`, o.to)
	}
	answer := w.do(ctx, o, http.MethodPut, pathOf(o), "application/json", body)
	if answer == nil {
		return
	}
	o.created = answer.status == http.StatusCreated
	w.tell(o, answer)
}

func (w wire) describe(ctx context.Context, o *op) {
	if answer := w.do(ctx, o, http.MethodGet, pathOf(o), "application/json", nil); answer != nil {
		w.tell(o, answer)
	}
}

func (w wire) forget(ctx context.Context, o *op) {
	w.do(ctx, o, http.MethodDelete, pathOf(o), "", nil)
}

func (w wire) list(ctx context.Context, o *op) {
	answer := w.do(ctx, o, http.MethodGet, "/consumers", "application/json", nil)
	if answer == nil {
		return
	}
	var a struct{ Consumers []consumerAnswer }
	if err := json.Unmarshal(answer.body, &a); err != nil {
		o.lose(err)
		return
	}
	for _, c := range a.Consumers {
		o.told = append(o.told, c.positions())
	}
}

// tell notes what an answer says about one consumer.
func (w wire) tell(o *op, from *answer) {
	var a consumerAnswer
	if err := json.Unmarshal(from.body, &a); err != nil {
		o.lose(err)
		return
	}
	s := a.positions()
	s.version = from.etag()
	o.told = []positions{s}
}

// consumerAnswer is how an answer describes a consumer.
type consumerAnswer struct {
	Name      string
	Positions []struct {
		Partition   int
		Offset      seb.Offset
		StartOffset seb.Offset `json:"start_offset"`
		EndOffset   seb.Offset `json:"end_offset"`
	}
}

func (a consumerAnswer) positions() positions {
	s := positions{consumer: a.Name}
	for _, p := range a.Positions {
		s.at, s.bounds = append(s.at, p.Offset), append(s.bounds, bounds{p.StartOffset, p.EndOffset})
	}
	return s
}

// etag returns the version in the ETag header of an answer, or "".
func (a *answer) etag() string {
	version, err := strconv.Unquote(a.header.Get("ETag"))
	if err != nil {
		return ""
	}
	return version
}
