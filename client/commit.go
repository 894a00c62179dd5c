package client

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/option"
)

// versionsHeader has the new versions of the consumers that a commit has moved.
const versionsHeader = "Seb-Versions"

// Commit does what [seb.Broker.Commit] does.
func (c *Client) Commit(ctx context.Context, commit seb.Commit, opts ...seb.AppendOption) (seb.Committed, error) {
	o := option.OfAppend(opts)
	if o.Partition >= 0 || o.Partitions != nil || o.Conditional || o.Delay != 0 || !o.Due.IsZero() {
		return seb.Committed{}, refusedWrite("a commit takes no option other than an idempotency key: give the option to an append of the commit")
	}
	if commit.Rides {
		return seb.Committed{}, refusedWrite("only a broker in the same process takes commits that ride")
	}
	body, err := commitBody(commit)
	if err != nil {
		return seb.Committed{}, err
	}
	res, err := c.sendKeyed(ctx, &request{
		method: http.MethodPost, path: []string{"commits"}, header: http.Header{}, body: body, writes: true,
	}, o)
	if err != nil {
		return seb.Committed{}, err
	}
	var j struct {
		Appends []appendedJSON `json:"appends"`
	}
	done := seb.Committed{Replayed: res.header.Get(replayedHeader) == "true"}
	if versions := res.header.Get(versionsHeader); versions != "" {
		done.Versions = strings.Split(versions, ", ")
	}
	err = res.decode(&j, func() error {
		switch {
		case j.Appends == nil || len(j.Appends) != len(commit.Appends):
			return fmt.Errorf("it has %d results for %d appends", len(j.Appends), len(commit.Appends))
		case !done.Replayed && len(done.Versions) != len(commit.Positions):
			return fmt.Errorf("it has %d versions for the positions of %d consumers", len(done.Versions), len(commit.Positions))
		}
		for i := range j.Appends {
			if err := j.Appends[i].check(commit.Appends[i].Topic, len(commit.Appends[i].Records)); err != nil {
				return fmt.Errorf("result %d: %w", i, err)
			}
		}
		return nil
	})
	if err != nil {
		return seb.Committed{}, err
	}
	for _, a := range j.Appends {
		done.Appends = append(done.Appends, a.appended(false))
	}
	return done, nil
}

// commitBody returns the JSON of a commit.
func commitBody(commit seb.Commit) ([]byte, error) {
	b := []byte(`{"appends":[`)
	for i, a := range commit.Appends {
		o := option.OfAppend(a.Options)
		part := fmt.Sprintf("appends/%d", i)
		switch {
		case o.Keyed:
			return nil, ofPart(part, refusedWrite("an append within a commit has no idempotency key of its own: pass IdempotencyKey to Commit"))
		case o.Partitions != nil && len(o.Partitions) != len(a.Records):
			return nil, ofPart(part, refusedWrite("%d partitions are given for %d records: give one partition for each record", len(o.Partitions), len(a.Records)))
		}
		if err := checkPartitions(a.Topic, o); err != nil {
			return nil, ofPart(part, err)
		}
		if err := checkHeaders(a.Records); err != nil {
			return nil, ofPart(part, err)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"topic":%s,`, jsonBody(a.Topic))
		if o.Partition >= 0 {
			b = fmt.Appendf(b, `"partition":%d,`, o.Partition)
		}
		if o.Conditional {
			b = fmt.Appendf(b, `"if_offset":%d,`, o.IfOffset)
		}
		if o.Delay != 0 {
			b = fmt.Appendf(b, `"delay":"%s",`, o.Delay)
		}
		if !o.Due.IsZero() {
			b = fmt.Appendf(b, `"deliver_at":"%s",`, o.Due.UTC().Format(time.RFC3339Nano))
		}
		b = append(b, `"records":`...)
		b = append(appendRecords(b, a.Records, o), '}')
	}
	b = append(b, `],"positions":`...)
	positions := make([]map[string]any, len(commit.Positions))
	for i, p := range commit.Positions {
		positions[i] = map[string]any{"topic": p.Topic, "consumer": p.Consumer, "offsets": offsetsJSON(p.Offsets)}
		if len(p.Expect) > 0 {
			positions[i]["expect"] = offsetsJSON(p.Expect)
		}
		if p.Version != "" {
			positions[i]["version"] = p.Version
		}
	}
	b = append(append(b, jsonBody(positions)...), `,"acks":`...)
	acks := make([]map[string]any, len(commit.Acks))
	for i, a := range commit.Acks {
		acks[i] = map[string]any{"topic": a.Topic, "queue": a.Queue, "tokens": a.Tokens}
	}
	b = append(b, jsonBody(acks)...)
	if len(commit.Ends) > 0 {
		ends := make([]map[string]any, len(commit.Ends))
		for i, t := range commit.Ends {
			ends[i] = map[string]any{"topic": t.Topic, "id": t.ID, "ends": offsetsJSON(t.Ends)}
		}
		b = append(append(b, `,"ends":`...), jsonBody(ends)...)
	}
	if !commit.After.IsZero() {
		b = fmt.Appendf(b, `,"after":"%s"`, commit.After.UTC().Format(time.RFC3339Nano))
	}
	return append(b, '}'), nil
}

// offsetsJSON returns offsets as the API takes them.
func offsetsJSON(o seb.Offsets) map[string]seb.Offset {
	m := make(map[string]seb.Offset, len(o))
	for p, offset := range o {
		m[strconv.Itoa(int(p))] = offset
	}
	return m
}

// refusedWrite returns the error of a write that the client does not send.
func refusedWrite(format string, args ...any) *seb.Error {
	return &seb.Error{Code: seb.CodeInvalidRequest, Detail: fmt.Sprintf(format, args...), Outcome: seb.NotCommitted}
}

func ofPart(part string, e *seb.Error) error {
	e.Part = part
	return e
}
