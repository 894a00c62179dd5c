// Package reading tests followers, which read several partitions in turn, reads that begin at a time, and
// reads over slow stores. It uses the public API of the broker.
package reading
