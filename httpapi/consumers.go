package httpapi

import (
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/simple-event-broker/seb"
)

// consumer writes info as a JSON object.
func (c *chunks) consumer(info *seb.ConsumerInfo) {
	c.buf = append(c.buf, `{"topic":`...)
	c.quoted([]byte(info.Topic))
	c.buf = append(c.buf, `,"name":`...)
	c.quoted([]byte(info.Name))
	c.buf = append(c.buf, `,"created":"`...)
	c.timestamp(info.Created)
	c.buf = append(c.buf, `","last_activity":"`...)
	c.timestamp(info.Moved)
	c.buf = append(c.buf, '"')
	var lag int64 // the sum over all positions
	for _, p := range info.Positions {
		lag += p.Lag()
	}
	c.number("lag", lag)
	c.buf = append(c.buf, `,"positions":[`...)
	for i, p := range info.Positions {
		if i > 0 {
			c.buf = append(c.buf, ',')
		}
		c.buf = append(c.buf, `{"partition":`...)
		c.integer(int64(p.Partition))
		c.offset("offset", p.Next)
		c.offset("start_offset", p.Start)
		c.offset("end_offset", p.End)
		c.number("lag", p.Lag())
		c.number("missed", p.Missed())
		c.text("}")
	}
	c.text("]}")
}

// etag returns a consumer's version as an entity tag.
func etag(version string) string { return strconv.Quote(version) }

func (h *Handler) consumer(r *http.Request) *seb.Consumer {
	return h.broker.Consumer(r.PathValue("topic"), r.PathValue("consumer"))
}

func writeConsumer(w *response, status int, c seb.ConsumerInfo) error {
	w.Header().Set("ETag", etag(c.Version))
	return writePartitions(w, status, len(c.Positions), func(out *chunks) { out.consumer(&c) })
}

func (h *Handler) listConsumers(w *response, r *http.Request) error {
	p, err := parsePage(r)
	if err != nil {
		return err
	}
	return listing[seb.ConsumerInfo]{
		name: "consumers", limit: p.limit, add: (*chunks).consumer,
		items: h.broker.Consumers(r.Context(), r.PathValue("topic"), seb.ListOptions{After: p.after, Reserve: h.reserveFor(w)}),
		next:  func(c *chunks, last *seb.ConsumerInfo) { c.quoted([]byte(last.Name)) },
	}.write(r.Context(), h, w)
}

func (h *Handler) getConsumer(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	release, err := h.reserveTopic(w, r, seb.ConsumerPositionBytes, 0)
	if err != nil {
		return err
	}
	defer release()
	c, err := h.consumer(r).Describe(r.Context())
	if err != nil {
		return err
	}
	return writeConsumer(w, http.StatusOK, c)
}

