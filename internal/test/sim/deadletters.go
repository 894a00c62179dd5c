package sim

import (
	"slices"
	"strconv"
	"strings"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/record"
)

// deadLetterSuffix distinguishes the id of a dead letter's copy from the id of the record.
const deadLetterSuffix = " (dead letter)"

// deadLetters are the records that one commit makes dead letters, and the copies of dead letters that this
// commit appends to the dead-letter topic.
type deadLetters struct {
	sim     *simulation
	records []deadLetter
	copies  []deadLetter
}

// deadLetter names a dead letter as the headers of the copy do: by the queue, and by the record's place.
type deadLetter struct {
	topic, queue string
	spot
}

// name returns the id of a record in the log. A record with the headers of a dead letter's copy gets an id
// with deadLetterSuffix.
func (g *deadLetters) name(id string, headers []record.Header) string {
	var of deadLetter
	isCopy := false
	for _, h := range headers {
		var err error
		switch value := string(h.Value); h.Key {
		case seb.DeadTopicHeader:
			of.topic, isCopy = value, true
		case seb.DeadQueueHeader:
			of.queue = value
		case seb.DeadPartitionHeader:
			of.partition, err = strconv.Atoi(value)
		case seb.DeadOffsetHeader:
			var n int64
			n, err = strconv.ParseInt(value, 10, 64)
			of.offset = seb.Offset(n)
		}
		if err != nil {
			g.sim.history.violate("ParkedOnce", "the copy of %s has a header %s: %s", id, h.Key, h.Value)
		}
	}
	if !isCopy {
		return id
	}
	g.copies = append(g.copies, of)
	return id + deadLetterSuffix
}

// add notes that a record became a dead letter.
func (g *deadLetters) add(w *work, at spot) {
	if w.config.DeadLetterTopic != "" {
		g.records = append(g.records, deadLetter{w.of.name, w.name, at})
	}
}

// check expects one copy of every dead letter in the same commit, and no other copies.
func (g *deadLetters) check(at moment) {
	for _, all := range [][]deadLetter{g.records, g.copies} {
		slices.SortFunc(all, func(a, b deadLetter) int {
			return strings.Compare(a.String(), b.String())
		})
	}
	if !slices.Equal(g.records, g.copies) {
		g.sim.history.violate("ParkedOnce", "slot %d turns these records into dead letters: %v; but it has copies of these records: %v", at.seq, g.records, g.copies)
	}
}

func (g deadLetter) String() string {
	return g.topic + "/" + strconv.Itoa(g.partition) + "/" + strconv.FormatInt(int64(g.offset), 10) + " of " + g.queue
}
