// Package httpapi serves a [seb.Broker] over HTTP: topics, appends, reads,
// health and metrics, made for a person with curl first and for programs second.
//
// It is only an adapter. The broker gives all guarantees about records; this package turns requests
// into calls of the broker's public methods and results into answers. Between requests it keeps only
// pooled buffers, connections to other brokers, metrics, and counts of what it limits, such as failed
// attempts to authenticate and refused bodies.
//
// In the comments of this package, an action is the function that serves one method of a route. The original
// Seb is an older program with the same purpose. This package also serves the paths of the original's API, so
// that clients of the original run unchanged.
//
// Invariants:
//   - Memory that a request makes this package hold is reserved from the
//     broker's budget before it is allocated: bodies, decoded bodies, lists of
//     records, and answers that a slow client reads. Memory that a client can make the broker
//     hold for long comes from a separate share of the budget: see [seb.Share].
//   - A body is read completely and checked before any of its records goes to
//     the broker, so a request that is cut off or malformed commits nothing.
//   - A client that stalls, sending or receiving, is cut off: see [Handler].
//   - Every route declares the access that its callers need, and no action runs
//     before the caller's access was checked. A credential never reaches an action or a log.
//   - Every error is an RFC 9457 problem with a stable code, and every response
//     carries Seb-Request-Id. On the original Seb's paths errors are plain text.
//   - Unknown query parameters, JSON fields and Seb-* headers are refused by name,
//     never ignored: a caller whose request isn't fulfilled gets an error. Only
//     queries on the original Seb's paths are read as the original Seb reads them.
package httpapi
