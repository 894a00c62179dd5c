package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
)

// Failures of a client that gets no answer.
const (
	noAnswer seb.Code = "no_answer" // the connection broke, or time was up
	noBroker seb.Code = "no_broker" // no broker listens at the address
)

// wire calls a broker over HTTP.
type wire struct {
	http    *http.Client
	history *history
	lines   bool // bodies are x-ndjson; if false, they have Seb's compact form for batches
	secret  string
}

const (
	typeLines = "application/x-ndjson"
	typeBatch = "application/vnd.seb.batch"
)

func (w wire) append(ctx context.Context, o *op, key string, values []string) {
	query := url.Values{}
	if o.partition >= 0 {
		query.Set("partition", strconv.Itoa(o.partition))
	}
	if key != "" {
		query.Set("key", key)
	}
	if o.ifOffset != nil {
		query.Set("if_offset", strconv.FormatInt(int64(*o.ifOffset), 10))
	}
	var body []byte
	contentType := typeBatch
	switch {
	case len(values) == 1:
		body, contentType = []byte(values[0]), "application/octet-stream"
	case w.lines:
		body, contentType = []byte(strings.Join(values, "\n")+"\n"), typeLines
	default:
		body = encodeBatch(values)
	}
	answer := w.do(ctx, o, http.MethodPost, "/records?"+query.Encode(), contentType, body)
	if answer == nil {
		return
	}
	var a rangesJSON
	if err := json.Unmarshal(answer.body, &a); err != nil {
		o.lose(err)
		return
	}
	o.ranges = a.ranges()
}

// rangesJSON is the answer to an append.
type rangesJSON struct {
	Ranges []struct {
		Partition int32
		Offset    format.Offset
		Count     int
	}
}

func (a rangesJSON) ranges() (rs []seb.Range) {
	for _, r := range a.Ranges {
		rs = append(rs, seb.Range{Partition: r.Partition, Offset: r.Offset, Count: r.Count})
	}
	return rs
}

func (w wire) read(ctx context.Context, o *op, opts seb.FetchOptions) {
	query := url.Values{
		"partition": {strconv.Itoa(o.partition)}, "offset": {o.from.String()}, "limit": {strconv.Itoa(opts.Limit)},
		"wait": {opts.Wait.String()}, "max_bytes": {strconv.FormatInt(opts.MaxBytes, 10)},
	}
	accept := typeBatch
	if w.lines {
		accept = typeLines
	}
	answer := w.do(ctx, o, http.MethodGet, "/records?"+query.Encode(), accept, nil)
	if answer == nil {
		return
	}
	o.next, o.end = answer.offset("Seb-Next-Offset"), answer.offset("Seb-End-Offset")
	var err error
	if w.lines {
		err = o.decodeLines(w.history, answer.body)
	} else {
		err = o.decodeBatch(w.history, answer.offset("Seb-Offset"), answer.body)
	}
	if err != nil {
		w.history.violate("DenseOffsets", "an answer that can't be read: %v", err)
	}
}

func (w wire) create(ctx context.Context, o *op, partitions int) {
	w.do(ctx, o, http.MethodPut, "", "application/json", fmt.Appendf(nil, `{"partitions":%d}`, partitions))
}

func (w wire) delete(ctx context.Context, o *op) {
	w.do(ctx, o, http.MethodDelete, "", "", nil)
}

func (w wire) trim(ctx context.Context, o *op) {
	answer := w.do(ctx, o, http.MethodDelete, fmt.Sprintf("/records?partition=%d&before=%d", o.partition, o.before), "", nil)
	if answer == nil {
		return
	}
	var a struct {
		StartOffset seb.Offset `json:"start_offset"`
		EndOffset   seb.Offset `json:"end_offset"`
	}
	if err := json.Unmarshal(answer.body, &a); err != nil {
		o.lose(err)
		return
	}
	o.start, o.end = a.StartOffset, a.EndOffset
}

func (w wire) update(ctx context.Context, o *op) {
	var partitions string
	if o.partition > 0 {
		partitions = fmt.Sprintf(`"partitions":%d,`, o.partition)
	}
	body := fmt.Appendf(nil, `{%s"config":{"retention_bytes":%d}}`, partitions, o.config)
	answer := w.do(ctx, o, http.MethodPatch, "", "application/json", body)
	if answer == nil {
		return
	}
	var a struct {
		Partitions []struct{}
		Config     struct {
			RetentionBytes int64 `json:"retention_bytes"`
		}
	}
	if err := json.Unmarshal(answer.body, &a); err != nil {
		o.lose(err)
		return
	}
	o.is = shape{len(a.Partitions), a.Config.RetentionBytes}
}

