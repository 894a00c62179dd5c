// Package push delivers the messages of a queue to a URL: each as one POST request,
// signed and numbered as Standard Webhooks 1.0 says. The target's answer decides the
// outcome of the message.
//
// The package does not know brokers. A [Queue] hands out messages and takes their outcomes. The
// caller decides where and for how long a [Pusher] runs. The caller also stores each [Target], and
// whether pushing to the target was stopped.
//
// Invariants:
//   - A message is acknowledged only if its target answered 2xx, and put back after
//     every other answer. If the pusher ends before an answer, the message stays
//     leased until its lease ends.
//   - The target never has more than MaxInFlight requests under way. The pusher
//     receives only messages that it can send immediately. If the target asks to slow
//     down in the meantime, the pusher returns the messages to the queue.
//   - If a target asks to slow down or can't be reached, the pusher pauses for all of its
//     messages, so that they don't use up their attempts one after another.
//   - The pusher connects only to addresses that [Networks] allows. It checks this when
//     it connects, not when a name is resolved. It follows no redirect.
//   - A target's answer is bounded in bytes and time, and cleaned before it is
//     shown.
package push
