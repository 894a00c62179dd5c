package httpapi

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/httprecord"
)

// topicBodyBytesMax bounds a body that describes a topic, a consumer or a queue.
const topicBodyBytesMax = 64 << 10

// configJSON is a topic's configuration; null means no limit.
type configJSON struct {
	Retention           *string `json:"retention"`
	RetentionBytes      *int64  `json:"retention_bytes"`
	RetentionPastQueues bool    `json:"retention_past_queues"`
}

type partitionJSON struct {
	Partition     int32      `json:"partition"`
	StartOffset   seb.Offset `json:"start_offset"`
	EndOffset     seb.Offset `json:"end_offset"`
	Bytes         int64      `json:"bytes"`
	LastTimestamp *string    `json:"last_timestamp"` // null before the first record
}

// topic writes t, whose tag is tag, as a JSON object. If the tag is "", the object has none.
func (c *chunks) topic(t *seb.Topic, tag string) {
	c.buf = append(c.buf, `{"name":`...)
	c.quoted([]byte(t.Name))
	if tag != "" {
		c.buf = append(c.buf, `,"topic_id":`...)
		c.quoted([]byte(tag))
	}
	c.buf = append(c.buf, `,"created":"`...)
	c.timestamp(t.Created)
	c.buf = append(c.buf, `","partitions":[`...)
	for i := range t.Partitions {
		p := &t.Partitions[i]
		if i > 0 {
			c.buf = append(c.buf, ',')
		}
		c.buf = append(c.buf, `{"partition":`...)
		c.integer(int64(p.Partition))
		c.offset("start_offset", p.Start)
		c.offset("end_offset", p.End)
		c.number("bytes", p.Bytes)
		c.buf = append(c.buf, `,"last_timestamp":`...)
		if p.LastTimestamp.IsZero() {
			c.buf = append(c.buf, "null"...)
		} else {
			c.buf = append(c.buf, '"')
			c.timestamp(p.LastTimestamp)
			c.buf = append(c.buf, '"')
		}
		c.text("}")
	}
	c.buf = append(c.buf, `],"config":{"retention":`...)
	if t.Config.Retention == 0 {
		c.buf = append(c.buf, "null"...)
	} else {
		c.quoted([]byte(t.Config.Retention.String()))
	}
	c.buf = append(c.buf, `,"retention_bytes":`...)
	if t.Config.RetentionBytes == 0 {
		c.buf = append(c.buf, "null"...)
	} else {
		c.integer(t.Config.RetentionBytes)
	}
	c.buf = append(c.buf, `,"retention_past_queues":`...)
	c.buf = strconv.AppendBool(c.buf, t.Config.RetentionPastQueues)
	c.text("}")
	c.retention(t.Retention)
	c.text("}")
}

// retention writes how far retention has come, unless r is nil.
func (c *chunks) retention(r *seb.TopicRetention) {
	if r == nil {
		return
	}
	c.text(`,"retention":{`)
	c.optionalTime("oldest", r.Oldest)
	c.text(",")
	c.optionalTime("next", r.Next)
	c.text(`,"held_by_queue":`)
	c.optionalText(r.Queue)
	c.text(`,"waits":`)
	c.optionalText(r.Waits)
	c.text("}")
}

// optionalTime writes a field with a time; null if t is zero.
func (c *chunks) optionalTime(name string, t time.Time) {
	c.quoted([]byte(name))
	c.text(":")
	if t.IsZero() {
		c.text("null")
		return
	}
	c.text(`"`)
	c.timestamp(t)
	c.text(`"`)
}

// optionalText writes a string; null if it is empty.
func (c *chunks) optionalText(s string) {
	if s == "" {
		c.text("null")
		return
	}
	c.quoted([]byte(s))
}

func toPartitionJSON(p seb.Partition) partitionJSON {
	j := partitionJSON{Partition: p.Partition, StartOffset: p.Start, EndOffset: p.End, Bytes: p.Bytes}
	if !p.LastTimestamp.IsZero() {
		j.LastTimestamp = new(p.LastTimestamp.UTC().Format(timestampLayout))
	}
	return j
}

