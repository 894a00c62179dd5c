// Package httpapi serves a [seb.Broker] over HTTP: topics, appends, reads,
// health and metrics, made for a person with curl first and for programs second.
//
// It is an adapter and no more. Every promise about records is the broker's;
// this package turns requests into calls of the broker's public methods and
// answers into bytes. It holds no state between requests except pooled buffers
// and a count of failed attempts to authenticate.
//
// Invariants:
//   - Memory that a request makes this package hold is reserved from the
//     broker's budget before it is allocated: bodies, decoded bodies, lists of
//     records, and what an answer holds while a slow client takes it. What lasts as
//     long as a client likes comes from a share of its own: see [seb.Share].
//   - A body is read completely and checked before any of its records goes to
//     the broker, so a request that is cut off or malformed commits nothing.
//   - A client that stalls, sending or receiving, is cut off: see [Handler].
//   - Every route says what its callers must be allowed, and no action runs
//     before that was checked. A credential never reaches an action or a log.
//   - Every error is an RFC 9457 problem with a stable code, and every response
//     carries Seb-Request-Id. On the original Seb's paths errors are plain text.
//   - Query parameters, JSON fields and Seb-* headers that are not understood
//     are refused by name, never ignored: what a caller asks for and does not
//     get must be an error. Only the original Seb's queries are read its way.
package httpapi
