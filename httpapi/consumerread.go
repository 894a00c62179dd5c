package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/simple-event-broker/seb"
)

// readConsumer answers with records of all partitions, or of one partition, from the consumer's position on.
func (h *Handler) readConsumer(w *response, r *http.Request) error {
	mediaType, err := negotiate(r.Header.Values("Accept"))
	if err != nil {
		return err
	}
	if mediaType == typeEvents {
		return h.followConsumer(w, r)
	}
	spec, err := h.parseConsumerRead(r)
	if err == nil {
		err = spec.fits(mediaType)
	}
	if err != nil {
		return err
	}
	f, err := h.consumerFollower(w, r, spec.partition)
	if err != nil {
		return err
	}
	f, records, release, err := h.unread(w, r, f, spec)
	if err != nil {
		return err
	}
	defer release()
	offsets, err := json.Marshal(seb.After(records...))
	if err != nil {
		return fmt.Errorf("encode offsets: %w", err)
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Add("Vary", "Accept")
	w.Header().Set(topicIDHeader, h.broker.TopicTag(f.Bookmark().Topic))
	w.Header().Set("Seb-Next-Offsets", string(offsets))
	out := newChunks(w)
	defer out.free()
	out.jsonValues = spec.jsonValues
	switch mediaType {
	case typeBatch:
		if len(records) > 0 { // one answer has records of one partition
			w.Header().Set("Seb-Partition", strconv.Itoa(int(records[0].Partition)))
			w.Header().Set("Seb-Offset", strconv.FormatInt(int64(records[0].Offset), 10))
		}
		w.Header().Set("Content-Length", strconv.FormatInt(batchBytes(records), 10))
		return writeBatch(out, records)
	case typeJSON:
		out.records(records)
		out.text(`,"next_offsets":`)
		out.bytes(offsets)
		out.text("}\n")
		return out.flush()
	default:
		return writeNDJSON(out, records)
	}
}

// consumerFollower returns a follower that begins at the consumer's position. If the consumer does not
// exist, consumerFollower creates it. But a HEAD request never creates a consumer, and neither does a request
// of a web page from whose origin the broker refuses a POST.
func (h *Handler) consumerFollower(w *response, r *http.Request, partition int32) (*seb.Follower, error) {
	refusal := h.cors.checkEffect(r)
	if w.head || refusal != nil {
		_, err := h.consumer(r).Describe(r.Context())
		if seb.CodeOf(err) == seb.CodeConsumerNotFound && !w.head {
			return nil, refusal
		}
		if err != nil {
			return nil, err
		}
	}
	return h.consumer(r).Follower(r.Context(), partition)
}

func (h *Handler) parseConsumerRead(r *http.Request) (readSpec, error) {
	var s readSpec
	q, err := parseQuery(r, "partition", "limit", "max_bytes", "wait", valuesParameter)
	if err != nil {
		return s, err
	}
	if s.partition, err = q.partition(seb.AllPartitions); err != nil {
		return s, err
	}
	return s, h.parseBounds(q, &s)
}

// unread returns the next records of one partition. If f reads all partitions, the partitions take
// turns. The memory of the records is reserved until release is called. While unread waits for
// records, no memory is reserved. It returns the follower that has read the records.
func (h *Handler) unread(w *response, r *http.Request, f *seb.Follower, spec readSpec) (_ *seb.Follower, records []seb.Record, release func(), err error) {
	deadline := time.Now().Add(spec.wait)
	for {
		again := false
		release, err = h.withMemory(w, spec, func(opts seb.FetchOptions) ([]seb.Record, error) {
			if again { // f has moved past the records that were read, but there was no memory for them: begin again
				records = nil
				if f, err = h.consumerFollower(w, r, spec.partition); err != nil {
					return nil, err
				}
			}
			again = true
			records, err = f.Next(r.Context(), opts)
			return records, err
		})
		wait := time.Until(deadline)
		if err != nil || len(records) > 0 || wait <= 0 || h.drained() {
			return f, records, release, err
		}
		release()
		err = h.untilDrained(w.clientContext, func(ctx context.Context) error {
			_, err := f.Wait(ctx, wait)
			return err
		})
		if err != nil {
			return nil, nil, nil, err
		}
	}
}

// followConsumer answers with a stream of server-sent events that begins at the consumer's
// position, or after the last event that the client has received.
func (h *Handler) followConsumer(w *response, r *http.Request) error {
	q, err := parseQuery(r, "partition", "last_event_id", valuesParameter)
	if err != nil {
		return err
	}
	partition, err := q.partition(seb.AllPartitions)
	if err != nil {
		return err
	}
	jsonValues, err := q.jsonValues()
	if err != nil {
		return err
	}
	f, err := h.resumed(r, q, partition)
	switch {
	case err != nil:
	case f == nil:
		// NewFollower finds out whether the request can be streamed: a request that can't must create no consumer.
		if _, err = h.broker.NewFollower(r.Context(), r.PathValue("topic"), partition, seb.Latest); err == nil {
			f, err = h.consumerFollower(w, r, partition)
		}
	default: // the consumer may have been deleted since the client read its first event
		_, err = h.consumer(r).Describe(r.Context())
		if seb.CodeOf(err) == seb.CodeConsumerNotFound && !w.head {
			if err = h.cors.checkEffect(r); err == nil {
				_, _, err = h.consumer(r).Create(r.Context())
			}
		}
	}
	if seb.CodeOf(err) == seb.CodeTooManyPartitions || err == nil && len(f.Bookmark().Offsets) == 0 {
		return &seb.Error{
			Code: seb.CodeTooManyPartitions, Limit: seb.FollowPartitionsMax,
			Detail: fmt.Sprintf("the topic has more than %d partitions, the most that the id of an event can hold", seb.FollowPartitionsMax),
			Hint:   "name a partition; or, to read all partitions in turn, leave out Accept: text/event-stream",
		}
	}
	if err != nil {
		return err
	}
	return h.stream(w, r, f, jsonValues)
}
