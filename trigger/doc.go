// Package trigger runs triggers: it watches topics, and appends a record to a topic each time that an expression in driplang
// becomes true for an entity. RFC 0006 has the design.
//
// A trigger decides by the log's order and times alone. So the firings of a trigger are a function of its definition and of the
// log, and each is appended once, whatever crashes.
package trigger
