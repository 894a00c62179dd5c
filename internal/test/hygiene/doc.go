// Package hygiene holds tests of the shape of Seb's source tree: which package
// may import which, what may be linked, that every package says what it is for,
// which calls are forbidden where, and where the outcome of a public method's
// error is decided. There is nothing to import.
//
// Each rule is a row of a table that gives its reason, and each check is itself
// tested on a small tree that breaks it. A rule that makes code worse is to be
// changed here, with the new reason.
package hygiene