// answer is the answer to a successful request.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a *answer) offset(name string) seb.Offset {
	n, err := strconv.ParseInt(a.header.Get(name), 10, 64)
	if err != nil {
		return -1
	}
	return seb.Offset(n)
}

// do sends a request about the operation's topic, and returns the answer. If the request fails, it notes the
// failure in the operation and returns nil. mediaType is the type that the client accepts in the answer to a
// GET, and the type of the body of any other request.
func (w wire) do(ctx context.Context, o *op, method, rest, mediaType string, body []byte) *answer {
	return w.doAt(ctx, o, method, "topics/"+o.topic+rest, mediaType, body)
}

// doAt is do for any path.
func (w wire) doAt(ctx context.Context, o *op, method, path, mediaType string, body []byte) *answer {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+o.broker+"/v1/"+path, bytes.NewReader(body))
	if err != nil {
		panic(err) // can't happen: the URL is valid
	}
	if method == http.MethodGet {
		req.Header.Set("Accept", mediaType)
	} else {
		req.Header.Set("Content-Type", mediaType)
	}
	if w.secret != "" {
		req.Header.Set("Authorization", "Bearer "+w.secret)
	}
	if o.key != "" {
		req.Header.Set("Idempotency-Key", o.key)
	}
	if o.kind == appends && o.delay != nil {
		req.Header.Set("Seb-Delay", o.delay.String())
	}
	if o.version != "" {
		req.Header.Set("If-Match", strconv.Quote(o.version))
	}
	res, err := w.http.Do(req)
	if err != nil {
		o.lose(err)
		return nil
	}
	got, err := io.ReadAll(res.Body)
	_ = res.Body.Close() // the body was read, or reading has failed
	if err != nil {
		o.lose(err)
		return nil
	}
	if res.StatusCode >= 300 {
		o.refuse(w.history, res.StatusCode, got)
		return nil
	}
	return &answer{res.StatusCode, res.Header, got}
}

// lose notes that the client got no answer.
func (o *op) lose(err error) {
	o.failure, o.outcome, o.detail = noAnswer, seb.Unknown, fmt.Sprintf("%.150v", err)
	// If there was no broker at the address, nothing is committed. That is not certain for a request with an
	// idempotency key: net/http repeats the request when its connection breaks, and the second request
	// may find no broker although the first request took effect.
	if strings.Contains(err.Error(), errNobody.Error()) && o.key == "" {
		o.failure, o.outcome = noBroker, seb.NotCommitted
	}
}

// refuse notes the answer to a failed request.
func (o *op) refuse(h *history, status int, body []byte) {
	var p struct {
		Code        seb.Code
		Detail      string
		Outcome     seb.Outcome
		StartOffset seb.Offset `json:"start_offset"`
		EndOffset   seb.Offset `json:"end_offset"`
		Results     []tokenAnswer
	}
	if err := json.Unmarshal(body, &p); err != nil || p.Code == "" {
		p.Code, p.Detail, p.Outcome = seb.Code(fmt.Sprintf("status %d", status)), string(body), seb.Unknown
	}
	if len(p.Results) > 0 {
		o.judged(h, p.Results)
		return
	}
	o.failure, o.outcome, o.detail, o.start, o.end = p.Code, p.Outcome, p.Detail, p.StartOffset, p.EndOffset
}

func encodeBatch(values []string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(values)))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
	}
	return append(b, strings.Join(values, "")...)
}

func (o *op) decodeBatch(h *history, first seb.Offset, body []byte) error {
	if len(body) < 4 {
		return fmt.Errorf("a batch of %d bytes", len(body))
	}
	count := int(binary.LittleEndian.Uint32(body))
	if len(body) < 4+4*count {
		return fmt.Errorf("a batch of %d bytes with %d records", len(body), count)
	}
	sizes, values := body[4:], body[4+4*count:]
	for i := range count {
		n := int(binary.LittleEndian.Uint32(sizes[4*i:]))
		if n > len(values) {
			return fmt.Errorf("record %d of a batch has %d bytes, and %d are left", i, n, len(values))
		}
		o.found(h, first+seb.Offset(i), string(values[:n]))
		values = values[n:]
	}
	return nil
}

func (o *op) decodeLines(h *history, body []byte) error {
	for d := json.NewDecoder(bytes.NewReader(body)); ; {
		var r struct {
			Partition int
			Offset    format.Offset
			Value     string
		}
		switch err := d.Decode(&r); err {
		case nil:
			o.come(h, r.Partition)
			o.found(h, r.Offset, r.Value)
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}
