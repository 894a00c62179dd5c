package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/httprecord"
)

// topicBodyBytesMax bounds what describes a topic.
const topicBodyBytesMax = 64 << 10

type topicJSON struct {
	Name       string          `json:"name"`
	Partitions []partitionJSON `json:"partitions"`
	Config     configJSON      `json:"config"`
}

// configJSON has null where there is no limit.
type configJSON struct {
	Retention      *string `json:"retention"`
	RetentionBytes *int64  `json:"retention_bytes"`
}

type partitionJSON struct {
	Partition     int32      `json:"partition"`
	StartOffset   seb.Offset `json:"start_offset"`
	EndOffset     seb.Offset `json:"end_offset"`
	Bytes         int64      `json:"bytes"`
	LastTimestamp *string    `json:"last_timestamp"` // null before the first record
}

func toTopicJSON(t seb.Topic) topicJSON {
	j := topicJSON{Name: t.Name, Partitions: make([]partitionJSON, len(t.Partitions))}
	for i, p := range t.Partitions {
		j.Partitions[i] = toPartitionJSON(p)
	}
	if t.Config.Retention != 0 {
		j.Config.Retention = new(t.Config.Retention.String())
	}
	if t.Config.RetentionBytes != 0 {
		j.Config.RetentionBytes = &t.Config.RetentionBytes
	}
	return j
}

func toPartitionJSON(p seb.Partition) partitionJSON {
	j := partitionJSON{Partition: p.Partition, StartOffset: p.Start, EndOffset: p.End, Bytes: p.Bytes}
	if !p.LastTimestamp.IsZero() {
		j.LastTimestamp = new(p.LastTimestamp.UTC().Format(timestampLayout))
	}
	return j
}

// listTopics encodes topic by topic, since together they may be large.
func (h *Handler) listTopics(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	topics, err := h.broker.Topics(r.Context())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	out := newChunks(w)
	defer out.free()
	out.text(`{"topics":[`)
	first := true
	for _, t := range topics {
		if !w.access.MaySee(t.Name) {
			continue
		}
		if !first {
			out.text(",")
		}
		first = false
		b, err := json.Marshal(toTopicJSON(t))
		if err != nil {
			return fmt.Errorf("encode topic: %w", err)
		}
		out.bytes(b)
	}
	out.text("]}\n")
	return out.flush()
}

func (h *Handler) getTopic(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	t, err := h.broker.Topic(r.Context(), r.PathValue("topic"))
	if err != nil {
		return err
	}
	return h.writeTopic(w, http.StatusOK, t)
}

func (h *Handler) writeTopic(w *response, status int, t seb.Topic) error {
	w.Header().Set(topicIDHeader, h.broker.TopicTag(t.ID))
	return writeJSON(w, status, toTopicJSON(t))
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
		return invalid(`send {"partitions":4} to have four, or {"config":{"retention":"168h"}} to keep records a week`, "the body says nothing to change")
	}
	t, err := h.broker.UpdateTopic(r.Context(), r.PathValue("topic"), spec)
	if err != nil {
		return err
	}
	return h.writeTopic(w, http.StatusOK, t)
}

func (h *Handler) deleteTopic(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	if err := h.broker.DeleteTopic(r.Context(), r.PathValue("topic")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// deleteRecords moves the start of a partition. Both parameters have to be
// spelled out: a default would delete what nobody meant.
func (h *Handler) deleteRecords(w *response, r *http.Request) error {
	q, err := parseQuery(r, "partition", "before")
	if err != nil {
		return err
	}
	if q["partition"] == "" || q["before"] == "" {
		return invalid("such as ?partition=0&before=41, which keeps offset 41 and what follows", "partition and before have to be given")
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

// readTopicSpec returns what a body says about a topic; what it does not name is nil.
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

// topicConfig reads a config. null means no limit.
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
			s, err := j.string("retention")
			if err != nil {
				return err
			}
			if *spec.Retention, err = time.ParseDuration(string(s)); err != nil {
				return invalid("such as 168h; null keeps records for ever", "the retention %q is not a duration", s)
			}
			return nil
		case "retention_bytes":
			n, _, err := j.integer("retention_bytes", 0, math.MaxInt64)
			spec.RetentionBytes = &n
			return err
		default:
			return j.unknown("config", name, "retention, retention_bytes")
		}
	})
}

const timestampLayout = httprecord.TimestampLayout

// parseTimestamp reads an RFC 3339 time, such as 2026-01-31T12:00:00.250Z.
func parseTimestamp(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.UnixMilli() < 0 {
		return time.Time{}, invalid("", "the timestamp %q is not RFC 3339, such as 2026-01-31T12:00:00.250Z, from 1970 on", s)
	}
	return t, nil
}
