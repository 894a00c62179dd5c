// Package access tests who may do what: API keys, their expiry, and requests that brokers make on
// behalf of a caller. It uses the public API of the broker.
package access
