// Package reading tests reads that go on for some time: of all partitions in turn, from a time on, and
// over slow stores. It uses the public API of the broker.
package reading
