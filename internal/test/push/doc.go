// Package push tests queues that brokers push to a URL, over real connections. It uses the public API of the
// broker.
package push
