// Package push delivers the messages of a queue to a URL: each as a POST of its own,
// signed and numbered as Standard Webhooks 1.0 says. The target's answer decides the
// outcome of the message.
//
// It does not know brokers. A [Queue] hands out messages and takes their outcomes. The caller
// decides where and for how long a [Pusher] runs, and stores a [Target] and whether it was
// stopped.
//
// Invariants:
//   - A message is acknowledged only if its target answered 2xx, and put back for
//     every other answer. If there was no time for an answer, it is left to its lease.
//   - No more requests are under way than the target's MaxInFlight, and no more
//     messages are kept than can be sent at once: those that came when the target had
//     just asked to slow down are returned.
//   - If a target asks to slow down or can't be reached, the pusher pauses for all of its
//     messages, so that they don't use up their attempts one after another.
//   - The pusher connects only to addresses that [Networks] allows, whatever a
//     name resolved to before, and follows no redirect.
//   - A target's answer is bounded in bytes and time, and cleaned before it is
//     shown.
package push
