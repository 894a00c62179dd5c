package seb

import "time"

// Fill tells how full the open batch is.
type Fill struct {
	Requests int           // appends that wait in it
	Bytes    int64         // their records' bytes, as encoded
	Age      time.Duration // since the first of them arrived
}

// Batching decides when the open batch, which holds the records of all topics
// that wait to be committed, becomes a commit. While a commit is under way the
// next batch gathers, whatever Batching says.
type Batching interface {
	// Wait returns how much longer the open batch may gather; 0 or less
	// commits it as soon as the log is free. It is asked again whenever an
	// append joins. It must not block.
	Wait(open Fill) time.Duration

	// Admits tells whether one more append may join an open batch that holds
	// at least one. An append that may not joins the commit after it.
	Admits(open Fill) bool
}

// Timed waits linger after the first record, or until bytes have gathered: few
// commits, so few requests to pay for, at the price of linger's latency.
func Timed(linger time.Duration, bytes int64) Batching { return timed{linger, bytes} }

// Immediate commits at once; what arrives during a commit forms the next one.
func Immediate() Batching { return immediate{} }

// Each makes one commit per append. It is for tests and costs a request each.
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
