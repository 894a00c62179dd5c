// Package queue tests queues: which records are handed out, when and how often, and what becomes of
// them. It uses the public API of the broker.
package queue
