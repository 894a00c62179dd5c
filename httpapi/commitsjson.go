package httpapi

import (
	"context"
	"fmt"
	"math"

	"github.com/simple-event-broker/seb"
)

// The memory that the parts of a commit take at most, in addition to the body and the records.
const (
	partBytes   = 512 // a part or a condition, with its maps or options, and with the first token of an acknowledgement
	offsetBytes = 64  // an offset in a map; maps take the most memory per element just after they have grown
	tokenBytes  = 320 // each further token of an acknowledgement
)

const nameBytesMax = 255 // no valid name or token is longer

// commitJSONOf reads a commit from body. It refuses a part as soon as it has read a topic for which the caller lacks
// the scope of that part: may returns the error. Keys, headers and values are slices of body. The field out of the
// returned parser has the records; the caller of commitJSONOf frees it.
func (h *Handler) commitJSONOf(ctx context.Context, body []byte, may func(scope seb.Scopes, topic string) error) (*commitParser, error) {
	records, err := h.newRecordsParser(ctx, &appendSpec{partition: -1}, body)
	if err != nil {
		return nil, err
	}
	p := &commitParser{recordsParser: records, may: may, partsMax: h.limits.CommitParts}
	records.countMax = func(int) error { return h.checkRecordCount(len(p.out.list) + 1) } // the limit is for the records of all appends together
	if err := p.parse(); err != nil {
		p.out.free()
		return nil, err
	}
	p.out.parsed()
	return p, nil
}

// commitParser reads a commit part by part. The records of all appends go into one list.
type commitParser struct {
	*recordsParser
	may      func(scope seb.Scopes, topic string) error
	commit   seb.Commit
	ends     []int // for each append, the index in the list at which its records end
	parts    int
	partsMax int
}

func (p *commitParser) parse() error {
	err := p.json.object("a commit", func(name []byte) error {
		switch string(name) {
		case "appends":
			return p.list("appends", p.append)
		case "positions":
			return p.list("positions", p.position)
		case "acks":
			return p.list("acks", p.acks)
		case "ends":
			return p.list("ends", p.topicEnds)
		case "after":
			return ofPart("after", p.after())
		default:
			return p.json.unknown("a commit", name, "appends, positions, acks, ends, after")
		}
	})
	if err == nil {
		err = p.json.end()
	}
	from := 0
	for i, end := range p.ends {
		p.commit.Appends[i].Records = p.out.list[from:end:end]
		from = end
	}
	return err
}

// list reads a list of parts.
func (p *commitParser) list(what string, part func() error) error {
	return p.json.list(what, func(index int) error {
		if err := p.count(partBytes); err != nil {
			return err
		}
		return ofPart(fmt.Sprintf("%s/%d", what, index), part())
	})
}

// count counts a part or a token, and reserves memory for it.
func (p *commitParser) count(bytes int) error {
	if p.parts++; p.parts > p.partsMax {
		return &seb.Error{
			Code: seb.CodeRequestTooLarge, Outcome: seb.NotCommitted, Limit: int64(p.partsMax),
			Detail: fmt.Sprintf("the commit has more than %d parts", p.partsMax),
			Hint:   "make several commits, or ask the operator to raise --commit-parts-max of seb serve",
		}
	}
	return p.owe(bytes)
}

func (p *commitParser) append() error {
	var (
		a         seb.CommitAppend
		partition = int32(-1)
		first     = len(p.out.list)
	)
	p.partitions = nil
	err := p.json.object("an append", func(name []byte) error {
		switch string(name) {
		case "topic":
			var err error
			a.Topic, err = p.topic(seb.ScopeWrite)
			return err
		case "records":
			return p.json.list("records", func(index int) error { return inRecord(index, p.record(index)) })
		case "partition":
			n, given, err := p.json.integer("partition", 0, partitionMax)
			if given {
				partition = int32(n)
			}
			return err
		case "if_offset":
			n, given, err := p.json.integer("if_offset", 0, math.MaxInt64)
			if given {
				a.Options = append(a.Options, seb.IfOffset(seb.Offset(n)))
			}
			return err
		case "delay":
			return p.due(&a, "delay", aDuration, dueIn)
		case "deliver_at":
			return p.due(&a, "deliver_at", aTime, dueAt)
		default:
			return p.json.unknown("an append", name, "topic, records, partition, if_offset, delay, deliver_at")
		}
	})
	if err != nil {
		return err
	}
	if partition >= 0 {
		a.Options = append(a.Options, seb.ToPartition(partition))
	}
	if p.partitions != nil {
		a.Options = append(a.Options, seb.ToPartitions(p.partitions))
	}
	if len(p.out.list) == first {
		return invalid("give it records, or leave the append out", "the append has no records")
	}
	p.commit.Appends, p.ends = append(p.commit.Appends, a), append(p.ends, len(p.out.list))
	return nil
}

