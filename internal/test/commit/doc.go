// Package commit tests commits of several parts, and appends with a condition. It uses the public API of the
// broker.
package commit
