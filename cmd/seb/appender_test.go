package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

// appendPause is the longest wait of an appender after a refusal.
const appendPause = 20 * time.Millisecond

// mix returns the sizes of the records of one append.
type mix func() []int

// smallRecords are a few records of up to 2 kB.
func smallRecords() []int {
	sizes := make([]int, 1+rand.IntN(5))
	for i := range sizes {
		sizes[i] = rand.IntN(2000)
	}
	return sizes
}

// mixedRecords are small records, and at times more than fits into a commit, so that data objects are
// written.
func mixedRecords() []int {
	if rand.IntN(40) > 0 {
		return smallRecords()
	}
	return []int{1 << 20, rand.IntN(2000), 2 << 20, 3<<19 + rand.IntN(1<<19)}
}

// appender appends to one partition as fast as it gets answers. It never sends a record twice.
type appender struct {
	id     int
	target *target
	mix    mix
	loose  bool // see load

	calls []call
	count int
}

// call is an append that reached a broker, or may have.
type call struct {
	names  []string
	sums   []uint64
	fate   seb.Outcome // "" if it was acknowledged
	offset int         // if the call was acknowledged
}

func (a *appender) partition() int { return a.id % loadPartitions }

// end is the offset after the last record that was acknowledged.
func (a *appender) end() int {
	for i := len(a.calls) - 1; i >= 0; i-- {
		if c := a.calls[i]; c.fate == "" {
			return c.offset + len(c.names)
		}
	}
	return 0
}

// run appends until ctx ends. requests is the context of its requests, so that it waits for the last
// answer.
func (a *appender) run(ctx, requests context.Context, t *testing.T) {
	for ctx.Err() == nil {
		broker, moved := a.target.get()
		c, b := a.next()
		answer, err := a.post(requests, broker, b)
		if err == nil {
			c.offset = answer
			a.calls = append(a.calls, c)
			a.target.acks.Add(1)
			continue
		}
		cutOff := a.loose && isCutOff(err)
		answered := seb.CodeOf(err) != client.CodeUnreachable
		switch {
		case !retryable(err) && !cutOff:
			t.Errorf("append %s: %v", c.names[0], err)
			return
		case answered:
			a.target.refusals.Add(1)
		}
		c.fate = seb.OutcomeOf(err)
		// A call that reached no broker is not noted: if the log had its records, the check would find no
		// sender for them.
		if answered || c.fate == seb.Unknown {
			a.calls = append(a.calls, c)
		}
		select {
		case <-moved:
		case <-time.After(rand.N(appendPause)):
		case <-ctx.Done():
		}
	}
}

// isCutOff tells whether a broker refused a request because it may have got only a part of it.
func isCutOff(err error) bool {
	status, foreign := errors.AsType[client.StatusError](err)
	return seb.CodeOf(err) == seb.CodeInvalidRequest || foreign && status == http.StatusBadRequest
}

// next makes the records of the next call. Each has a unique name, and unpredictable bytes.
func (a *appender) next() (call, *recordBatch) {
	var c call
	b := &recordBatch{}
	b.reset()
	for _, size := range a.mix() {
		name := fmt.Sprintf("%d-%07d", a.id, a.count)
		a.count++
		value := append([]byte(name+"-"), noise(size)...)
		b.add(value)
		c.names, c.sums = append(c.names, name), append(c.sums, checksum(value))
	}
	return c, b
}

// recordName returns the name that begins a value.
func recordName(value []byte) string {
	id, rest, _ := bytes.Cut(value, []byte("-"))
	count, _, _ := bytes.Cut(rest, []byte("-"))
	return string(id) + "-" + string(count)
}

var checksumSeed = maphash.MakeSeed()

func checksum(value []byte) uint64 { return maphash.Bytes(checksumSeed, value) }

var noiseBytes = func() []byte {
	b := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // it never fails
	return b
}()

// noise returns that many bytes from a random position in noiseBytes.
func noise(size int) []byte {
	at := rand.IntN(len(noiseBytes) - size + 1)
	return noiseBytes[at : at+size]
}

// post waits long for the answer: a broker that is suspended may carry out the request when it continues.
func (a *appender) post(ctx context.Context, broker *client.Client, b *recordBatch) (offset int, err error) {
	answer, err := broker.AppendEncoded(ctx, loadTopic, b.encoding(), b.body(), seb.ToPartition(int32(a.partition())))
	if err != nil {
		return 0, err
	}
	if len(answer.Ranges) != 1 || answer.Count != b.count() {
		return 0, fmt.Errorf("answered %+v", answer)
	}
	return int(answer.Ranges[0].Offset), nil
}
