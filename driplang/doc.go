// Package driplang is the language of triggers: expressions such as
//
//	user_created AS u THEN NOT use_feature_x [data.plan == u.data.plan] WITHIN 7d
//
// that are true or false of a sequence of events. The package parses and prints expressions, as text and as JSON, checks
// them, and decides them for a sequence of events. It does no I/O and reads no clock: the only times are those of the events.
//
// docs/driplang.md describes the language, and RFC 0006 argues for its semantics.
package driplang
