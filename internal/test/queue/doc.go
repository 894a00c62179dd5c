// Package queue tests queues: what is handed out, when, how often, and what becomes of it. It uses the public
// API of the broker.
package queue
