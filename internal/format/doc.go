// Package format encodes and decodes what Seb stores: commits, data objects, checkpoints and
// seb.json, and their keys. docs/format.md describes each field. Decoding survives any bytes: it
// returns an error that wraps [ErrCorrupt], [ErrVersion] or [ErrForeign], and the memory that it
// takes is in proportion to the bytes that it was given.
//
// The package does not know what the entries of a commit mean: internal/state does.
package format
