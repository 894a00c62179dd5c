// Package peer makes connections between brokers of one log: TLS 1.3 within a connection that began
// as an HTTP request. This way brokers can use the same port and proxies as clients, even if a
// proxy terminates the outer TLS. Each side shows a self-signed certificate, in which only the key
// matters: the Ed25519 key of a session. TLS proves that the other side has the private half of the
// key, and prevents that others read or change what the two sessions send.
//
// The package does not know which sessions exist. The client names the session that must answer.
// The server learns which session asks, and the caller of Accept decides whether to trust that
// session.
package peer
