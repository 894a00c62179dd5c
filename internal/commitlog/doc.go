// Package commitlog is Seb's log: the rules by which brokers that share a bucket agree on its
// content, and the requests to the store that carry out those rules.
//
// The package has two layers. [Protocol] (protocol.go) makes every decision: which answer of
// the store it may rely on, when a slot is decided (the broker knows which commit is in it), when
// a claim ends, and when the log has lost a commit. The Protocol has no goroutines, no clock and
// no I/O, so that a test can step it through every interleaving. [Log] (log.go) performs what the
// Protocol asks for, one step at a time. A Protocol that finds the log damaged halts: it asks for
// no further steps.
//
// The caller's [Fold] applies commits to the state. Only the Fold knows what commits mean.
//
// Invariants:
//   - Slots have no gaps and are claimed one at a time.
//   - A commit is applied only if the log lease covers the answer with the commit (the store gave
//     the answer while the lease lasted), or if a later List shows no checkpoint that covers the
//     commit.
//   - A broker that has sent a commit to one slot sends the commit's payload to another slot only
//     after the first slot is decided.
package commitlog
