package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/simple-event-broker/seb"
)

// topicBodyBytesMax bounds what describes a topic.
const topicBodyBytesMax = 64 << 10

type topicJSON struct {
	Name       string          `json:"name"`
	Partitions []partitionJSON `json:"partitions"`
	Config     struct{}        `json:"config"`
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
		j.Partitions[i] = partitionJSON{Partition: p.Partition, StartOffset: p.Start, EndOffset: p.End, Bytes: p.Bytes}
		if !p.LastTimestamp.IsZero() {
			s := p.LastTimestamp.UTC().Format(timestampLayout)
			j.Partitions[i].LastTimestamp = &s
		}
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
	for i, t := range topics {
		if i > 0 {
			out.text(",")
		}
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
	return writeJSON(w, http.StatusOK, toTopicJSON(t))
}

func (h *Handler) putTopic(w *response, r *http.Request) error {
	spec, err := h.readTopicSpec(w, r)
	if err != nil {
		return err
	}
	t, created, err := h.broker.CreateTopic(r.Context(), r.PathValue("topic"), seb.TopicOptions{Partitions: spec.partitions})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return writeJSON(w, status, toTopicJSON(t))
}

func (h *Handler) patchTopic(w *response, r *http.Request) error {
	spec, err := h.readTopicSpec(w, r)
	if err != nil {
		return err
	}
	if spec.partitions == 0 {
		return invalid(`send {"partitions":4} to have four`, "the body says nothing to change")
	}
	t, err := h.broker.AddPartitions(r.Context(), r.PathValue("topic"), spec.partitions)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, toTopicJSON(t))
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

// topicSpec is what a body says about a topic; zero fields weren't given.
type topicSpec struct {
	partitions int32
}

func (h *Handler) readTopicSpec(w *response, r *http.Request) (topicSpec, error) {
	if _, err := parseQuery(r); err != nil {
		return topicSpec{}, err
	}
	body, err := h.readBody(w, r, topicBodyBytesMax)
	if err != nil {
		return topicSpec{}, err
	}
	defer body.free()
	if len(bytes.TrimSpace(body.data)) == 0 {
		return topicSpec{}, nil
	}
	return parseTopicSpec(body.data)
}

func parseTopicSpec(body []byte) (spec topicSpec, err error) {
	j, err := newJSONReader(body)
	if err != nil {
		return spec, err
	}
	err = j.object("a topic", func(name []byte) error {
		switch string(name) {
		case "partitions":
			n, _, err := j.integer("partitions", 1, math.MaxInt32)
			spec.partitions = int32(n)
			return err
		case "config":
			return j.emptyConfig()
		default:
			return j.unknown("a topic", name, "partitions, config")
		}
	})
	if err != nil {
		return spec, err
	}
	return spec, j.end()
}

// emptyConfig reads a config. There are no keys yet, so any is one too many.
func (j *jsonReader) emptyConfig() error {
	if j.null() {
		return nil
	}
	return j.object("config", func(name []byte) error {
		return invalid("leave config out or empty", "unknown config key %q", name)
	})
}

// timestampLayout is RFC 3339 with the log's precision.
const timestampLayout = "2006-01-02T15:04:05.000Z07:00"

// parseTimestamp reads an RFC 3339 time, such as 2026-01-31T12:00:00.250Z.
func parseTimestamp(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.UnixMilli() < 0 {
		return time.Time{}, invalid("", "the timestamp %q is not RFC 3339, such as 2026-01-31T12:00:00.250Z, from 1970 on", s)
	}
	return t, nil
}
