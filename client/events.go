package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	eventsType = "text/event-stream"

	// A broker sends a comment after 15 s without an event. A longer silence means that the connection is dead.
	streamSilenceMax = 35 * time.Second
	// bufferBytesMax is how many bytes of events a stream holds that its follower has not taken.
	bufferBytesMax = 1 << 20
	// eventBytesMax bounds an event, as bodyBytesMax bounds the response that has the same record. By default, the
	// largest record of a broker has 8 MiB, and six times as much in JSON if it consists of control characters.
	eventBytesMax = bodyBytesMax
)

var errEventTooLarge = errors.New("an event is too large for the client")

// event is a server-sent event.
type event struct {
	id, name string
	data     []byte
}

// readEvent reads the next event, which may consist of an id alone. It calls alive for each line. If a line, or the
// data of the event, has more than the given number of bytes, it returns errEventTooLarge.
func readEvent(r *bufio.Reader, most int, alive func()) (e event, err error) {
	for {
		line, err := readLine(r, most-len(e.data))
		if err != nil {
			return event{}, err
		}
		alive()
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "":
			if len(line) == 0 && (e.id != "" || e.data != nil) {
				return e, nil
			}
		case "id":
			e.id = string(value)
		case "event":
			e.name = string(value)
		case "data":
			e.data = append(e.data, value...)
		}
	}
}

// readLine reads a line, and returns it without its end. A line without an end was cut off. If the line has more than
// the given number of bytes, readLine returns errEventTooLarge.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) && len(long) <= most {
			line, err = r.ReadSlice('\n')
			long = append(long, line...)
		}
		line = long
	}
	if len(line) > most {
		return nil, errEventTooLarge
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'}), nil
}

// stream is an event stream of records. It reads ahead of its follower, within bufferBytesMax.
type stream struct {
	cancel context.CancelFunc
	more   chan struct{} // has a value when something was added, or the stream has ended

	mu      sync.Mutex
	taken   sync.Cond // signaled when records were taken
	records []seb.Record
	bytes   int64
	ended   bool
	err     error // why the stream ended for good; nil if it can be resumed
}

// openStream opens the stream of r, which begins with the id of its position. It returns that position.
func (c *Client) openStream(ctx context.Context, r *request) (s *stream, mark seb.Bookmark, err error) {
	r.header = http.Header{"Accept": {eventsType}}
	err = c.retry(ctx, r, func(ctx context.Context, server *url.URL, within time.Duration) error {
		s, mark, err = c.tryStream(ctx, server, r, within)
		return err
	})
	return s, mark, err
}

func (c *Client) tryStream(ctx context.Context, server *url.URL, r *request, within time.Duration) (*stream, seb.Bookmark, error) {
	streamCtx, giveUp := context.WithCancelCause(c.life)
	cancel := func() { giveUp(nil) }
	stop := context.AfterFunc(ctx, cancel) // once stop is called, the end of ctx no longer ends the stream
	within = min(within, streamSilenceMax)
	dead := time.AfterFunc(within, cancel)
	opened := c.watch(streamCtx, server, 0, timeLeft(ctx, within), giveUp)
	defer opened()
	fail := func(err error) (*stream, seb.Bookmark, error) {
		dead.Stop()
		cancel()
		return nil, seb.Bookmark{}, err
	}
	res, err := c.open(streamCtx, ctx, server, r) //nolint:bodyclose // the goroutine below closes it
	if err != nil {
		return fail(err)
	}
	body := bufio.NewReaderSize(res.Body, 64<<10)
	alive := func() { dead.Reset(streamSilenceMax) }
	first, err := readEvent(body, eventBytesMax, alive)
	if err != nil {
		res.Body.Close()
		if errors.Is(err, errEventTooLarge) {
			return fail(unexpected(server, err, false))
		}
		return fail(unanswered(ctx, server, err, false))
	}
	mark, err := seb.ParseBookmark(first.id)
	if err != nil || !stop() {
		res.Body.Close()
		if ctx.Err() != nil {
			return fail(unanswered(ctx, server, ctx.Err(), false))
		}
		return fail(unexpected(server, err, false))
	}
	s := &stream{cancel: cancel, more: make(chan struct{}, 1)}
	s.taken.L = &s.mu
	context.AfterFunc(streamCtx, s.wake)
	go func() {
		defer res.Body.Close()
		defer cancel()
		defer dead.Stop()
		at := mark
		at.Offsets = slices.Clone(mark.Offsets) // the follower changes its own
		s.end(s.pump(streamCtx, server, body, at, alive))
	}()
	return s, mark, nil
}

