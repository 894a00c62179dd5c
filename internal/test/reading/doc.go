// Package reading tests reads that go on: of all partitions in turn, from a time on, over what is slow. It uses
// the public API of the broker.
package reading
