// Package peer is how brokers of one log speak to each other: TLS 1.3 within a connection
// that began as an HTTP request, so that it takes the way on which clients reach a broker,
// through the same port, whoever ends their TLS on it. Each side shows a certificate that
// it has signed itself, and of which nothing counts but its key: the Ed25519 key of a
// session. TLS proves that the other side has its private half, keeps what is said from
// everybody else, and binds every byte to both.
//
// The package does not know which sessions there are. Whoever asks gives the one that must
// answer; whoever is asked is told which one asks, and decides whether to believe it.
package peer