// pump reads events until the stream ends. at is the position of the stream. It returns an error if the stream can't be
// resumed.
func (s *stream) pump(ctx context.Context, server *url.URL, body *bufio.Reader, at seb.Bookmark, alive func()) error {
	for {
		e, err := readEvent(body, eventBytesMax, alive)
		switch {
		case errors.Is(err, errEventTooLarge):
			return unexpected(server, err, false)
		case err != nil:
			return nil //nolint:nilerr // the stream broke off, or the broker ended it: it can be resumed
		case e.name == "error":
			return errorOf(server, &http.Response{StatusCode: http.StatusOK, Header: http.Header{}}, e.data, false)
		case e.data == nil:
			continue
		}
		var j recordJSON
		err = json.Unmarshal(e.data, &j)
		if err == nil {
			err = checkNext(&at, j.Partition, j.Offset)
		}
		if err != nil {
			return unexpected(server, err, false)
		}
		r := j.record()
		at.Advance(r)
		if !s.add(ctx, r, int64(len(e.data))) {
			return nil
		}
	}
}

// checkNext returns an error unless the record at an offset of a partition is the next one of that partition after a
// bookmark.
func checkNext(after *seb.Bookmark, partition int32, offset seb.Offset) error {
	if after.Partition != seb.AllPartitions && partition != after.Partition || partition < 0 || partition >= seb.FollowPartitionsMax {
		return fmt.Errorf("the stream has a record of partition %d", partition)
	}
	i, want := 0, seb.Offset(0) // a partition that was added to the topic is read from offset 0
	if after.Partition == seb.AllPartitions {
		i = int(partition)
	}
	if i < len(after.Offsets) {
		want = after.Offsets[i]
	}
	if offset != want {
		return fmt.Errorf("the next record of partition %d in the stream has the offset %d, not %d", partition, offset, want)
	}
	return nil
}

// add adds a record when there is room. It returns false if ctx ends first.
func (s *stream) add(ctx context.Context, r seb.Record, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.bytes > 0 && s.bytes+n > bufferBytesMax && ctx.Err() == nil {
		s.taken.Wait()
	}
	s.records, s.bytes = append(s.records, r), s.bytes+n
	s.tell()
	return ctx.Err() == nil
}

// wake lets add see that the stream's context has ended.
func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken.Broadcast()
}

// end says that no further records come. The records that are there can still be taken.
func (s *stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.err = true, err
	s.tell()
}

func (s *stream) tell() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// take removes and returns the next records of one partition, within the bounds: the partition of the first record.
// Records of other partitions may have come between them.
func (s *stream) take(limit int, maxBytes int64) (rs []seb.Record, ended bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, left := int64(0), s.records[:0]
	for i, r := range s.records {
		if len(rs) > 0 && r.Partition != rs[0].Partition {
			left = append(left, r)
			continue
		}
		n := recordBytes(&r)
		if len(rs) == limit || len(rs) > 0 && size+n > maxBytes {
			left = append(left, s.records[i:]...)
			break
		}
		rs, size = append(rs, r), size+n
	}
	clear(s.records[len(left):])
	s.records = left
	if len(left) == 0 {
		s.records, s.bytes = nil, 0
		s.taken.Broadcast()
	}
	return rs, s.ended && len(left) == 0, s.err
}

// waiting tells whether there are records to take.
func (s *stream) waiting() (some, ended bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.records) > 0, s.ended, s.err
}

// recordBytes returns the size of a record's key, value and headers.
func recordBytes(r *seb.Record) int64 {
	n := int64(len(r.Key) + len(r.Value))
	for _, h := range r.Headers {
		n += int64(len(h.Name) + len(h.Value))
	}
	return n
}
