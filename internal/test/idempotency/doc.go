// Package idempotency tests appends with an idempotency key. It uses the public API of the broker.
package idempotency
