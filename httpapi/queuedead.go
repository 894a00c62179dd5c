package httpapi

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	defaultDead = 100
	deadMax     = 1000
	redriveMax  = 10_000
)

// deadRecords answers with a page of a queue's dead letters.
func (h *Handler) deadRecords(w *response, r *http.Request) error {
	q, err := parseQuery(r, "limit", "next", valuesParameter)
	if err != nil {
		return err
	}
	jsonValues, err := q.jsonValues()
	if err != nil {
		return err
	}
	limit, err := q.count("limit", 1, deadMax, defaultDead)
	if err != nil {
		return err
	}
	from, err := parsePlace(q["next"])
	if err != nil {
		return err
	}
	m := h.newAnswerMemory(w)
	defer m.free()
	if err := m.take(r.Context(), seb.ShareAnswers, defaultReadBytes+limit*int64(recordStructBytes+messageBytes), time.Hour); err != nil {
		return err
	}
	opts := seb.DeadOptions{From: from, Limit: int(limit), MaxBytes: defaultReadBytes}
	dead, next, more, err := h.queue(r).Dead(r.Context(), opts)
	for err == nil && !m.settle(heldByDead(dead)) {
		held := heldByDead(dead)
		dead = nil
		if err = m.takeWhole(r.Context(), held); err == nil {
			dead, next, more, err = h.queue(r).Dead(r.Context(), opts)
		}
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", typeJSON)
	out := newChunks(w)
	defer out.free()
	out.jsonValues = jsonValues
	out.text(`{"messages":[`)
	for i := range dead {
		if i > 0 {
			out.text(",")
		}
		out.deadMessage(&dead[i])
	}
	return out.endPage(more, func() { out.text(strconv.Quote(placeText(next))) })
}

func heldByDead(dead []seb.DeadMessage) int64 {
	n := int64(len(dead)) * messageBytes
	for i := range dead {
		n += heldBy(&dead[i].Record)
	}
	return n
}

// deadMessage writes m as a JSON object. If the record can no longer be read, the object has only its
// partition and offset, not its key, value and headers.
func (c *chunks) deadMessage(m *seb.DeadMessage) {
	c.buf = append(c.buf, `{"attempts":`...)
	c.integer(int64(m.Attempts))
	c.buf = append(c.buf, `,"parked":"`...)
	c.buf = m.Parked.AppendFormat(c.buf, timestampLayout)
	c.buf = append(c.buf, `","reason":`...)
	c.quoted([]byte(strings.ToValidUTF8(m.Reason, "\uFFFD")))
	c.buf = append(c.buf, ',')
	if m.Timestamp.IsZero() {
		c.buf = fmt.Appendf(c.buf, `"partition":%d,"offset":%d`, m.Partition, m.Offset)
	} else {
		c.fields(&m.Record)
	}
	c.buf = append(c.buf, '}')
}

func placeText(p seb.Place) string { return fmt.Sprintf("%d:%d", p.Partition, p.Offset) }

// parsePlace reads the position at which a list of dead letters continues, such as 0:41. The text ""
// stands for the beginning of the list.
func parsePlace(s string) (p seb.Place, _ error) {
	if s == "" {
		return p, nil
	}
	partition, offset, _ := strings.Cut(s, ":")
	n, err := strconv.ParseUint(partition, 10, 31)
	o, err2 := strconv.ParseUint(offset, 10, 63)
	if err != nil || err2 != nil {
		return p, invalid("send the value of next from the previous response, such as 0:41", "invalid next %.100q", s)
	}
	return seb.Place{Partition: int32(n), Offset: seb.Offset(o)}, nil
}

// redrive makes dead letters ready, so that the queue hands out their records again.
func (h *Handler) redrive(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	body, err := h.readSpec(w, r, queueBodyBytesMax, "name fewer records, or none to redrive all")
	if err != nil {
		return err
	}
	opts, err := parseRedrive(body.data)
	body.free()
	if err != nil {
		return err
	}
	done, err := h.queue(r).Redrive(r.Context(), opts)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Redriven  int   `json:"redriven"`
		Remaining int64 `json:"remaining"`
	}{done.Records, done.Remaining})
}

func parseRedrive(body []byte) (o seb.RedriveOptions, _ error) {
	var limit *int
	named := false
	places := func(j *jsonReader, name string) error {
		named = true
		return j.list(name, func(int) error {
			p, err := j.place()
			if o.Places = append(o.Places, p); len(o.Places) > tokensMax {
				err = invalid("send them in several requests", "there are more than %d records", tokensMax)
			}
			return err
		})
	}
	err := parseFields(body, "a redrive", fields{{"limit", countInto(&limit, redriveMax)}, {"records", places}})
	switch {
	case err != nil:
		return o, err
	case named && len(o.Places) == 0:
		return o, invalid("leave records out to redrive all dead letters", "records is an empty list")
	case named && limit != nil:
		return o, invalid("leave one of them out", "records and limit exclude each other")
	case limit != nil:
		o.Limit = *limit
	}
	return o, nil
}

// place reads an object with a record's partition and offset.
func (j *jsonReader) place() (p seb.Place, _ error) {
	placed := false
	err := j.object("a record", func(name []byte) error {
		switch string(name) {
		case "partition":
			n, _, err := j.integer("partition", 0, partitionMax)
			p.Partition = int32(n)
			return err
		case "offset":
			n, given, err := j.integer("offset", 0, math.MaxInt64)
			p.Offset, placed = seb.Offset(n), given
			return err
		default:
			return j.unknown("a record", name, "partition, offset")
		}
	})
	if err == nil && !placed {
		err = invalid(`such as {"partition":0,"offset":41}`, "a record has no offset, before byte %d", j.at)
	}
	return p, err
}
