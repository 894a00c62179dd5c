// Package hygiene has tests of the shape of Seb's source tree: which package may
// import which, what may be linked, that every package has a doc comment, which
// calls are forbidden where, and where the outcome of a public method's error is
// decided. The package exports nothing.
//
// Each rule is a row of a table that gives the rule's reason. Each check is itself
// tested on a small tree that breaks the rule. If a rule makes code worse, change the rule
// here, with the new reason.
package hygiene
