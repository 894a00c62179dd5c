// Package commitlog is Seb's log: the rules by which brokers that share a bucket agree on its
// content, and the requests to the store that carry out those rules.
//
// The package has two layers. [Protocol] (protocol.go) holds every decision: which answer of
// the store counts, when a slot is decided, when a claim ends, and when the log has lost a
// commit. The Protocol has no goroutines, no clock and no I/O, so that a test can step it
// through every interleaving. [Log] (log.go) performs what the Protocol asks for, one step at a
// time.
//
// The package does not know what commits mean: only the [Fold] knows that.
//
// Invariants: slots have no gaps and are claimed one at a time; a commit is applied only if the
// log lease covers the answer that it came with; a payload is not sent to another slot before
// the slot that it was sent to is decided.
package commitlog
