// Package change has the changes that requests make: to topics, API keys, consumers, queues, push
// targets and sessions.
//
// A change is data: it names topics and queues, and shares no memory with its caller, so that it
// can be sent to another broker. Its method Apply checks it against the draft of a commit, and
// returns its entries for the commit or a [*Refusal]. If another broker wins the slot of the
// commit, Apply runs again for the next commit. Results that the entries don't tell are fields of
// the change, which each run sets again.
//
// Changes that the owner of a queue makes by itself are in package dispatch.
package change