// listTopics answers with a page of the topics that the caller has access to.
func (h *Handler) listTopics(w *response, r *http.Request) error {
	p, err := parsePage(r)
	if err != nil {
		return err
	}
	return listing[seb.Topic]{
		name: "topics", limit: p.limit, add: func(c *chunks, t *seb.Topic) { c.topic(t, h.broker.TopicTag(t.ID)) },
		items: h.broker.Topics(r.Context(), seb.ListOptions{After: p.after, May: w.access.MaySee, Reserve: h.reserveFor(w)}),
		next:  func(c *chunks, last *seb.Topic) { c.quoted([]byte(last.Name)) },
	}.write(r.Context(), h, w)
}

func (h *Handler) getTopic(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	release, err := h.reserveTopic(w, r, seb.PartitionBytes, 0)
	if err != nil {
		return err
	}
	defer release()
	t, err := h.broker.Topic(r.Context(), r.PathValue("topic"))
	if err != nil {
		return err
	}
	return h.writeTopic(w, http.StatusOK, t)
}

func (h *Handler) writeTopic(w *response, status int, t seb.Topic) error {
	tag := h.broker.TopicTag(t.ID)
	w.Header().Set(topicIDHeader, tag)
	return writePartitions(w, status, len(t.Partitions), func(c *chunks) { c.topic(&t, tag) })
}

func (h *Handler) putTopic(w *response, r *http.Request) error {
	spec, err := h.readTopicSpec(w, r)
	if err != nil {
		return err
	}
	var opts seb.TopicOptions
	if spec.Partitions != nil {
		opts.Partitions = *spec.Partitions
	}
	if spec.Retention != nil {
		opts.Config.Retention = *spec.Retention
	}
	if spec.RetentionBytes != nil {
		opts.Config.RetentionBytes = *spec.RetentionBytes
	}
	if spec.RetentionPastQueues != nil {
		opts.Config.RetentionPastQueues = *spec.RetentionPastQueues
	}
	release, err := h.reserveTopic(w, r, seb.PartitionBytes, wantedPartitions(spec, h.limits.Partitions))
	if err != nil {
		return err
	}
	defer release()
	t, created, err := h.broker.CreateTopic(r.Context(), r.PathValue("topic"), opts)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return h.writeTopic(w, status, t)
}

func (h *Handler) patchTopic(w *response, r *http.Request) error {
	spec, err := h.readTopicSpec(w, r)
	if err != nil {
		return err
	}
	if spec == (seb.TopicUpdate{}) {
		return invalid(`send {"partitions":4} to have four, or {"config":{"retention":"7d"}} to delete records that are older`, "the body names nothing to change")
	}
	release, err := h.reserveTopic(w, r, seb.PartitionBytes, wantedPartitions(spec, h.limits.Partitions))
	if err != nil {
		return err
	}
	defer release()
	t, err := h.broker.UpdateTopic(r.Context(), r.PathValue("topic"), spec)
	if err != nil {
		return err
	}
	return h.writeTopic(w, http.StatusOK, t)
}

// wantedPartitions returns how many partitions spec asks for, or 0 if spec does not say. It returns no more
// than most, since the broker refuses a topic with more partitions.
func wantedPartitions(spec seb.TopicUpdate, most int) int {
	if spec.Partitions == nil {
		return 0
	}
	return min(int(*spec.Partitions), most)
}

