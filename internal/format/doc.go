// Package format encodes and decodes what Seb stores: commits, data objects, checkpoints and
// seb.json, and their keys. docs/format.md describes each field. For bytes that can't be
// decoded, the package returns an error that wraps [ErrCorrupt], [ErrVersion] or [ErrForeign].
// The memory that decoding takes is in proportion to the given bytes.
//
// The package does not know what the entries of a commit mean: only internal/state knows that.
package format
