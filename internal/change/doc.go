// Package change has the changes of the log that requests make: to topics, API keys, consumers,
// queues, push targets and sessions.
//
// A change is data: it names topics and queues, and shares no memory with its caller, so that it can
// be handed to another broker. It checks itself against the draft of a commit, in Apply, and
// returns its entries or a [*Refusal]. Apply may run again, after a lost race; its results, where the
// entries don't tell them, are fields that each run sets again.
//
// The owner's own changes of a queue are in package dispatch.
package change
