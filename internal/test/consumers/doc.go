// Package consumers tests the positions that the log keeps for consumers. It uses the public API of the broker.
package consumers
