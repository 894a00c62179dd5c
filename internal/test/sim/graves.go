package sim

import (
	"slices"
	"strconv"
	"strings"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/record"
)

// parkedSuffix tells the copy of a record in the dead-letter topic from the record.
const parkedSuffix = " (parked)"

// graves are the records that one commit parks, and their copies in it.
type graves struct {
	sim    *simulation
	parked []grave
	copies []grave
}

// grave is where a record was that is parked, and of which queue, as its copy tells.
type grave struct {
	topic, queue string
	spot
}

// name returns the id of a record, another one if it is the copy of one that is parked.
func (g *graves) name(id string, headers []record.Header) string {
	var of grave
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
	return id + parkedSuffix
}

// park notes that a record is parked.
func (g *graves) park(w *work, at spot) {
	if w.config.DeadLetterTopic != "" {
		g.parked = append(g.parked, grave{w.of.name, w.name, at})
	}
}

// check expects one copy of every record that is parked, in the same commit, and no others.
func (g *graves) check(at moment) {
	for _, all := range [][]grave{g.parked, g.copies} {
		slices.SortFunc(all, func(a, b grave) int {
			return strings.Compare(a.String(), b.String())
		})
	}
	if !slices.Equal(g.parked, g.copies) {
		g.sim.history.violate("ParkedOnce", "slot %d parks %v, and has copies of %v", at.seq, g.parked, g.copies)
	}
}

func (g grave) String() string {
	return g.topic + "/" + strconv.Itoa(g.partition) + "/" + strconv.FormatInt(int64(g.offset), 10) + " of " + g.queue
}
