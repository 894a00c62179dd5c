// Package year runs a broker for a year of virtual time on a modelled store, and measures what the bucket, the broker and the
// store's bill become: docs/costs.md.
//
// The broker is the real one, with compaction, retention, checkpoints and deletion. Only the store is modelled: each request takes
// the same time, and transfers take none.
package year
