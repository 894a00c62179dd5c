package httpapi

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/simple-event-broker/seb"
)

// recordsJSONOf returns a record for each element of {"records":[…]}. Values, keys and headers are slices of
// body, which is overwritten. Base64 is decoded into new memory.
func (h *Handler) recordsJSONOf(ctx context.Context, spec *appendSpec, body []byte) (*recordList, error) {
	p, err := h.newRecordsParser(ctx, spec, body)
	if err != nil {
		return nil, err
	}
	if err := p.parse(); err != nil {
		p.out.free()
		return nil, err
	}
	spec.partitions = p.partitions
	return p.out, nil
}

// newRecordsParser returns a parser of body with an empty list of records. The caller frees that list.
func (h *Handler) newRecordsParser(ctx context.Context, spec *appendSpec, body []byte) (*recordsParser, error) {
	j, err := newJSONReader(body)
	if err != nil {
		return nil, err
	}
	l, err := h.newRecordList(ctx, 0)
	if err != nil {
		return nil, err
	}
	return &recordsParser{
		json: j, out: l, partition: spec.partition, headersMax: h.limits.RecordHeaders, countMax: h.checkRecordCount,
		reserve: func(n int) error { return l.grow(ctx, h, n) },
	}, nil
}

// recordsParser reads records one by one. It reserves the memory that it allocates in addition to the body,
// in steps of reservedRecordBytes or more.
type recordsParser struct {
	json       *jsonReader
	out        *recordList
	partition  int32   // the partition of records that name no partition
	partitions []int32 // the partition of each record; nil until a record names a partition

	headersMax int
	countMax   func(count int) error
	reserve    func(bytes int) error
	owed       int // bytes that are not reserved yet: see owe
}

func (p *recordsParser) parse() error {
	err := p.json.object("the body", func(name []byte) error {
		if string(name) != "records" {
			return p.json.unknown("the body", name, "records")
		}
		return p.json.list("records", func(index int) error { return inRecord(index, p.record(index)) })
	})
	if err != nil {
		return err
	}
	return p.json.end()
}

// inRecord returns err with the index of the record that caused it. Errors about the size of the whole request
// stay as they are.
func inRecord(index int, err error) error {
	var e *seb.Error
	if !errors.As(err, &e) || e.Code == seb.CodeOverMemoryBudget || e.Code == seb.CodeRequestTooLarge {
		return err
	}
	told := *e
	told.Detail = fmt.Sprintf("record %d: %s", index, e.Detail)
	return &told
}

func (p *recordsParser) record(index int) error {
	if err := p.countMax(index + 1); err != nil {
		return err
	}
	var rec parsedRecord
	if err := p.json.object("a record", func(name []byte) error { return p.field(&rec, name) }); err != nil {
		return err
	}
	switch {
	case rec.values == 0:
		return invalid("give it one of value, value_base64, value_json; an empty value is an empty string", "there is no value")
	case rec.values > 1 || rec.keys > 1:
		return invalid("", "there is more than one value or more than one key")
	}
	// While the list grows, each record may be in memory twice for a moment.
	if err := p.owe(2*recordStructBytes + len(rec.Headers)*headerStructBytes); err != nil {
		return err
	}
	p.out.list = append(p.out.list, rec.Record)
	p.place(index, rec)
	return nil
}

// owe counts bytes that the caller is about to allocate. When the sum reaches reservedRecordBytes,
// owe reserves that sum.
func (p *recordsParser) owe(bytes int) error {
	if p.owed += bytes; p.owed < reservedRecordBytes {
		return nil
	}
	owed := p.owed
	p.owed = 0
	return p.reserve(owed)
}

// place stores the record's partition in the list of partitions. The first record that names a partition
// creates the list.
func (p *recordsParser) place(index int, rec parsedRecord) {
	if rec.placed && p.partitions == nil {
		p.partitions = make([]int32, index, index+1)
		for i := range p.partitions {
			p.partitions[i] = p.partition
		}
	}
	switch {
	case rec.placed:
		p.partitions = append(p.partitions, rec.Partition)
	case p.partitions != nil:
		p.partitions = append(p.partitions, p.partition)
	}
}

// parsedRecord is a record whose fields are being read.
type parsedRecord struct {
	seb.Record
	values, keys int  // how many fields for the value, and for the key, were given
	placed       bool // the record names a partition
}

const recordFields = "value, value_base64, value_json, key, key_base64, headers, headers_base64, timestamp, partition"

func (p *recordsParser) field(r *parsedRecord, name []byte) (err error) {
	var b []byte
	switch string(name) {
	case "value":
		b, err = p.json.stringOf("value", "a string (value_json takes any JSON)")
		given(&r.Value, &r.values, b)
	case "value_base64":
		b, err = p.base64("value_base64")
		given(&r.Value, &r.values, b)
	case "value_json":
		b, err = p.json.raw()
		given(&r.Value, &r.values, b)
	case "key":
		b, err = p.json.string("key")
		given(&r.Key, &r.keys, b)
	case "key_base64":
		b, err = p.base64("key_base64")
		given(&r.Key, &r.keys, b)
	case "headers":
		err = p.headers("headers", "headers: a value", r, p.json.string)
	case "headers_base64":
		err = p.headers("headers_base64", "headers_base64: a value", r, p.base64)
	case "timestamp":
		if b, err = p.json.stringOf("timestamp", aTime); b != nil {
			r.Timestamp, err = parseTimestamp(string(b))
		}
	case "partition":
		var n int64
		n, r.placed, err = p.json.integer("partition", 0, partitionMax)
		r.Partition = int32(n)
	default:
		err = p.json.unknown("a record", name, recordFields)
	}
	return err
}

// given stores b and increments count. If b is nil, given does nothing.
func given(into *[]byte, count *int, b []byte) {
	if b != nil {
		*into = b
		*count++
	}
}

// base64 reads a string and decodes it. If the value is null, base64 returns nil.
func (p *recordsParser) base64(what string) ([]byte, error) {
	s, err := p.json.string(what)
	if err != nil || s == nil {
		return nil, err
	}
	size := base64.StdEncoding.DecodedLen(len(s))
	if err := p.owe(size); err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.Strict().AppendDecode(make([]byte, 0, size), s)
	if err != nil {
		return nil, invalid("use the standard alphabet, with padding", "%s is not base64, before byte %d", what, p.json.at)
	}
	return b, nil
}

// headers reads an object such as {"name":"value","repeated":["a","b"]} and adds these headers to r. It calls the
// function read for each value. In errors, what names the object, and each names a value.
func (p *recordsParser) headers(what, each string, r *parsedRecord, read func(what string) ([]byte, error)) error {
	if p.json.null() {
		return nil
	}
	return p.json.object(what, func(name []byte) error {
		header := string(name)
		add := func(int) error {
			b, err := read(each)
			switch {
			case err != nil:
				return err
			case b == nil:
				return invalid("", "%q in %s is null", name, what)
			case len(r.Headers) == p.headersMax:
				return &seb.Error{
					Code: seb.CodeTooManyHeaders, Outcome: seb.NotCommitted, Limit: int64(p.headersMax),
					Detail: fmt.Sprintf("there are more than %d headers", p.headersMax),
				}
			}
			r.Headers = append(r.Headers, seb.Header{Name: header, Value: b})
			return nil
		}
		if p.json.peek() != '[' {
			return add(0)
		}
		before := len(r.Headers)
		if err := p.json.list(what, add); err != nil {
			return err
		}
		if len(r.Headers) == before {
			return invalid("leave it out", "%q in %s is an empty list", name, what)
		}
		return nil
	})
}