func (h *Handler) deleteTopic(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	topic := r.PathValue("topic")
	users := slices.DeleteFunc(h.broker.DeadLetteredTo(topic), func(q seb.QueueName) bool { return !w.access.MaySee(q.Topic) })
	if err := h.broker.DeleteTopic(r.Context(), topic); err != nil {
		return err
	}
	if len(users) > 0 {
		w.Header().Add(warningHeader, deadLettersWarning(topic, users))
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// warningHeader warns of an effect of a request that the caller may not expect.
const warningHeader = "Seb-Warning"

// deadLettersWarning says which queues still have topic as their dead-letter topic. Names of topics and queues
// are ASCII, so the warning can be the value of a header.
func deadLettersWarning(topic string, users []seb.QueueName) string {
	which := fmt.Sprintf("queue %s of %s", users[0].Queue, users[0].Topic)
	if more := len(users) - 1; more > 0 {
		which += fmt.Sprintf(", and %d more", more)
	}
	return fmt.Sprintf("%s is still the dead-letter topic of %s: the next dead letter creates it again, or is not copied if appends create no topics; change the queue's dead_letter_topic", topic, which)
}

// deleteRecords deletes the first records of a partition, by moving the partition's start. Both parameters are
// required: with a default, a caller could delete records by mistake.
func (h *Handler) deleteRecords(w *response, r *http.Request) error {
	q, err := parseQuery(r, "partition", "before")
	if err != nil {
		return err
	}
	if q["partition"] == "" || q["before"] == "" {
		return invalid("such as ?partition=0&before=41, which keeps offset 41 and what follows", "partition and before are required")
	}
	partition, err := q.partition(0)
	if err != nil {
		return err
	}
	before, err := q.count("before", 0, math.MaxInt64, 0)
	if err != nil {
		return err
	}
	p, err := h.broker.DeleteRecords(r.Context(), r.PathValue("topic"), partition, seb.Offset(before))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, toPartitionJSON(p))
}

// readTopicSpec reads a body that describes a topic. In the result, settings that the body does not name are nil.
func (h *Handler) readTopicSpec(w *response, r *http.Request) (seb.TopicUpdate, error) {
	if _, err := parseQuery(r); err != nil {
		return seb.TopicUpdate{}, err
	}
	body, err := h.readSpec(w, r, topicBodyBytesMax, specHint)
	if err != nil {
		return seb.TopicUpdate{}, err
	}
	defer body.free()
	if len(bytes.TrimSpace(body.data)) == 0 {
		return seb.TopicUpdate{}, nil
	}
	return parseTopicSpec(body.data)
}

func parseTopicSpec(body []byte) (spec seb.TopicUpdate, err error) {
	j, err := newJSONReader(body)
	if err != nil {
		return spec, err
	}
	err = j.object("a topic", func(name []byte) error {
		switch string(name) {
		case "partitions":
			n, given, err := j.integer("partitions", 1, math.MaxInt32)
			if given {
				spec.Partitions = new(int32(n))
			}
			return err
		case "config":
			return j.topicConfig(&spec)
		default:
			return j.unknown("a topic", name, "partitions, config")
		}
	})
	if err != nil {
		return spec, err
	}
	return spec, j.end()
}

// topicConfig reads a topic's configuration into spec. A setting with the value null means no limit.
func (j *jsonReader) topicConfig(spec *seb.TopicUpdate) error {
	if j.null() {
		return nil
	}
	return j.object("config", func(name []byte) error {
		switch string(name) {
		case "retention":
			spec.Retention = new(time.Duration)
			if j.null() {
				return nil
			}
			s, err := j.stringOf("retention", aDuration)
			if err != nil {
				return err
			}
			if *spec.Retention, err = ParseDuration(string(s)); err != nil {
				return invalid("write a duration such as 7d, or null for no limit", "invalid retention %q", s)
			}
			return nil
		case "retention_bytes":
			n, _, err := j.integer("retention_bytes", 0, math.MaxInt64)
			spec.RetentionBytes = &n
			return err
		case "retention_past_queues":
			return boolInto(&spec.RetentionPastQueues)(j, "retention_past_queues")
		default:
			return j.unknown("config", name, "retention, retention_bytes, retention_past_queues")
		}
	})
}

const timestampLayout = httprecord.TimestampLayout

// parseTimestamp reads an RFC 3339 time, such as 2026-01-31T12:00:00.250Z.
func parseTimestamp(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.UnixMilli() < 0 {
		return time.Time{}, invalid("", "the timestamp is %q; it must be RFC 3339, such as 2026-01-31T12:00:00.250Z, from 1970 on", s)
	}
	return t, nil
}
