package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/httprecord"
)

// The memory that a cut takes at most.
const (
	cutTopicBytes = 1024            // a topic, without its ends
	cutEndBytes   = offsetBytes + 8 // an end, in the map and in a list
)

// cutSpec is what a client asks for when it takes a cut.
type cutSpec struct {
	topics []string
	later  time.Time // zero: do not wait
	wait   time.Duration
}

func parseCut(r *http.Request) (s cutSpec, err error) {
	if err := refuseHeaders(r.Header); err != nil {
		return s, err
	}
	values, err := parseValues(r, "topic", "later", "wait")
	if err != nil {
		return s, err
	}
	if s.topics = values["topic"]; len(s.topics) == 0 {
		return s, invalid("name each topic, such as ?topic=orders&topic=payments", "the query names no topic")
	}
	delete(values, "topic")
	q, err := single(values)
	if err != nil {
		return s, err
	}
	if s.wait, err = q.duration("wait", readWaitMax); err != nil {
		return s, err
	}
	if at, given := q["later"]; !given && s.wait > 0 {
		return s, invalid("give later, the log_time of an earlier cut, or leave wait out", "wait has no effect without later")
	} else if given {
		s.later, err = parseTime("later", at)
	}
	return s, err
}

// getCut answers with the ends of the topics that the query names, and the log's time. If the query has a time, getCut waits
// for a later commit. When the wait is over, it answers with the cut of the last commit.
func (h *Handler) getCut(w *response, r *http.Request) error {
	spec, err := parseCut(r)
	if err != nil {
		return err
	}
	for _, topic := range spec.topics {
		if err := h.mayDo(w, seb.ScopeRead, topic); err != nil {
			return err
		}
	}
	deadline := time.Now().Add(spec.wait)
	for {
		cut, release, err := h.cutNow(w, r, spec)
		wait := time.Until(deadline)
		switch {
		case err != nil:
			return err
		case cut.LogTime.After(spec.later) || wait <= 0 || h.drained():
			defer release()
			size := 0
			for _, t := range cut.Topics {
				size += cutTopicBytes/100 + len(t.Ends) // a partition of other answers takes about 100 bytes
			}
			return writePartitions(w, http.StatusOK, size, func(c *chunks) { c.cut(&cut) })
		}
		release()
		if err := h.awaitCut(w, spec.topics[:1], spec.later, wait); err != nil {
			return err
		}
	}
}

// cutNow returns a cut without waiting for a commit. Its memory is reserved until release is called.
func (h *Handler) cutNow(w *response, r *http.Request, spec cutSpec) (_ seb.Cut, release func(), _ error) {
	release, err := h.reserveFor(w)(r.Context(), chunkReserved+h.cutBytes(spec.topics))
	if err != nil {
		return seb.Cut{}, nil, err
	}
	o := seb.CutOptions{}
	if !spec.later.IsZero() {
		o.Later = time.Unix(0, 0) // each commit is later: so Cut neither waits nor syncs
	}
	cut, err := h.broker.Cut(r.Context(), spec.topics, o)
	if err != nil {
		release()
	}
	return cut, release, err
}

// awaitCut waits for a commit after a time. Meanwhile only the memory of a cut of the topics is reserved.
func (h *Handler) awaitCut(w *response, topics []string, later time.Time, wait time.Duration) error {
	release, err := h.reserveFor(w)(w.clientContext, h.cutBytes(topics))
	if err != nil {
		return err
	}
	defer release()
	return h.untilDrained(w.clientContext, func(ctx context.Context) error {
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		_, err := h.broker.Cut(waiting, topics, seb.CutOptions{Later: later})
		if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		return err
	})
}

// cutBytes returns about the memory that a cut of the topics takes.
func (h *Handler) cutBytes(topics []string) int64 {
	n := int64(len(topics)) * cutTopicBytes
	for _, topic := range topics {
		n += int64(h.broker.PartitionCount(topic)) * cutEndBytes
	}
	return n
}

// cut writes a cut as a JSON object. Its topics have the form that a commit takes as ends.
func (c *chunks) cut(cut *seb.Cut) {
	c.text(`{"log_time":"`)
	c.buf = cut.LogTime.AppendFormat(c.buf, httprecord.LogTimeLayout)
	c.text(`","store_time":"`)
	c.buf = cut.StoreTime.UTC().AppendFormat(c.buf, httprecord.LogTimeLayout)
	c.text(`","store_time_age":"`)
	c.text(cut.StoreTimeAge.Round(time.Millisecond).String())
	c.text(`","topics":[`)
	for i, t := range cut.Topics {
		if i > 0 {
			c.text(",")
		}
		c.text(`{"topic":`)
		c.quoted([]byte(t.Topic))
		c.text(`,"id":`)
		c.quoted([]byte(t.ID))
		c.text(`,"ends":{`)
		for p := range int32(len(t.Ends)) {
			if p > 0 {
				c.text(",")
			}
			c.text(`"`)
			c.integer(int64(p))
			c.text(`":`)
			c.integer(int64(t.Ends[p]))
		}
		c.text("}}")
	}
	c.text("]}")
}
