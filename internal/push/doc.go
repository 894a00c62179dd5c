// Package push delivers the messages of a queue to a URL: each attempt is one POST request, with
// the id, the timestamp and the signature that Standard Webhooks 1.0 asks for. The target's answer
// decides the outcome of the message.
//
// The package does not know brokers. A [Queue] hands out messages and takes their outcomes. The
// caller decides where and for how long a [Pusher] runs. The caller also stores each [Target], and
// whether pushing to the target was stopped.
//
// Invariants:
//   - A message is acknowledged only if its target answered 2xx, and put back after
//     every other answer. If the pusher ends before the target answers, the message
//     stays leased until its lease ends.
//   - The target never has more than MaxInFlight requests under way. The pusher
//     receives only messages that it can send immediately. If the target asks to slow
//     down before a received message is sent, the pusher returns the message to the queue.
//   - If a target asks to slow down or can't be reached, the pusher sends no message until
//     the pause is over, so that the messages don't use up their attempts meanwhile.
//   - The pusher connects only to addresses that [Networks] allows, or to the operator's
//     proxy. It checks the address when it connects, not when a name is resolved. It
//     follows no redirect.
//   - A target's answer is bounded in bytes and time, and is shown without characters that
//     could harm a terminal or a page.
package push