func (h *Handler) deleteConsumer(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	if err := h.consumer(r).Delete(r.Context()); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// putConsumer creates a consumer at the position in the body, or resets an existing consumer to that
// position. If the request has no body, an existing consumer keeps its position.
func (h *Handler) putConsumer(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	body, err := h.readSpec(w, r, topicBodyBytesMax, specHint)
	if err != nil {
		return err
	}
	from, err := parseFrom(body.data)
	body.free()
	if err != nil {
		return err
	}
	release, err := h.reserveTopic(w, r, seb.ConsumerPositionBytes, 0)
	if err != nil {
		return err
	}
	defer release()
	var (
		c       seb.ConsumerInfo
		created bool
		ctx     = r.Context()
	)
	switch consumer := h.consumer(r); {
	case from.offsets != nil:
		c, created, err = consumer.ResetTo(ctx, from.offsets)
	case from.given:
		c, created, err = consumer.Reset(ctx, from.position)
	default:
		c, created, err = consumer.Create(ctx)
	}
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return writeConsumer(w, status, c)
}

// consumerFrom is the position at which a consumer is created, or to which it is reset.
type consumerFrom struct {
	given    bool
	position seb.Position
	offsets  seb.Offsets // by partition; nil if the body has no offsets
}

const fromHint = `such as {"from":"latest"}, {"from":{"time":"2026-01-31T12:00:00Z"}} or {"from":{"offsets":{"0":41}}}`

func parseFrom(body []byte) (from consumerFrom, err error) {
	err = parseFields(body, "a consumer", fields{{"from", from.read}})
	return from, err
}

// read reads a position from JSON: a word such as "latest", or an object.
func (from *consumerFrom) read(j *jsonReader, name string) error {
	from.given = true
	if j.peek() == '{' {
		return j.fromObject(from)
	}
	s, err := j.stringOf(name, `"earliest", "latest", {"time":TIME} or {"offsets":{"0":41}}`)
	if err != nil {
		return err
	}
	switch string(s) {
	case "earliest":
		from.position = seb.Earliest
	case "latest":
		from.position = seb.Latest
	default:
		return invalid(fromHint, "invalid value of from: %q", s)
	}
	return nil
}

func (j *jsonReader) fromObject(from *consumerFrom) error {
	fields := 0
	err := j.object("from", func(name []byte) error {
		fields++
		switch string(name) {
		case "time":
			s, err := j.stringOf("time", aTime)
			if err != nil {
				return err
			}
			t, err := parseTimestamp(string(s))
			from.position = seb.AtTime(t)
			return err
		case "offsets":
			var err error
			from.offsets, err = j.offsets("offsets", nothing)
			return err
		default:
			return j.unknown("from", name, "time, offsets")
		}
	})
	if err == nil && fields != 1 {
		err = invalid(fromHint, "from must hold either time or offsets")
	}
	return err
}

func nothing() error { return nil }

// offsets reads an object such as {"0":41}, in which partition 0 has the offset 41. It calls the function each
// before it stores an offset. The parameter what names the object in errors.
func (j *jsonReader) offsets(what string, each func() error) (seb.Offsets, error) {
	o := seb.Offsets{}
	err := j.object(what, func(name []byte) error {
		p, err := strconv.ParseUint(string(name), 10, 31)
		if err != nil || strconv.FormatUint(p, 10) != string(name) {
			return invalid(`such as {"0":41}`, "%s names the invalid partition %q", what, name)
		}
		if err := each(); err != nil {
			return err
		}
		n, given, err := j.integer("an offset", 0, math.MaxInt64)
		if err == nil && !given {
			err = invalid(`such as {"0":41}`, "the offset of partition %d is null", p)
		}
		o[int32(p)] = seb.Offset(n)
		return err
	})
	return o, err
}

// commitPositions sets positions of an existing consumer.
func (h *Handler) commitPositions(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	opts, err := ifMatch(r)
	if err != nil {
		return err
	}
	body, err := h.readSpec(w, r, topicBodyBytesMax, specHint)
	if err != nil {
		return err
	}
	offsets, err := parseCommit(body.data)
	body.free()
	if err != nil {
		return err
	}
	version, err := h.consumer(r).Commit(r.Context(), offsets, opts...)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", etag(version))
	return writeJSON(w, http.StatusOK, struct {
		Offsets seb.Offsets `json:"offsets"`
	}{offsets})
}

func parseCommit(body []byte) (offsets seb.Offsets, err error) {
	j, err := newJSONReader(body)
	if err != nil {
		return nil, err
	}
	err = j.object("a commit", func(name []byte) (err error) {
		if string(name) != "offsets" {
			return j.unknown("a commit", name, "offsets")
		}
		offsets, err = j.offsets("offsets", nothing)
		return err
	})
	if err != nil {
		return nil, err
	}
	return offsets, j.end()
}

// ifMatch returns the condition in the header If-Match: the consumer must have that version. The value *
// demands only that the consumer exists, which every commit of positions demands. An empty header is an
// error: otherwise the client might believe that a condition was checked.
func ifMatch(r *http.Request) ([]seb.CommitOption, error) {
	values := r.Header.Values("If-Match")
	given := strings.TrimSpace(strings.Join(values, ","))
	if len(values) == 0 || given == "*" {
		return nil, nil
	}
	version, err := strconv.Unquote(given)
	if err != nil || version == "" || given[0] != '"' {
		return nil, invalid(`send back the ETag of the consumer, such as "7.3", with its quotes`, "invalid If-Match %q", given)
	}
	return []seb.CommitOption{seb.IfVersion(version)}, nil
}
