// Package explore proves, within small bounds, that the log's decisions lose
// nothing. It drives the [commitlog.Protocol] that brokers run, not a second
// model of it, against a model of the store, without goroutines, clocks or I/O:
// through every interleaving, breadth-first, with the states told apart by
// their canonical form ([Explore]); or along random ones at larger bounds ([Walk]).
//
// What may go wrong: replies get lost or come late; a PUT, once sent, may
// execute at any later time, any number of times, also after its sender
// crashed; a broker stops between any two steps for any time, crashes and
// restarts; the store's clocks disagree; checkpoints appear at any time;
// anybody deletes whatever the rules allow as soon as they allow it.
//
// What must hold is listed as [Invariant]. A [Rule] can be taken out, to show
// that it is needed: then the exploration ends with a story of what went wrong.
//
// A broker's driver here mirrors perform and the loops above it in the commit
// log, step for step, with one simplification: what is local to a broker and
// can't fail (applying what is in hand) is done at once, since no other broker
// and no part of the store can tell when it happened. A crash before it is the
// same as an answer that was lost. The local clock may only shorten a lease, so
// it is not modelled as a clock: a lease is renewed early, and an answer counts
// as too late, whenever the exploration chooses so.
//
// It is not a proof for other bounds; nor does it look at bytes, at the fold,
// or at a store that breaks its promise.
package explore
