// Package format turns what Seb stores into bytes and back: commits, data objects,
// checkpoints and seb.json, and the keys under which they stand. docs/format.md
// describes each field. Decoding survives any bytes: it returns an error that wraps
// [ErrCorrupt], [ErrVersion] or [ErrForeign], and never takes more memory than the
// bytes that it was given justify.
//
// It does not know what the items of a commit mean: that is internal/state's business.
package format
