// Package change has the changes that requests make: to topics, API keys, consumers, queues, push
// targets and sessions.
//
// A change is data: it names topics and queues, and shares no memory with the caller. So a change can
// be sent to another broker. The method Apply checks the change against the draft of a commit, and
// returns the change's entries for that commit, or a [*Refusal]. If another broker wins the slot of the
// commit, Apply runs again for the next commit. Some changes have fields for results that the entries
// don't show; each call of Apply sets these fields again.
//
// The changes that the owner of a queue makes without a request are in package dispatch.
package change