// due reads when queues may hand out the records of an append.
func (p *commitParser) due(a *seb.CommitAppend, name, form string, parse func(name, value string) (seb.AppendOption, error)) error {
	value, err := p.json.stringOf(name, form)
	if value == nil || err != nil {
		return err
	}
	opt, err := parse(name, string(value))
	if err == nil {
		a.Options = append(a.Options, opt)
	}
	return err
}

func (p *commitParser) position() error {
	var c seb.CommitPositions
	err := p.json.object("a position", func(name []byte) (err error) {
		switch string(name) {
		case "topic":
			c.Topic, err = p.topic(seb.ScopeRead)
		case "consumer":
			c.Consumer, err = p.name("consumer")
		case "expect":
			c.Expect, err = p.json.offsets("expect", p.offset)
		case "offsets":
			c.Offsets, err = p.json.offsets("offsets", p.offset)
		case "version":
			c.Version, err = p.name("version")
		default:
			err = p.json.unknown("a position", name, "topic, consumer, expect, version, offsets")
		}
		return err
	})
	p.commit.Positions = append(p.commit.Positions, c)
	return err
}

// acks reads the tokens of deliveries that the commit acknowledges.
func (p *commitParser) acks() error {
	var a seb.CommitAcks
	err := p.json.object("an acknowledgement", func(name []byte) (err error) {
		switch string(name) {
		case "topic":
			a.Topic, err = p.topic(seb.ScopeRead)
		case "queue":
			a.Queue, err = p.name("queue")
		case "tokens":
			err = p.json.list("tokens", func(index int) error {
				if index > 0 { // list has counted the first token together with the acknowledgement
					if err := p.count(tokenBytes); err != nil {
						return err
					}
				}
				token, err := p.name("token")
				a.Tokens = append(a.Tokens, token)
				return err
			})
		default:
			err = p.json.unknown("an acknowledgement", name, "topic, queue, tokens")
		}
		return err
	})
	p.commit.Acks = append(p.commit.Acks, a)
	return err
}

// topicEnds reads where a topic must end before the commit.
func (p *commitParser) topicEnds() error {
	var t seb.TopicCut
	err := p.json.object("an element of ends", func(name []byte) (err error) {
		switch string(name) {
		case "topic":
			t.Topic, err = p.topic(seb.ScopeRead)
		case "id":
			t.ID, err = p.name("id")
		case "ends":
			t.Ends, err = p.json.offsets("ends", p.offset)
		default:
			err = p.json.unknown("an element of ends", name, "topic, id, ends")
		}
		return err
	})
	p.commit.Ends = append(p.commit.Ends, t)
	return err
}

// after reads the time that the log time of the commit must be later than.
func (p *commitParser) after() error {
	value, err := p.json.stringOf("after", aTime)
	if value == nil || err != nil {
		return err
	}
	if p.commit.After, err = parseTimestamp(string(value)); err != nil {
		return invalid("", "after is %.100q; it must be RFC 3339, such as 2026-01-31T12:00:00.250125Z, from 1970 on", value)
	}
	return nil
}

// topic reads the topic of a part, for which the caller needs that scope.
func (p *commitParser) topic(scope seb.Scopes) (string, error) {
	topic, err := p.name("topic")
	if err == nil {
		err = p.may(scope, topic)
	}
	return topic, err
}

// name returns a copy of the name that follows in the body. It checks only the length of the name: the broker
// checks the rest.
func (p *commitParser) name(what string) (string, error) {
	s, err := p.json.string(what)
	if len(s) > nameBytesMax {
		return "", invalid("names have at most 249 bytes; send tokens unchanged", "the value of the field %s has %d bytes", what, len(s))
	}
	return string(s), err
}

func (p *commitParser) offset() error { return p.owe(offsetBytes) }
