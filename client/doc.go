// Package client reaches a log through brokers in other processes, over their HTTP API. It has the types of
// package seb: records, offsets, errors with outcomes, followers, consumers and queues.
//
//	log, err := client.New(client.Options{Servers: []string{"http://10.0.0.5:51313"}, APIKey: key})
//
// [API] has the methods that a [Client] shares with a broker in this process: see [Embedded].
//
// # Retries
//
// A [Client] repeats a request while no broker answers, or while a broker asks for a later try, for up to
// [Options.RetryFor]. It takes the brokers of [Options.Servers] in turn. If a broker accepts a connection,
// but does not respond, the client goes on with the next broker. It repeats a write only if that can't do the write twice:
//
//   - The error has the outcome [seb.NotCommitted].
//   - The write has an idempotency key: an append or a commit. Without [seb.IdempotencyKey], the client makes
//     a key, unless Options.NoIdempotencyKeys is set. If the log remembers as many keys as it may, the client
//     sends the write without a key.
//   - The write says which state is to be reached: an acknowledgement, or the new positions of a consumer.
//
// All other writes with an unknown outcome fail, and [seb.OutcomeOf] returns [seb.Unknown].
//
// # Headers
//
// Brokers sort the headers that come over HTTP by name. Headers with the same name keep their order.
//
// # Errors
//
// Every error is or wraps a [seb.Error], as in package seb. [CodeUnreachable] and [CodeUnexpectedResponse] are
// codes that only this package returns.
package client
