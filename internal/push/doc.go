// Package push delivers the messages of a queue to a URL: each as a POST of its own,
// signed and numbered as Standard Webhooks 1.0 says. What the target answers decides
// what becomes of the message.
//
// It knows no broker. A [Queue] hands messages out and takes their outcomes; who runs
// a [Pusher], for how long and on which machine is the caller's business, and so is
// keeping a [Target] and that one was stopped.
//
// Invariants:
//   - A message is acknowledged only if its target answered 2xx, and put back for
//     every other answer; where there was no time for one it is left to its lease.
//   - No more requests are under way than the target's MaxInFlight, and no more
//     messages are kept than can be sent at once: those that came when the target had
//     just asked to slow down are returned.
//   - A target that asks to slow down, or can't be reached, is left alone as a whole:
//     its messages don't use up their attempts one after another.
//   - No connection is made to an address that [Networks] doesn't allow, whatever a
//     name resolved to before, and no redirect is followed.
//   - What a target answers is bounded in bytes and time, and cleaned before it is
//     shown to anyone.
package push
