// Package mesh keeps connections between the brokers of a log, and sends over them what makes the brokers fast: the commits
// that each of them writes. RFC 0005 describes it.
//
// Nothing depends on a connection. A broker that has none, or that gets a message late or never, reads the log from the
// store. The store alone says what is in the log: see [commitlog.Protocol.Told].
//
// The package knows no network. Its caller connects to a session, or accepts a connection, makes sure that the other
// side is that session, and passes the connection as a [Conn].
package mesh
