package seb

import (
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
)

// Fill says how full the open batch is.
type Fill struct {
	Requests int           // appends in it
	Bytes    int64         // their records' bytes, as encoded
	Age      time.Duration // since the first of them arrived
}

// Batching decides when the open batch, which holds the waiting records of all
// topics, becomes a commit. While a commit is under way the next batch fills up,
// whatever Batching says.
type Batching interface {
	// Wait returns how much longer the open batch stays open; 0 or less
	// commits it as soon as the log is free. The broker calls it again whenever
	// an append joins. It must not block.
	Wait(open Fill) time.Duration

	// Admits tells whether one more append may join an open batch that holds
	// at least one. Otherwise the append joins the next commit.
	Admits(open Fill) bool
}

// Timed waits for linger after the first record, or until the batch has that many
// bytes: few commits, so few requests to pay for, at the price of linger's latency.
func Timed(linger time.Duration, bytes int64) Batching { return timed{linger, bytes} }

// Immediate commits at once; appends that arrive during a commit form the next one.
func Immediate() Batching { return immediate{} }

// Each makes one commit per append, so each append costs a request. It is for tests.
func Each() Batching { return each{} }

type timed struct {
	linger time.Duration
	bytes  int64
}

func (t timed) Wait(open Fill) time.Duration {
	if open.Bytes >= t.bytes {
		return 0
	}
	return t.linger - open.Age
}

func (timed) Admits(Fill) bool { return true }

type immediate struct{}

func (immediate) Wait(Fill) time.Duration { return 0 }
func (immediate) Admits(Fill) bool        { return true }

type each struct{}

func (each) Wait(Fill) time.Duration { return 0 }
func (each) Admits(Fill) bool        { return false }

// batching is a Batching as the engine needs it.
type batching struct{ of Batching }

func (b batching) Wait(open engine.Fill) time.Duration { return b.of.Wait(Fill(open)) }
func (b batching) Admits(open engine.Fill) bool        { return b.of.Admits(Fill(open)) }
