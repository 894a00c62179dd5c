package httpapi

import (
	"net/http"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/httprecord"
)

// The memory that a cut takes at most.
const (
	cutTopicBytes = 1024            // a topic, without its ends
	cutEndBytes   = offsetBytes + 8 // an end, in the map and in a list
)

// getCut answers with the ends of the topics that the query names, and the log's time.
func (h *Handler) getCut(w *response, r *http.Request) error {
	if err := refuseHeaders(r.Header); err != nil {
		return err
	}
	values, err := parseValues(r, "topic")
	if err != nil {
		return err
	}
	topics := values["topic"]
	if len(topics) == 0 {
		return invalid("name each topic, such as ?topic=orders&topic=payments", "the query names no topic")
	}
	n := int64(len(topics)) * cutTopicBytes
	for _, topic := range topics {
		if err := h.mayDo(w, seb.ScopeRead, topic); err != nil {
			return err
		}
		n += int64(h.broker.PartitionCount(topic)) * cutEndBytes
	}
	release, err := h.reserveFor(w)(r.Context(), chunkReserved+n)
	if err != nil {
		return err
	}
	defer release()
	cut, err := h.broker.Cut(r.Context(), topics)
	if err != nil {
		return err
	}
	size := 0
	for _, t := range cut.Topics {
		size += cutTopicBytes/100 + len(t.Ends) // a partition of other answers takes about 100 bytes
	}
	return writePartitions(w, http.StatusOK, size, func(c *chunks) { c.cut(&cut) })
}

// cut writes a cut as a JSON object. Its topics have the form that a commit takes as ends.
func (c *chunks) cut(cut *seb.Cut) {
	c.text(`{"log_time":"`)
	c.buf = cut.LogTime.AppendFormat(c.buf, httprecord.LogTimeLayout)
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
